"""``ferryman resume``: ends the pause of a queue."""

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
    """Resume queues that were paused.

    Their consumers are woken at once.

    \b
    Example:
      ferryman resume ferryman://localhost:6379/0 mail
    """
    with controls(url, audit_log) as found:
        tell_each(queues, "resume", found.resume, "resumed", "was not paused", output)
    return Status.FINE
