"""QueueStatus: the numbers of one queue, for ``ferryman queues``. Pure: counts jobs that somebody else has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from attrs import define, field

from ..schema.family import Keyspace
from ..schema.job import Job, State


@define
class QueueStatus:
    """One queue at one moment."""

    queue: str
    states: Counter[State] = field(factory=Counter)
    oldest_ms: int | None = None
    """How long the job that has waited longest has, ms, from its due time if it was delayed; None when none waits or no time is
    known."""
    consumers: int | None = None
    """None where the family does not know its consumers."""
    priorities: Counter[str] = field(factory=Counter)
    """How many jobs wait with each priority, as text; "" for none."""
    is_paused: bool | None = None
    """Whether nothing is taken from it until it is resumed; None where the family knows no pauses."""

    def count(self, job: Job, now_ms: int) -> None:
        """Adds one job. A scheduled one whose time has come waits, whether or not a worker has looked since."""
        is_due = job.due_at is not None and job.due_at <= now_ms
        state = State.WAITING if job.state is State.SCHEDULED and is_due else job.state
        self.states[state] += 1
        if state is State.WAITING:
            self.priorities["" if job.priority is None else str(job.priority)] += 1
            times = [time for time in (job.created_at, job.due_at) if time is not None]
            if times:
                self.oldest_ms = max(self.oldest_ms or 0, now_ms - max(times))

    def merge(self, other: QueueStatus) -> None:
        """Adds what another part of the jobs has given."""
        self.states.update(other.states)
        self.priorities.update(other.priorities)
        if other.oldest_ms is not None:
            self.oldest_ms = max(self.oldest_ms or 0, other.oldest_ms)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: every state stands there, be it 0."""
        numbers = {str(state): self.states[state] for state in State}
        others = {"oldest_ms": self.oldest_ms, "consumers": self.consumers, "priorities": dict(sorted(self.priorities.items()))}
        return {"queue": self.queue, **numbers, **others}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> QueueStatus:
        """The status behind ``to_dict``."""
        states = Counter({state: raw[str(state)] for state in State if raw[str(state)]})
        return cls(raw["queue"], states, raw["oldest_ms"], raw["consumers"], Counter(raw["priorities"]))


def counted(jobs: Iterable[Job], now_ms: int) -> list[QueueStatus]:
    """The numbers of some jobs, by queue: of all, or of a part."""
    found: dict[str, QueueStatus] = {}
    for job in jobs:
        if job.queue not in found:
            found[job.queue] = QueueStatus(job.queue)
        found[job.queue].count(job, now_ms)
    return list(found.values())


def statuses(numbers: Iterable[QueueStatus], keyspace: Keyspace) -> list[QueueStatus]:
    """All queues by name, also the empty ones that the keyspace lists; ``numbers``: what ``counted`` gave, of any jobs."""
    family = keyspace.family
    found = {name: QueueStatus(name) for name in family.queues(keyspace)}
    for status in numbers:
        found.setdefault(status.queue, QueueStatus(status.queue)).merge(status)
    consumers = family.consumers(keyspace)
    if consumers is not None:
        for name, status in found.items():
            status.consumers = consumers.get(name, 0)
    paused = family.paused(keyspace)
    if paused is not None:
        for name, status in found.items():
            status.is_paused = name in paused
    return [found[name] for name in sorted(found)]
