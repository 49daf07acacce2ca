"""The rules of bee keyspaces about running jobs and the workers that hold them. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show
from ...numbers import parse_int
from ...rulebook import Rulebook
from ..keys import layout
from ..view import View, view_of
from ..workers import is_alive
from .placement import OVERDUE_MS, set_key

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "BEE-8",
    "A running job is locked, and its worker knows that it holds it",
    Severity.ERROR,
    Harm.LOST,
    repair="add the lock, so that the job comes back when its worker does not renew it",
)
def running_is_held(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status != "running":
        return
    if "locks" not in view.by_role:
        yield view.violation(f"missing in {set_key(view, keyspace, 'locks')}: nothing ever brings it back")
    elif all(fact.label != view.worker for fact in view.held):
        key = layout(keyspace.prefix).key("held", worker=view.worker)
        detail = f"missing in {show(key)}: its lock is not renewed, and it will be taken from a live worker"
        yield view.violation(detail, severity=Severity.WARNING)


@book.about_jobs(
    "BEE-15",
    "A worker holds only jobs that it runs",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the worker's set",
)
def held_is_running(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.held:
        if view.status != "running" or fact.label != view.worker:
            found = f"status {show(view.status, 40)!r}" if view.is_job else "there is no record"
            if view.status == "running":
                found = f"it runs on {show(view.worker)!r}"
            worker = show(fact.label or "")
            yield view.violation(f"worker {worker!r} holds it, but {found}: the next heartbeat locks it anew", key=fact.key)


@book.about_jobs(
    "BEE-16",
    "The worker of a running job is alive",
    Severity.WARNING,
    Harm.DUPLICATE,
    repair="if that worker is dead, any live one of the queue brings the job back within 3 minutes; or let it wait (--worker)",
)
def worker_is_alive(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.status == "running" and "locks" in view.by_role and not is_alive(keyspace, view.queue, view.worker):
        yield view.violation(f"worker {show(view.worker)!r} has not been heard of for a minute")


@book.about_jobs(
    "BEE-17",
    "No lock has run out",
    Severity.WARNING,
    Harm.LATE,
    repair="start a worker of the queue: it brings the jobs back; or let them wait (--older-than or --worker)",
)
def lock_is_renewed(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    fact = view.by_role.get("locks")
    if view.status == "running" and fact is not None and (fact.score or 0) < keyspace.now_ms - OVERDUE_MS:
        over = ago(fact.score or 0, keyspace.now_ms)
        yield view.violation(f"its lock ran out {over}, and nobody who serves the queue has seen it", key=fact.key)


@book.about_jobs(
    "BEE-18",
    "No lock has run out and been waited for",
    Severity.WARNING,
    Harm.LATE,
    repair="delete the counter, if it does not count any more",
)
def no_lock_was_waited_for(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.waits:
        count = parse_int(fact.values[0])
        if view.status == "running" and fact.label == view.worker and count in (1, 2, 3):
            yield view.violation(f"its lock has run out {count} of 4 times: its worker may be dead", key=fact.key)
        elif fact.ttl_ms is None:
            yield view.violation("a counter of expired locks that nobody needs, and that never goes away", key=fact.key)
        else:
            yield view.violation("a counter of expired locks that nobody needs", key=fact.key, severity=Severity.INFO)
