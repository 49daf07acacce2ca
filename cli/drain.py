"""``ferryman drain``: deletes what waits in queues or is scheduled there."""

from __future__ import annotations

from pathlib import Path

import click

from ..schema.connection.address import Address
from ..schema.text import plural
from .options import address_argument, output_option
from .output import Output
from .status import Status
from .steering import ask, audit_log_option, controls, dry_run_option, numbers, telling, yes_option


@click.command()
@address_argument()
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@dry_run_option
@yes_option
@audit_log_option
@output_option
def command(url: Address, queues: tuple[str, ...], dry_run: bool, yes: bool, audit_log: Path | None, output: Output) -> Status:
    """Delete what waits in queues, and what is scheduled there.

    Jobs that workers have taken, dead letters and completed jobs stay, and so does what comes meanwhile.

    \b
    Examples:
      ferryman drain ferryman://localhost:6379/0 mail --dry-run
      ferryman drain ferryman://localhost:6379/0 mail --yes
    """
    with controls(url, audit_log) as found, output.progress() as report:
        for queue in dict.fromkeys(queues):
            if not (dry_run or yes):
                number = found.drain(queue, dry_run=True).done
                ask(f"Delete {number} {plural(number, 'job')} of queue {queue}?", output, yes)
            drained = found.drain(queue, dry_run=dry_run, progress=telling(report, f"drain {queue}"))
            if output.json:
                output.line({"queue": queue, "action": "drain", "dry_run": dry_run} | numbers(drained))
            else:
                output.say(f"queue {queue}: {drained.done} {'to delete' if dry_run else 'deleted'}")
    return Status.FINE
