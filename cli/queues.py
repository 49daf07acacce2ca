"""``ferryman queues``: the numbers of every queue of a keyspace. Only reads.

They come from indexes and counters where these tell everything (`operations/numbers.py`); otherwise every job is read.
"""

from __future__ import annotations

from collections import Counter

import click

from ..migrations.engine import Engine
from ..migrations.local import LocalEngine
from ..migrations.queues import QueueStatus
from ..operations.numbers import is_brief, look
from ..schema.connection.address import Address
from ..schema.connection.permission import is_forbidden
from ..schema.errors import ServerError
from ..schema.job import State
from .duration import largest_units
from .engines import engine_options
from .options import address_argument, checksum_option, moment, now_option, output_option
from .output import Output
from .status import Status

RARE = (State.CANCELLED, State.BLOCKED, State.UNKNOWN)
"""States that get a column only where a job is in them."""

SPARE = ("consumers", "completed", "oldest", *map(str, RARE), "active", "failed", "scheduled")
"""What a narrow terminal does without."""


@click.command()
@address_argument()
@click.option("--scan", is_flag=True, help="Read every job, also those that stand in no index, where indexes would do.")
@engine_options
@checksum_option
@now_option
@output_option
def command(url: Address, scan: bool, engine: Engine, now_ms: int | None, output: Output) -> Status:
    """List queues with their numbers.

    For each queue: jobs by state, how long the oldest waiting job has waited, and the consumers where the family knows them.
    A scheduled job whose time has come waits. With --format json also how many wait with each priority. Failed jobs of a
    ferryman keyspace are its dead letters.

    The numbers of ferryman's own queues and of kue come from their indexes, in a few commands a queue. Other systems have no
    index for some state, so every job is read. From indexes, a job whose time has come counts under no priority until a worker
    looks; --scan reads its priority.

    \b
    Example:
      ferryman queues ferryman://localhost:6379/0
    """
    found = (None if scan or now_ms is not None else _from_indexes(engine, url)) or engine.queues(url, moment(url, now_ms))
    if output.json:
        for status in found:
            output.line(status.to_dict() | {"paused": status.is_paused})
        return Status.FINE
    states = [state for state in State if state not in RARE or any(status.states[state] for status in found)]
    columns = ["queue", *(str(state) for state in states), "oldest"]
    rows: list[list[object]] = [
        [status.queue, *(status.states[state] for state in states), _age(status.oldest_ms)] for status in found
    ]
    if any(status.consumers is not None for status in found):
        columns.append("consumers")
        for row, status in zip(rows, found, strict=True):
            row.append(status.consumers)
    right = columns[1:]
    if any(status.is_paused for status in found):
        columns.append("paused")
        for row, status in zip(rows, found, strict=True):
            row.append("paused" if status.is_paused else "")
    output.table("", columns, rows, right=right, whole=("queue",), spare=SPARE)
    return Status.FINE


def _from_indexes(engine: Engine, url: Address) -> list[QueueStatus] | None:
    """The numbers, if indexes tell them and the user may ask them; None or nothing: every job must be read."""
    if not isinstance(engine, LocalEngine) or not is_brief(url):
        return None
    try:
        found = look(url)
    except ServerError as error:
        if is_forbidden(error):
            return None
        raise
    statuses = []
    for queue, numbers in sorted(found.items()):
        if isinstance(numbers, Exception):
            return None
        waiting, ages = Counter({name: number for name, number in numbers.waiting.items() if number}), numbers.ages_ms.values()
        oldest = max(ages, default=None)
        statuses.append(
            QueueStatus(queue, Counter(numbers.states), oldest, numbers.consumers, waiting, is_paused=numbers.is_paused)
        )
    return statuses


def _age(ms: int | None) -> str | None:
    """A duration in its two largest units."""
    return None if ms is None else " ".join(f"{number}{unit[0]}" for number, unit in largest_units(ms))
