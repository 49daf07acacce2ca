"""The rules of qless keyspaces about what ties jobs to each other, to workers, tags and throttles.

Of the jobs that it waits for, a job knows what they answer (``reader.back_references``). A circle is seen if it has at most three
jobs; longer ones can't be told from what any single job knows. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ...rulebook import Rulebook
from ..keys import Generation, era_of, own_throttle
from ..record import RUNNING
from ..view import GONE, View, view_of

DEPENDENCIES = "Dependencies belong to a job that exists and waits, and none leads back to it"

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "QLESS-13",
    "A running job is in the set of its worker",
    Severity.WARNING,
    Harm.LATE,
    repair="add the job to the set of its worker",
)
def is_held_by_its_worker(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_early or view.word not in RUNNING or view.has_grace or not view.where("locks"):
        return
    worker = to_text(view.fields.get(b"worker", b""))
    if worker not in view.held:
        yield view.violation(f"runs, but is not in the set of its worker {show(worker, 60)!r}")


@book.about_jobs(
    "QLESS-14",
    "A worker's set holds only jobs that it runs (normal after a timeout by hand)",
    Severity.WARNING,
    Harm.LEAK,
    repair="remove the job from the set",
)
def worker_holds_it(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for worker, fact in view.held.items():
        if view.word not in RUNNING or worker != to_text(view.fields.get(b"worker", b"")):
            now = show(view.word, 40) if view.record is not None else "gone"
            yield view.violation(f"in the set of worker {show(worker, 60)!r}, but {now}", key=fact.key)


@book.about_jobs(
    "QLESS-19",
    "A job's tags and the sets of the tags agree",
    Severity.WARNING,
    Harm.LEAK,
    repair="make the sets of the tags agree with the job",
)
def tags_agree(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    tags = view.stored.tags
    for tag, fact in view.tagged.items():
        if view.record is None:
            yield view.violation(f"in the set of tag {show(tag, 60)!r} without a hash", key=fact.key)
        elif tags is not None and tag not in tags:
            yield view.violation(f"in the set of tag {show(tag, 60)!r}, which the job has not", key=fact.key)
    # Sets of tags came some weeks after tags.
    if view.is_job and not view.is_early:
        for tag in dict.fromkeys(tags or ()):
            if tag not in view.tagged:
                yield view.violation(f"tagged {show(tag, 60)!r}, but not in the set of that tag")


@book.about_jobs(
    "QLESS-21",
    "A job waits only for jobs that exist, have yet to complete, and will release it",
    Severity.ERROR,
    Harm.LOST,
    repair="let the other job release it; take a dependency away that is complete, and queue the job if it was the last one",
)
def dependencies_end(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job:
        return
    for other, reply in view.replies.items():
        if other in view.dependencies:
            word, releases, *_ = reply.values
            name = repr(show(other, 60))
            if word == GONE:
                yield view.violation(f"waits for {name}, which does not exist", key=view.dependencies[other].key)
            elif word == b"complete":
                yield view.violation(f"waits for {name}, which is complete", key=reply.key)
            elif releases != b"1":
                yield view.violation(f"waits for {name}, which will not release it", key=reply.key)
    for other, fact in view.releasing_it.items():
        if other not in view.dependencies:
            yield view.violation(f"will be released by {show(other, 60)!r}, for which it does not wait", key=fact.key)


@book.about_jobs(
    "QLESS-22",
    DEPENDENCIES,
    Severity.WARNING,
    Harm.LEAK,
    repair="delete the set",
)
def dependencies_have_a_job(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None:
        for name, edges in (("dependents", view.dependents), ("dependencies", view.dependencies)):
            if edges:
                fact = next(iter(edges.values()))
                yield view.violation(f"{len(edges)} {name} of a job that does not exist", key=fact.key)
    elif view.dependencies and view.word != "depends":
        fact = next(iter(view.dependencies.values()))
        yield view.violation(f"{show(view.word, 40)}, but names jobs that it depends on", key=fact.key)


@book.about_jobs("QLESS-22", DEPENDENCIES, Severity.ERROR, Harm.LOST)
def no_circle(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for other in view.dependencies:
        reply = view.replies.get(other)
        next_ones = () if reply is None else map(to_text, reply.values[2:])
        if other == view.job_id or not {other, *next_ones}.isdisjoint(view.waiting_for_it):
            yield view.violation(f"waits for itself through {show(other, 60)!r}: never runs")


@book.about_jobs(
    "QLESS-28",
    "Every tracked job exists (normal after cancels)",
    Severity.WARNING,
    Harm.LEAK,
    repair="take the job off the tracked ones",
)
def tracked_exists(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None and view.tracked is not None:
        yield view.violation("tracked, but cancelled or expired", key=view.tracked.key)


# Throttles of reqless


@book.about_jobs(
    "QLESS-32",
    "A throttle's slot is held only by a running job that needs it",
    Severity.ERROR,
    Harm.LATE,
    repair="give the slot back",
)
def slot_is_in_use(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for throttle, fact in view.slots.items():
        needed = view.stored.throttles or ()
        if view.record is None or view.word not in RUNNING or throttle not in needed:
            now = show(view.word, 40) if view.record is not None else "gone"
            detail = f"holds a slot of throttle {show(throttle, 60)!r}, but is {now}"
            yield view.violation(detail + ("" if throttle in needed else " and does not need it"), key=fact.key)


@book.about_jobs(
    "QLESS-33",
    "A running job holds a slot of every throttle that it needs",
    Severity.WARNING,
    Harm.DUPLICATE,
    repair="take the slots for the job",
)
def holds_its_slots(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.word not in RUNNING or era_of(keyspace).generation < Generation.REQLESS:
        return
    if b"throttles" not in view.fields:
        own = own_throttle(keyspace.prefix, view.queue)
        yield view.violation(f"runs without throttles, put by an older client: not even counted in {show(own, 60)!r}")
    missing = [show(throttle, 60) for throttle in dict.fromkeys(view.stored.throttles or ()) if throttle not in view.slots]
    if missing:
        yield view.violation(f"runs without a slot of throttle {', '.join(missing)}")


@book.about_jobs(
    "QLESS-34",
    "A throttled job waits in its queue's zset and for exactly one throttle",
    Severity.ERROR,
    Harm.LOST,
    repair="put the job into its queue, where the next pop throttles it anew; remove one that is gone",
)
def throttled_is_pending(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    throttled = view.where("throttled")
    if view.record is None:
        if view.pending:
            key = next(iter(view.pending.values())).key
            yield view.violation(f"waits for throttle {_throttles(view)} without a hash: the release fails there", key=key)
    elif throttled and (view.word != "throttled" or len(view.pending) != 1):
        detail = f"pending for {_throttles(view)}" if view.pending else "pending for no throttle"
        yield view.violation(f"{show(view.word, 40)}, in {show(throttled[0].key)}, and {detail}", key=throttled[0].key)
    elif view.pending and not throttled:
        key = next(iter(view.pending.values())).key
        yield view.violation(f"pending for throttle {_throttles(view)}, but not throttled in its queue", key=key)


def _throttles(view: View) -> str:
    return ", ".join(repr(show(throttle, 60)) for throttle in view.pending)
