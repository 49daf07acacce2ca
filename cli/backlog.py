"""``ferryman backlog``: one number to scale workers by. Only reads.

Called by autoscalers, every few seconds, also before the first message and while the server is away: a number is printed only
where it is known, and a queue that is not there yet has none to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..migrations.missing import keyspaces_at
from ..operations.numbers import Found, Numbers, is_brief, look
from ..schema.connection.address import Address
from ..schema.connection.connect import server_errors
from ..schema.errors import UsageError
from ..schema.job import State
from .options import address_argument, output_option
from .output import Output
from .status import Status

NOTHING = Numbers({}, {})
"""The numbers of a queue that is not there."""


@click.command()
@address_argument()
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@output_option
def command(url: Address, queues: tuple[str, ...], output: Output) -> Status:
    """Print how many messages want a worker or have one.

    Those that wait, those whose delay is over, and those that workers hold: one number, or with --format json its parts too.
    Takes two commands a queue, however many messages there are. A queue that is not there (yet) counts 0, with a note on stderr.
    Queues with x-expires (replies, events) count only if they are named.

    \b
    Examples:
      ferryman backlog ferryman://localhost:6379/0
      ferryman backlog ferryman://localhost:6379/0 --queue mail --format json
    """
    if not is_brief(url):
        raise UsageError(
            f"the backlog of {url.display()} can only be had by reading every job: ferryman queues {url.display()} does that"
        )
    found = look(url, queues)
    with server_errors(url):
        report = backlog(found, queues)
    for name in [name for name in queues if name not in found]:
        output.note(f"ferryman: there is no queue {name!r} (yet) at {url.display()}")
    if not (found or queues):
        output.note(f"ferryman: there is no queue (yet) at {url.display()}")
    others = [] if found else keyspaces_at(url)
    if others:
        output.note(f"ferryman: keyspaces found in the same database: {', '.join(others)}")
    if output.json:
        output.line(report)
    else:
        click.echo(report["backlog"])
    return Status.FINE


def backlog(found: Found, chosen: Sequence[str] = ()) -> dict[str, Any]:
    """The backlog of the chosen queues, of all that were found if none is: the sum, and each queue's by its name.

    Raises the error of one that can't be read: a sum without it would stop workers that it needs.
    """
    queues: dict[str, dict[str, int | None]] = {}
    for name in chosen or sorted(found):
        numbers = found.get(name, NOTHING)
        if isinstance(numbers, Exception):
            raise numbers
        queues[name] = _by_state(numbers)
    sums = {
        number: sum(each[number] or 0 for each in queues.values()) for number in ("backlog", "waiting", "active", "scheduled")
    }
    known = [ms for each in queues.values() if (ms := each["latency_ms"]) is not None]
    latency = max(known, default=0) if len(known) == len(queues) else None
    return {**sums, "latency_ms": latency, "queues": queues}


def _by_state(numbers: Numbers) -> dict[str, int | None]:
    states = {str(state): numbers.number(state) for state in (State.WAITING, State.ACTIVE, State.SCHEDULED)}
    return {"backlog": numbers.backlog, **states, "latency_ms": numbers.latency_ms}
