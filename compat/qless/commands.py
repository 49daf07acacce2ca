"""What qless can besides running jobs: dependencies, recurring jobs, tags, throttles, settings, and answers about everything.

Builds calls and never sends them, as ``live.py``. Called by ``client.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from attrs import frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.native.scripts.results import Removed, Role
from ...schema.text import to_bytes, to_text
from ..live import texts
from . import answers
from .answers import QlessJob, QueueCounts, RecurringJob, Statistics, Throttle, WorkerCounts
from .live import QlessLive, check_data, name_list, number, roles

T = TypeVar("T")

Listed = Literal["waiting", "running", "stalled", "scheduled", "depends", "throttled", "recurring", "complete"]

RECURRING_FIELDS = frozenset({"priority", "interval", "retries", "data", "klass", "queue", "backlog"})


@frozen
class QlessCommands:
    """The calls of one keyspace. ``now`` as in ``live.py``."""

    live: QlessLive

    def _key(self, name: str) -> bytes:
        return to_bytes(f"{self.live.prefix}:{name}")

    def _about(self, script: str, job_id: str, args: Sequence[Argument], parse: Any, now: int | None = None) -> Call[Any]:
        return self.live.call(script, f"job {job_id!r}", now, (to_bytes(job_id), *args), parse)

    # Jobs

    def get(self, ids: Sequence[str]) -> Call[tuple[QlessJob | None, ...]]:
        """Jobs by their ids, None for those that there are not."""
        return self.live.call("get", "jobs", None, tuple(map(to_bytes, ids)), lambda reply: tuple(map(answers.job, reply)))

    def peek(self, queue: str, n: int, *, now: int | None = None) -> Call[tuple[str, ...]]:
        """The ids of the jobs that run next."""
        return self.live.on_queue("peek", queue, now, (n,), texts)

    def listed(self, queue: str, state: Listed, first: int, n: int, *, now: int | None = None) -> Call[tuple[str, ...]]:
        """The ids of jobs in a state."""
        if state not in get_args(Listed):
            raise UsageError(f"state {state!r} must be one of {', '.join(get_args(Listed))}")
        return self.live.on_queue("list", queue, now, (state, first, n), texts)

    def cancel(
        self, ids: Sequence[str], *, queue: str = "", only: Role | Literal["any"] | None = "any", now: int | None = None
    ) -> Call[tuple[Removed | None, ...]]:
        """Cancels jobs; those with ``only`` None but running ones, with ``any`` these too, whose workers are told.

        Raises UsageError if others wait for one of them.
        """
        return self.live.call("remove", "jobs", now, (to_bytes(queue), only or "", "", *map(to_bytes, ids)), roles)

    def timeout(self, job_id: str, *, now: int | None = None) -> Call[bool]:
        """Takes a job from its worker."""
        return self._about("timeout", job_id, (), bool, now)

    def depends(
        self, job_id: str, change: Literal["on", "off", "none"], others: Collection[str] = (), *, now: int | None = None
    ) -> Call[bool]:
        """Changes what a job waits for. False: it waits for nothing."""
        return self._about("depends", job_id, (change, *map(to_bytes, others)), bool, now)

    def set_priority(self, job_id: str, priority: float) -> Call[bool]:
        """Gives a job another priority."""
        return self._about("priority", job_id, (number(priority, "priority"),), bool)

    def change_tags(
        self, job_id: str, change: Literal["add", "remove"], tags: Collection[str], *, now: int | None = None
    ) -> Call[tuple[str, ...] | None]:
        """Gives a job tags, or takes some: all that it has then. None: there is no such job."""
        args = (change, *map(to_bytes, tags))
        return self._about("change_tags", job_id, args, lambda reply: texts(reply[1]) if reply[0] else None, now)

    def track(self, job_id: str, *, is_watched: bool = True, now: int | None = None) -> Call[bool]:
        """Has what happens to a job published under its id, or not any more. False: there is no such job."""
        return self._about("track", job_id, ("track" if is_watched else "untrack",), bool, now)

    def log(self, job_id: str, line: str, data: bytes | None = None, *, now: int | None = None) -> Call[bool]:
        """Adds a line to a job's history."""
        return self._about("log", job_id, (to_bytes(line), data or b""), bool, now)

    def unfail(self, group: str, queue: str, n: int, *, now: int | None = None) -> Call[int]:
        """Puts failed jobs of a group into a queue, the oldest first."""
        return self.live.call("unfail", f"group {group!r}", now, (to_bytes(queue), to_bytes(group), n), int)

    # Recurring jobs

    def recur(
        self,
        queue: str,
        job_id: str,
        klass: str,
        data: bytes,
        interval: float,
        *,
        offset: float = 0,
        priority: float = 0,
        tags: Collection[str] = (),
        retries: int = 5,
        backlog: int = 0,
        throttles: Collection[str] = (),
        now: int | None = None,
    ) -> Call[str]:
        """Makes a job every ``interval`` seconds, the first one in ``offset`` seconds. ``backlog``: how many are made up for."""
        if not interval >= 1:
            raise UsageError(f"interval {interval!r} must be 1 s or more")
        args = (
            to_bytes(queue),
            to_bytes(job_id),
            to_bytes(klass),
            check_data(data),
            number(interval, "interval"),
            number(offset, "offset"),
            number(priority, "priority"),
            name_list(tags, "tags"),
            retries,
            backlog,
            name_list(throttles, "throttles"),
        )
        return self.live.call("recur", f"queue {queue!r}", now, args, to_text)

    def recurring(self, job_id: str) -> Call[RecurringJob | None]:
        """A recurring job."""
        return self._about("recurring", job_id, (), answers.recurring)

    def update_recurring(self, job_id: str, changes: Mapping[str, Any], *, now: int | None = None) -> Call[bool]:
        """Changes fields of a recurring job; ``data`` is JSON text. False: there is none."""
        unknown = changes.keys() - RECURRING_FIELDS
        if unknown or not changes:
            raise UsageError(f"a recurring job has {', '.join(sorted(RECURRING_FIELDS))} to change")
        args = [part for name, value in changes.items() for part in (name, to_bytes(value) if isinstance(value, str) else value)]
        return self._about("update_recurring", job_id, args, bool, now)

    def unrecur(self, job_id: str) -> Call[bool]:
        """Ends a recurring job; what it has made stays."""
        return self._about("update_recurring", job_id, (), bool)

    # Queues, workers, everything

    def counts(self, queues: Sequence[str] = (), *, now: int | None = None) -> Call[tuple[QueueCounts, ...]]:
        """How many jobs queues have in each state; none named: all queues."""
        return self.live.call("counts", "queues", now, tuple(map(to_bytes, queues)), answers.counts)

    def statistics(self, queue: str, at: float) -> Call[Statistics]:
        """How a queue did on the day (UTC) of a moment, Unix s."""
        args = (to_bytes(queue), number(at, "day"))
        return self.live.call("statistics", f"queue {queue!r}", None, args, answers.statistics)

    def pause(self, queues: Sequence[str]) -> Command[int]:
        """No job of these queues begins."""
        return Command(("SADD", self._key("paused_queues"), *map(to_bytes, queues)), int)

    def unpause(self, queues: Sequence[str]) -> Command[int]:
        """They begin again."""
        return Command(("SREM", self._key("paused_queues"), *map(to_bytes, queues)), int)

    def forget_queues(self, queues: Sequence[str]) -> Command[int]:
        """Strikes queues off the list, with whatever is in them."""
        return Command(("ZREM", self._key("queues"), *map(to_bytes, queues)), int)

    def workers(self, *, now: int | None = None) -> Call[tuple[WorkerCounts, ...]]:
        """Who has popped of late."""
        return self.live.call("workers", "workers", now, (), answers.workers)

    def deregister(self, names: Sequence[str]) -> Command[int]:
        """Strikes workers off the list."""
        return Command(("ZREM", self._key("workers"), *map(to_bytes, names)), int)

    def failed_groups(self) -> Call[dict[str, int]]:
        """How many jobs have failed, by group."""
        return self.live.call("failed", "failures", None, (), _counted)

    def failed(self, group: str, first: int, n: int) -> Call[tuple[str, ...]]:
        """The ids of jobs that failed in a group, the last one first."""
        return self.live.call("failed", f"group {group!r}", None, (to_bytes(group), first, n), texts)

    def tagged(self, tag: str) -> Command[tuple[str, ...]]:
        """The ids of the jobs of a tag, in the order in which they got it."""
        return Command(("ZRANGE", self._key(f"t:{tag}"), 0, -1), texts)

    def top_tags(self, first: int, n: int) -> Command[tuple[str, ...]]:
        """The tags that most jobs have."""
        return Command(("ZREVRANGE", self._key("tags"), first, first + n - 1), texts)

    def tracked(self) -> Command[tuple[str, ...]]:
        """The ids of the jobs that are watched, also of those that there are not any more."""
        return Command(("ZRANGE", self._key("tracked"), 0, -1), texts)

    # Settings

    def config(self) -> Command[dict[str, str]]:
        """The options that are set."""
        return Command(("HGETALL", self._key("config")), _options)

    def set_config(self, option: str, value: str | None) -> Call[bool]:
        """Sets an option; None: back to its default."""
        args = (to_bytes(option),) if value is None else (to_bytes(option), to_bytes(value))
        return self.live.call("set_config", "config", None, args, bool)

    def throttle(self, name: str) -> Call[Throttle]:
        """A throttle of reqless; that of a queue is ``ql:q:<queue>``."""
        return self.live.call(
            "throttle", f"throttle {name!r}", None, (to_bytes(name),), lambda reply: answers.throttle(name, reply)
        )

    def set_throttle(self, name: str, maximum: int | None, ttl: int = 0) -> Call[bool]:
        """How many jobs may hold a throttle at once, for ``ttl`` seconds (0: for ever); None forgets that."""
        args = (to_bytes(name), "" if maximum is None else maximum, ttl)
        return self.live.call("set_throttle", f"throttle {name!r}", None, args, bool)


DEFAULTS: Mapping[str, str] = {
    "application": "qless",
    "heartbeat": "60",
    "grace-period": "10",
    "stats-history": "30",
    "histogram-history": "7",
    "jobs-history-count": "50000",
    "jobs-history": "604800",
}
"""What qless tells of options that nobody has set."""


def _counted(reply: Any) -> dict[str, int]:
    return {to_text(group): number for group, number in zip(reply[::2], reply[1::2], strict=True)}


def _options(reply: Any) -> dict[str, str]:
    fields = reply if isinstance(reply, dict) else answers.pairs(reply)
    return {to_text(name): to_text(value) for name, value in fields.items()}
