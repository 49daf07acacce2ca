"""The rules of bee keyspaces about the sorted sets in which a job stands, and those in which it should.

The status is right and the sets are wrong wherever they contradict each other. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show, span
from ... import lua_json
from ...numbers import score_to_int
from ...rulebook import Rulebook, keys_of
from ..keys import EARLIEST_TIME, layout
from ..view import View, view_of

OVERDUE_MS = 5_000
"""Workers look for what is over every second; what is older than this, nobody looks at."""

AHEAD_MS = 1_000
"""Clocks of the machines that put jobs into queues may be ahead by so much."""

MEMBERS = {
    "queue": ("queued",),
    "delayed": ("new", "retried"),
    "locks": ("running",),
    "expires": ("completed", "failed", "expired"),
}
"""The status words of the jobs that may stand in the sets of each role."""

book: Rulebook[View] = Rulebook(view_of)


def set_key(view: View, keyspace: Keyspace, role: str) -> str:
    """The set of this role of the job's own queue, for a message."""
    return show(layout(keyspace.prefix).key(role, queue=view.queue))


@book.about_jobs("BEE-5", "A queued job is in its queue", Severity.ERROR, Harm.LOST, repair="put the job back into its queue")
def is_in_queue(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status == "queued" and "queue" not in view.by_role:
        yield view.violation(f"missing in {set_key(view, keyspace, 'queue')}: never handed out")


@book.about_jobs(
    "BEE-6",
    "A new job is delayed or waits for others; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    repair="put the job back among the delayed ones, if its history says until when",
    refuses=True,
)
def new_is_somewhere(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status == "new" and view.is_lost:
        detail = f"missing in {set_key(view, keyspace, 'delayed')}, and waits for nothing: it never runs"
        yield view.violation(f"{detail}; its creation or release was cut short")


@book.about_jobs(
    "BEE-7",
    "A job that is to be tried again is delayed; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    repair="put the job back among the delayed ones, if its history says until when",
    refuses=True,
)
def retried_is_delayed(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status == "retried" and view.is_lost:
        yield view.violation(f"missing in {set_key(view, keyspace, 'delayed')}: never tried again")


@book.about_jobs(
    "BEE-9",
    "A finished job is to expire",
    Severity.ERROR,
    Harm.LEAK,
    repair="let the job expire after its ttl",
)
def finished_expires(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status in ("completed", "failed") and "expires" not in view.by_role and not view.is_dying:
        detail = f"missing in {set_key(view, keyspace, 'expires')}: it stays for ever"
        yield view.violation(f"{detail}, and who waits for it may not have been told")


@book.about_jobs(
    "BEE-10",
    "A canceled or expired job has a time to live, and stands in no set",
    Severity.ERROR,
    Harm.POISON,
    repair="take the job out of the sets and give its record a time to live",
)
def ended_early_dies(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_ended_early:
        return
    wrong = [] if view.is_dying else ["its record has no time to live"]
    if view.places:
        wrong.append(f"still in {keys_of(view.places)}")
    if wrong:
        again = ": every second the expiry of its queue starts over" if "expires" in view.by_role and not view.is_dying else ""
        yield view.violation(f"{view.status}, but {' and '.join(wrong)}{again}")


def _misplaced(view: View, roles: Iterable[str], cost: str) -> Iterator[Violation]:
    """Members of sets that no job of this status, or of this queue, may be in."""
    for role in roles:
        for fact in view.in_set(role):
            if not view.is_job:
                found = "a ghost stands" if view.record is not None else "a job without record stands"
                yield view.violation(f"{found} in {show(fact.key)}: {cost}", key=fact.key)
            elif view.is_ended_early:
                continue
            elif view.status not in MEMBERS[role]:
                yield view.violation(f"status {show(view.status, 40)!r}, but also in {show(fact.key)}", key=fact.key)
            elif fact.queue != view.queue:
                yield view.violation(f"a job of queue {show(view.queue)!r} stands in {show(fact.key)}", key=fact.key)


@book.about_jobs(
    "BEE-11",
    "Only queued jobs are in their queue, and only new and retried ones are delayed",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the sets where it must not be",
)
def waits_rightly(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    yield from _misplaced(view, ("queue",), "the worker that takes it drops the rest of its batch")
    yield from _misplaced(view, ("delayed",), "the pop that promotes it aborts")


@book.about_jobs(
    "BEE-12",
    "Only running jobs are locked",
    Severity.ERROR,
    Harm.POISON,
    repair="remove the lock",
)
def locked_rightly(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    yield from _misplaced(view, ("locks",), "once it is due no lock of the queue runs out any more")


@book.about_jobs(
    "BEE-13",
    "Only finished jobs are to expire, and none is overdue",
    Severity.ERROR,
    Harm.POISON,
    repair="take a job that is not finished out of the set",
)
def expires_rightly(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    yield from _misplaced(view, ("expires",), "once it is due nothing of the queue expires any more")
    if view.status not in ("completed", "failed"):
        return
    fact = view.by_role.get("expires")
    if fact is not None and (fact.score or 0) < keyspace.now_ms - OVERDUE_MS:
        detail = f"should have expired {ago(fact.score or 0, keyspace.now_ms)}: expiry is stuck, or nobody serves the queue"
        yield view.violation(detail, key=fact.key, severity=Severity.WARNING)


@book.about_jobs(
    "BEE-14",
    "A job stands in one sorted set",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the sets that contradict its status",
)
def is_in_one_place(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if len({fact.key for fact in view.places}) > 1 and not view.is_ended_early:
        yield view.violation(f"stands in {keys_of(view.places)}")


@book.about_jobs("BEE-31", "Scores are times, and no job waits for a time to come", Severity.WARNING, Harm.LATE)
def scores_are_times(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        score = fact.score or 0.0
        if score < EARLIEST_TIME:
            yield view.violation(f"score {score:g} in {show(fact.key)} is no time", key=fact.key)
        elif fact.role == "queue" and score > keyspace.now_ms + AHEAD_MS:
            priority = lua_json.numeric((view.options or {}).get("priority", 0))
            if priority is None or priority >= 0:
                ahead = span(score - keyspace.now_ms)
                yield view.violation(f"score {ahead} ahead of the clock: later jobs overtake it", key=fact.key)


@book.about_jobs(
    "BEE-35",
    "A delayed job says until when; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
    assumes="due at once",
)
def has_due_time(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    score = view.stored.scores.get("delayed")
    if view.state is State.SCHEDULED and score_to_int(score) is None:
        yield view.violation(f"delayed until {score!r}, which is no time: when it is due is lost")
