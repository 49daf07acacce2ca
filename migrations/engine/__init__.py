"""Engine: the contract of what carries keyspaces (in this process or with Spark), and the values that engines answer with.

An engine only moves data: it scans, groups facts into subjects, calls the pure functions of the families and of plan.py,
and sends commands. What is long (findings, differences) is streamed to a ``report`` callback; what is short is returned.
Callers: the command line and tests. Implementations: local.LocalEngine, and ferryman.spark.engine.SparkEngine.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from attrs import asdict, define, field, frozen

from ...schema.connection.address import Address
from ...schema.job import Counted, Job, State
from ...schema.rule import Finding
from ..drift import Drift
from ..plan import Decision, Plan
from ..queues import QueueStatus

REFUSED_SAMPLES = 20
"""How many refused job ids of one rule a summary names; all of them are reported as findings."""

T = TypeVar("T")

Report = Callable[[T], None]
"""Takes one finding or difference as soon as it is known."""

Progress = Callable[[str, int, int | None], None]
"""Takes (what is being done, how much is done, of how much if known). Called at most once per batch."""


def silent(_phase: str, _done: int, _total: int | None) -> None:
    """A Progress that shows nothing."""


AGES = {"1 minute": 60_000, "1 hour": 3_600_000, "1 day": 86_400_000, "7 days": 604_800_000, "30 days": 2_592_000_000}
"""Steps of age, ms."""
OLDER = "older"
UNDATED = "unknown"


def age_of(created_at: int | None, now_ms: int) -> str:
    """The first step of AGES that a job is younger than, by its creation; OLDER, or UNDATED where nothing tells."""
    if created_at is None:
        return UNDATED
    return next((step for step, ms in AGES.items() if now_ms - created_at < ms), OLDER)


@define
class Census:
    """How many jobs there are. A monoid, so that parts counted apart add up."""

    jobs: int = 0
    by_state: Counter[str] = field(factory=Counter)
    by_queue: Counter[str] = field(factory=Counter)
    by_place: Counter[tuple[str, str]] = field(factory=Counter)
    """By queue and state."""
    oldest: dict[tuple[str, str], int] = field(factory=dict)
    """By queue and state, when the oldest job was created, Unix ms; nothing where no job tells."""
    by_age: Counter[tuple[str, str]] = field(factory=Counter)
    """By state and step of age."""
    passing: int = 0
    """Findings that were gone when they were looked at again, and so were not reported."""
    unconfirmed: int = 0
    """Findings of a live source that were reported as they were first seen."""

    def count(self, job: Job | Counted, now_ms: int | None = None) -> None:
        """Adds one job; its age only if the moment is given."""
        state, place = str(job.state), (job.queue, str(job.state))
        self.jobs += 1
        self.by_state[state] += 1
        self.by_queue[job.queue] += 1
        self.by_place[place] += 1
        if job.created_at is not None:
            self.oldest[place] = min(job.created_at, self.oldest.get(place, job.created_at))
        if now_ms is not None:
            self.by_age[state, age_of(job.created_at, now_ms)] += 1

    def count_created(self, queue: str, state: str, created_at: Sequence[int], now_ms: int, undated: int = 0) -> None:
        """Adds many jobs of one queue and state, by when they were created, Unix ms; and so many of which nothing tells it."""
        place, number = (queue, state), len(created_at) + undated
        if not number:
            return
        self.jobs += number
        self.by_state[state] += number
        self.by_queue[queue] += number
        self.by_place[place] += number
        self._count_age(state, UNDATED, undated)
        times = sorted(created_at)
        if times:
            self.oldest[place] = min(times[0], self.oldest.get(place, times[0]))
        older = len(times)
        for step, ms in AGES.items():
            younger, older = older, bisect_right(times, now_ms - ms, 0, older)
            self._count_age(state, step, younger - older)
        self._count_age(state, OLDER, older)

    def _count_age(self, state: str, step: str, number: int) -> None:
        if number:
            self.by_age[state, step] += number

    def merge(self, other: Census) -> None:
        """Adds what another part counted."""
        self.jobs += other.jobs
        self.by_state.update(other.by_state)
        self.by_queue.update(other.by_queue)
        self.by_place.update(other.by_place)
        self.by_age.update(other.by_age)
        for place, created_at in other.oldest.items():
            self.oldest[place] = min(created_at, self.oldest.get(place, created_at))
        self.passing += other.passing
        self.unconfirmed += other.unconfirmed

    def to_json(self) -> str:
        """A text that ``from_json`` reads: it crosses process borders."""
        fields = asdict(self)
        return json.dumps({name: list(value.items()) if isinstance(value, dict) else value for name, value in fields.items()})

    @classmethod
    def from_json(cls, text: str) -> Census:
        """The census behind ``to_json``."""
        raw = json.loads(text)
        pairs = {name: {(each[0], each[1]): number for each, number in raw[name]} for name in ("by_place", "oldest", "by_age")}
        counters = {name: Counter(dict(raw[name])) for name in ("by_state", "by_queue")}
        counters |= {name: Counter(pairs[name]) for name in ("by_place", "by_age")}
        return cls(**{**raw, **counters, "oldest": pairs["oldest"]})


@define
class Summary:
    """What a migration did. A monoid like Census: Spark tasks each make one, and the driver merges them.

    ``read`` = ``written`` + ``skipped``: a skipped job was refused, or stood at the target already. ``by_state`` and
    ``by_queue`` count the written jobs, by their state at the source.
    """

    read: int = 0
    written: int = 0
    skipped: int = 0
    findings: int = 0
    requeued: int = 0
    """Written jobs that were active at the source and wait at the target."""
    by_state: Counter[str] = field(factory=Counter)
    by_queue: Counter[str] = field(factory=Counter)
    refused: dict[str, list[str]] = field(factory=dict)
    """Rule -> ids of jobs that it kept at the source, the smallest REFUSED_SAMPLES."""
    repeated: bool = False
    """The migration was finished before, and nothing was done."""
    left_behind: dict[str, int] = field(factory=dict)
    """How many keys under the source's prefix belong to no job, by the way their names begin (leftovers.py)."""
    paused: list[str] = field(factory=list)
    """Queues that were paused at the source, sorted. The target's are not: a migration carries no pause."""
    drift: Drift | None = None
    """Whether the source has changed meanwhile; None where it can't (a snapshot) or was not read by this run."""
    seconds: float = 0.0

    def count(self, decision: Decision, *, written: bool, jobs: int = 1) -> None:
        """Adds one subject. ``written``: this run sends it (or, in a dry run, would send it).

        ``jobs``: so many of this queue and state, without findings, of which ``decision`` is about one.
        """
        self.findings += len(decision.findings)
        if decision.original is None:
            return
        self.read += jobs
        if decision.refused:
            for rule in {finding.rule for finding in decision.findings}:
                self._refuse(rule, [decision.original.id])
        if not written:
            self.skipped += jobs
            return
        self.written += jobs
        self.requeued += jobs * (decision.original.state is State.ACTIVE)
        self.by_state[str(decision.original.state)] += jobs
        self.by_queue[decision.original.queue] += jobs

    def merge(self, other: Summary) -> None:
        """Adds what another part did. Seconds are the caller's business."""
        self.read += other.read
        self.written += other.written
        self.skipped += other.skipped
        self.findings += other.findings
        self.requeued += other.requeued
        self.by_state.update(other.by_state)
        self.by_queue.update(other.by_queue)
        for rule, ids in other.refused.items():
            self._refuse(rule, ids)
        for group, number in other.left_behind.items():
            self.left_behind[group] = self.left_behind.get(group, 0) + number
        self.paused = sorted({*self.paused, *other.paused})

    def _refuse(self, rule: str, ids: list[str]) -> None:
        samples = sorted({*self.refused.get(rule, ()), *ids})
        self.refused[rule] = samples[:REFUSED_SAMPLES]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ``from_dict`` reads it."""
        return {
            "read": self.read,
            "written": self.written,
            "skipped": self.skipped,
            "findings": self.findings,
            "requeued": self.requeued,
            "by_state": dict(sorted(self.by_state.items())),
            "by_queue": dict(sorted(self.by_queue.items())),
            "refused": dict(sorted(self.refused.items())),
            "repeated": self.repeated,
            "left_behind": self.left_behind,
            "paused": self.paused,
            "drift": self.drift and self.drift.to_dict(),
            "seconds": round(self.seconds, 3),
        }

    def again(self) -> Summary:
        """The summary of a second run of this finished migration: everything is skipped."""
        return Summary(
            read=self.read,
            skipped=self.read,
            refused=self.refused,
            repeated=True,
            left_behind=self.left_behind,
            paused=self.paused,
            drift=self.drift,
        )

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Summary:
        """The summary behind ``to_dict``."""
        drift = raw.get("drift") and Drift.from_dict(raw["drift"])
        return cls(**{**raw, "by_state": Counter(raw["by_state"]), "by_queue": Counter(raw["by_queue"]), "drift": drift})


@frozen
class Difference:
    """One thing in which the target is not what the plan promises.

    ``field`` is a canonical field, or one of ``missing`` (the target lacks the job), ``unexpected`` (the target has a job that
    it should not have) and ``order`` (a queue's waiting jobs would run in another order).
    """

    job_id: str
    queue: str
    field: str
    source: str | None
    """What was promised, shortened to one line."""
    target: str | None
    """What stands there, shortened to one line."""


@define
class Verification:
    """The outcome of a comparison. The target is right when ``differences`` is 0."""

    source_jobs: int = 0
    target_jobs: int = 0
    matched: int = 0
    differences: int = 0
    refused: int = 0
    """Jobs of the source that the plan keeps there; they must not stand at the target."""
    by_field: Counter[str] = field(factory=Counter)
    """How many differences of each kind."""
    seconds: float = 0.0

    def count(self, difference: Difference) -> None:
        """Adds one difference."""
        self.differences += 1
        self.by_field[difference.field] += 1


class Engine(Protocol):
    """What carries keyspaces. Every method raises ServerError naming the address when a server fails, and
    KeyspaceNotFound when the source has no key of its family."""

    name: str
    """The word for ``--engine``."""

    def audit(self, source: Address, now_ms: int, report: Report[Finding], progress: Progress = silent) -> Census:
        """Runs every rule of the family on every job and on the whole keyspace.

        What is found of a job of a live source is looked at again, and reported if it still holds: see recheck.py.
        """

    def migrate(
        self,
        source: Address,
        target: Address,
        plan: Plan,
        report: Report[Finding],
        progress: Progress = silent,
        *,
        dry_run: bool = False,
        resume: bool = False,
    ) -> Summary:
        """Writes every job that ``plan`` carries to the target. Raises MigrationError when the journal or the target forbid it.

        ``dry_run`` reads and counts the same and writes nothing. ``resume`` goes on with an unfinished migration.
        """

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """Compares the target with what ``plan`` promises for the source."""

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """The jobs of a keyspace by queue, then state; waiting jobs in pop order, others by id."""

    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """Every queue of a keyspace with its numbers, by name."""
