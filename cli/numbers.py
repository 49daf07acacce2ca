"""Numbers: how many jobs the queues of a keyspace have, from one look at it, for ``ferryman metrics``. Only reads.

Ferryman's own queues are asked by one script each, other families by the lengths of their indexes: a few commands a queue,
however many jobs there are. Where a family's indexes don't tell, every job is read, as ``ferryman queues`` does.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from ..migrations.counting import SERVERS, count
from ..migrations.local import LocalEngine
from ..migrations.queues import QueueStatus
from ..schema.address import DEFAULT_FAMILY, Address, Kind
from ..schema.job import State
from ..schema.native.results import Size
from .broker import open_broker
from .options import moment

CHUNK = 500
"""Queues that are asked in one round trip."""
PATIENCE = 5.0
"""Seconds to wait for a reply, unless the URL says ``socket_timeout``: those who collect metrics don't wait long."""


@frozen
class Numbers:
    """The numbers of one queue. Priorities are texts, "" where a job has none."""

    states: Mapping[State, int]
    waiting: Mapping[str, int]
    """How many jobs wait with each priority; empty where only their sum is known."""
    ages_ms: Mapping[str, int] = field(factory=dict)
    """How long the oldest job has waited that waits with each priority; "" where it is the oldest of all."""
    consumers: int | None = None
    """None where the family does not know its consumers."""
    letters: int | None = None
    """Dead letters on their way to an exchange; None in other systems."""
    counters: Mapping[str, int] = field(factory=dict)
    """What has happened since the queue was made; nothing in other systems."""


def is_brief(address: Address) -> bool:
    """Whether ``look`` takes a few commands a queue; it reads every job otherwise."""
    if address.family == DEFAULT_FAMILY:
        return address.kind is not Kind.RDB
    return address.kind in SERVERS and address.key_family.count(address.prefix) is not None


def look(address: Address) -> dict[str, Numbers | None]:
    """The numbers of each queue that lasts, by name; None for one that is damaged, or written by a newer version.

    Raises ServerError naming the address, UsageError for one that can't be read.
    """
    if not is_brief(address):
        statuses = LocalEngine().queues(address, moment(address, None))
    elif address.family == DEFAULT_FAMILY:
        return _asked(address)
    else:
        _, statuses = count(address, **_patience(address)) or (0, [])
    return {status.queue: _of_status(status) for status in statuses}


def _patience(address: Address) -> dict[str, float]:
    return {} if "socket_timeout" in address.options else {"socket_timeout": PATIENCE}


def _asked(address: Address) -> dict[str, Numbers | None]:
    found: dict[str, Numbers | None] = {}
    with open_broker(address, **_patience(address)) as broker:
        names = broker.queues(())
        for first in range(0, len(names), CHUNK):
            chunk = names[first : first + CHUNK]
            calls = [call for name in chunk for call in (broker.live.size(name, by_priority=True), broker.live.counters(name))]
            outcomes = broker.wire.outcomes(calls)
            for name, size, counters in zip(chunk, outcomes[::2], outcomes[1::2], strict=True):
                if isinstance(size, Exception) or isinstance(counters, Exception):
                    found[name] = None
                elif size.exists:
                    found[name] = _of_size(size, counters)
    return found


def _of_size(size: Size, counters: Mapping[str, int]) -> Numbers:
    states = {
        State.WAITING: size.waiting,
        State.SCHEDULED: size.scheduled,
        State.ACTIVE: size.held,
        State.COMPLETED: size.done,
        State.FAILED: size.dead,
        State.BLOCKED: size.blocked,
    }
    waiting = {str(priority): number for priority, number in size.priorities.items()}
    ages = {str(priority): age for priority, age in size.ages.items()}
    return Numbers(states, waiting, ages, size.consumers, size.letters, counters)


def _of_status(status: QueueStatus) -> Numbers:
    ages = {} if status.oldest_ms is None else {"": status.oldest_ms}
    return Numbers(status.states, status.priorities, ages, status.consumers)
