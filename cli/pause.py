"""``ferryman pause``: nothing is taken from a queue until it is resumed."""

from __future__ import annotations

from pathlib import Path

import click

from ..schema.connection.address import Address
from .options import address_argument, output_option
from .output import Output
from .status import Status
from .steering import audit_log_option, controls, tell_each


@click.command()
@address_argument()
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@audit_log_option
@output_option
def command(url: Address, queues: tuple[str, ...], audit_log: Path | None, output: Output) -> Status:
    """Pause queues: nothing is taken from them until they are resumed.

    Publishing goes on, and delayed jobs become due; what workers have begun goes on as well. A pause outlasts the restart of
    workers and servers. Workers older than this version know no pauses, and go on.

    \b
    Example:
      ferryman pause ferryman://localhost:6379/0 mail
    """
    with controls(url, audit_log) as found:
        tell_each(queues, "pause", found.pause, "paused", "paused already", output)
    return Status.FINE
