"""``ferryman metrics``: the numbers of every queue for Prometheus, once or by HTTP, there as JSON too. Only reads."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

import click

from ..operations.numbers import is_brief
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.text import show
from .options import address_argument, checksum_option
from .output import LONGEST
from .status import Status

if TYPE_CHECKING:
    from .scrape import Scrape

LOOPBACK = "127.0.0.1"


def _listen(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """The host and port of ``[HOST:]PORT``."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT", ctx=ctx, param=param)
    return host.strip("[]") or LOOPBACK, int(port)


@click.command()
@address_argument()
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    callback=_listen,
    help="Serve the metrics by HTTP until a signal ends it, and at /backlog what ferryman backlog tells as JSON; each request is "
    f"one look. HOST is {LOOPBACK} if left out.",
)
@checksum_option
def command(url: Address, listen: tuple[str, int] | None) -> Status:
    """Show the numbers of queues as Prometheus metrics.

    Without --listen once on stdout, for cron and the textfile collector of node_exporter. A server that can't be read is the
    metric ferryman_up 0. Needs prometheus_client: pip install 'ferryman[metrics]'.

    \b
    Example:
      ferryman metrics ferryman://localhost:6379/0
      ferryman metrics ferryman://localhost:6379/0 --listen 9808
    """
    scrape = _scrape(url)
    if listen is not None:
        _serve(scrape, *listen)
        return Status.FINE
    from prometheus_client import generate_latest

    click.echo(generate_latest(scrape.registry()), nl=False)
    return Status.FAILED if scrape.failure else Status.FINE


def _scrape(url: Address) -> Scrape:
    try:
        from .scrape import Scrape
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise UsageError("metrics need prometheus_client: pip install 'ferryman[metrics]'") from None
    return Scrape(url, _note)


def _serve(scrape: Scrape, host: str, port: int) -> None:
    """Answers requests until SIGINT or SIGTERM. Raises UsageError where each one would read every job."""
    from .endpoint import endpoint

    if not is_brief(scrape.address):
        raise UsageError(
            f"the numbers of {scrape.address.display()} can only be had by reading every job: leave --listen out, and run this "
            "as seldom as that may be done"
        )
    end = threading.Event()

    def finish(_signal: int, _frame: FrameType | None) -> None:
        end.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, finish)
    try:
        server = endpoint(scrape, host, port)
    except OSError as error:
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}") from None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _note(f"metrics of {scrape.address.display()} at http://{_netloc(host)}:{server.server_port}/metrics")
    end.wait()
    server.shutdown()
    thread.join()
    server.server_close()


def _netloc(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _note(text: str) -> None:
    click.echo(f"ferryman: {show(text, LONGEST)}", err=True)
