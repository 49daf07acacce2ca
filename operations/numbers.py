"""Numbers: how many jobs the queues of a keyspace have, from one look at it. For ``metrics``, ``backlog`` and ``queues``.

Ferryman's own queues are asked by one script each, other families by the lengths of their indexes: a few commands a queue,
however many jobs there are. Only reads. Where a family's indexes don't tell, every job is read, as ``ferryman queues`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from ..migrations.counting import count, is_countable
from ..migrations.local import LocalEngine
from ..migrations.queues import QueueStatus
from ..migrations.source import open_source
from ..schema.connection.address import DEFAULT_FAMILY, Address, Kind
from ..schema.histogram import Times
from ..schema.job import State
from ..schema.native.scripts.exchange import Exchanges
from ..schema.native.scripts.results import Size
from .broker import Broker, open_broker

CHUNK = 500
"""Queues that are asked in one round trip."""
PATIENCE = 5.0
"""Seconds to wait for a reply, unless the URL says ``socket_timeout``: those who collect metrics don't wait long."""


@frozen
class Numbers:
    """The numbers of one queue. Priorities are texts, "" where a job has none."""

    states: Mapping[State, int]
    waiting: Mapping[str, int]
    """How many jobs wait with each priority, "" for those of which it is not known; empty where only their sum is known."""
    ages_ms: Mapping[str, int] = field(factory=dict)
    """How long the oldest job has waited that waits with each priority, by the same words; "" alone: the oldest of all."""
    consumers: int | None = None
    """None where the family does not know its consumers."""
    outbox: int | None = None
    """Dead letters on their way to an exchange; None in other systems."""
    counters: Mapping[str, int] = field(factory=dict)
    """What has happened since the queue was made; nothing in other systems."""
    is_paused: bool | None = None
    """Whether nothing is taken from it until it is resumed; None where the family knows no pauses, or they were not looked at."""
    times: Times | None = None
    """How long jobs have waited and run since the queue was made; None where nobody asked, or nobody knows."""

    def number(self, state: State) -> int:
        """The jobs in a state."""
        return self.states.get(state, 0)

    @property
    def backlog(self) -> int:
        """The jobs that want a worker or have one: what an autoscaler goes by, so that it stops no worker that has one."""
        return self.number(State.WAITING) + self.number(State.ACTIVE)

    @property
    def latency_ms(self) -> int | None:
        """How long the job that has waited longest has; 0 where none waits, None where that is not known."""
        if not self.number(State.WAITING):
            return 0
        return max(self.ages_ms.values(), default=None)


Found = Mapping[str, Numbers | Exception]
"""The numbers of queues by name; the error of one that is damaged, or written by a newer version."""


def is_brief(address: Address) -> bool:
    """Whether ``look`` takes a few commands a queue; it reads every job otherwise."""
    if address.family == DEFAULT_FAMILY:
        return address.kind is not Kind.RDB
    return is_countable(address)


def look(address: Address, chosen: tuple[str, ...] = ()) -> dict[str, Numbers | Exception]:
    """The numbers of the chosen queues that there are, of each queue that lasts if none is chosen.

    Raises ServerError naming the address, UsageError for one that can't be read.
    """
    if not is_brief(address):
        statuses = _from_jobs(address)
    elif address.family == DEFAULT_FAMILY:
        with open_broker(address, **patience(address)) as broker:
            return _from_scripts(broker, chosen)
    else:
        _, statuses = count(address, **patience(address)) or (0, [])
        if not (statuses or chosen):
            statuses = _from_jobs(address)  # which fails where no key of the keyspace exists
    return {status.queue: of_status(status) for status in statuses if not chosen or status.queue in chosen}


def _from_jobs(address: Address) -> list[QueueStatus]:
    """The numbers by reading every job. Raises KeyspaceNotFound, and as ``look`` does."""
    with open_source(address) as source:
        now_ms = source.clock_ms()
    return LocalEngine().queues(address, now_ms)


def look_with_unroutable(address: Address) -> tuple[dict[str, Numbers | Exception], dict[str, int]]:
    """What ``look`` tells, and how many messages each exchange has dropped because no queue wanted them, over one connection.

    With the times of ferryman's own queues. No exchanges in other systems. Raises as ``look`` does.
    """
    if address.family != DEFAULT_FAMILY or not is_brief(address):
        return look(address), {}
    with open_broker(address, **patience(address)) as broker:
        found = _from_scripts(broker, (), with_times=True)
        (dropped,) = broker.link.outcomes([Exchanges(address.prefix).unroutable()])
    return found, {} if isinstance(dropped, Exception) else dict(dropped)  # a damaged counter hides no queue


def patience(address: Address) -> dict[str, float]:
    """For ``open_broker``: how long to wait for a reply, where the URL does not say."""
    return {} if "socket_timeout" in address.options else {"socket_timeout": PATIENCE}


def _from_scripts(broker: Broker, chosen: tuple[str, ...], *, with_times: bool = False) -> dict[str, Numbers | Exception]:
    found: dict[str, Numbers | Exception] = {}
    names, scripts = broker.queues(chosen), broker.scripts
    for first in range(0, len(names), CHUNK):
        chunk = names[first : first + CHUNK]
        calls: list[Any] = [call for name in chunk for call in (scripts.size(name, by_priority=True), scripts.counters(name))]
        outcomes = broker.link.outcomes(calls)
        times = broker.link.outcomes([scripts.times(name) for name in chunk]) if with_times else [None] * len(chunk)
        for name, size, counters, time in zip(chunk, outcomes[::2], outcomes[1::2], times, strict=True):
            if isinstance(size, Exception) or isinstance(counters, Exception):
                found[name] = size if isinstance(size, Exception) else counters
            elif size.exists:
                known = None if isinstance(time, Exception) else time  # damaged times hide no numbers
                found[name] = evolve(of_size(size, counters), times=known)
    return found


def of_size(size: Size, counters: Mapping[str, int]) -> Numbers:
    """The numbers of a queue from what its script has told."""
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
    if size.due:
        waiting[""] = size.due
    if size.due_age_ms is not None:
        ages[""] = size.due_age_ms
    return Numbers(states, waiting, ages, size.consumers, size.outbox, counters, size.paused)


def of_status(status: QueueStatus) -> Numbers:
    """The numbers of a queue whose jobs somebody has read."""
    ages = {} if status.oldest_ms is None else {"": status.oldest_ms}
    return Numbers(status.states, status.priorities, ages, status.consumers)
