"""The rules of qless keyspaces about a job and the places where it stands.

The hash is right and the places are wrong wherever they contradict each other. What the software of the first weeks left
behind as a matter of course weighs less. Collected by the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....schema.fact import Fact
from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show, span, to_text
from ...numbers import parse_number
from ...rulebook import Rulebook, keys_of
from ..keys import INDEXES, RECENT_S, Generation, era_of
from ..record import RUNNING, milliseconds
from ..view import View, view_of

WAITING = frozenset({"waiting", "stalled", "throttled"})

DEFAULT_HEARTBEAT_S = 60
SLACK_S = 3600
"""Clocks of workers may differ; by more than an hour is trouble."""

book: Rulebook[View] = Rulebook(view_of)


def in_queues(view: View) -> list[Fact]:
    """The job's places in the zsets of queues."""
    return [fact for fact in view.places if fact.role in INDEXES]


def _weight(view: View) -> Severity | None:
    """Of leftovers that were no accident in the first weeks."""
    return Severity.WARNING if view.is_early else None


@book.about_jobs(
    "QLESS-1",
    "Every job in a queue has its hash",
    Severity.ERROR,
    Harm.LOST,
    repair="remove the job from the queues: what it was to do is gone",
)
def has_hash(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    places = in_queues(view)
    if view.record is None and places:
        cost = {"work": "each pop fails there", "locks": "each pop fails there", "scheduled": "it becomes a stub when due"}
        harm = next((cost[fact.role] for fact in places if fact.role in cost), "its data is gone")
        yield view.violation(f"stands in {keys_of(places)} without a hash: {harm}", key=places[0].key, queue=places[0].queue)


@book.about_jobs(
    "QLESS-3",
    "A waiting job stands in its queue",
    Severity.ERROR,
    Harm.LOST,
    repair="put the job into its queue's zset, with its priority and the time when it was put",
)
def waits_somewhere(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.word in WAITING and not any(map(view.where, ("work", "scheduled", "throttled"))):
        yield view.violation(f"{view.word}, but in no zset of a queue: never popped")


@book.about_jobs(
    "QLESS-4",
    "A scheduled job stands among the scheduled ones of its queue, with the time when it is due; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
    assumes="due at once, or at the end of 9999 where its score is later than any date",
)
def is_scheduled_somewhere(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.state is not State.SCHEDULED:
        return
    due = view.stored.scores.get("scheduled")
    if due is None:
        yield view.violation("scheduled, but in no zset of scheduled jobs: when it is due is lost")
    elif milliseconds(due) is None:
        yield view.violation(f"scheduled for {due!r}, which is no time: when it is due is lost")


@book.about_jobs(
    "QLESS-5",
    "A running job has a lock",
    Severity.ERROR,
    Harm.LOST,
    repair="give the job a lock that is over, so that the next pop treats it as lost",
)
def has_lock(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.word in RUNNING and not view.where("locks"):
        yield view.violation("running without a lock: should its worker be gone, nobody notices")


@book.about_jobs(
    "QLESS-6",
    "A job that depends on others stands among those of its queue, and names them",
    Severity.ERROR,
    Harm.LOST,
    repair="put the job among those that depend on others, or into its queue if it waits for nobody",
)
def depends_on_somebody(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.word == "depends":
        if not view.dependencies:
            yield view.violation("depends on others, but names none: nothing will release it")
        if not view.where("depends"):
            yield view.violation("depends on others, but is not in its queue's zset of such jobs")


@book.about_jobs(
    "QLESS-7",
    "A failed job is listed once under its group, and stands in no queue",
    Severity.ERROR,
    Harm.LEAK,
    repair="list the job once under its group and take it out of the queues",
)
def is_listed_as_failed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.word != "failed":
        return
    group = view.stored.group
    listed = sum(fact.label == group for fact in view.where("failed"))
    if group is not None and listed != 1:
        yield view.violation(f"failed, and listed {listed} times under its group {show(group, 60)!r}")
    if in_queues(view):
        yield view.violation(f"failed, but in {keys_of(in_queues(view))} too")


@book.about_jobs(
    "QLESS-8",
    "A completed job is among the completed ones, and in no queue",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the queues, and put it among the completed ones",
)
def is_completed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.word != "complete":
        return
    if in_queues(view):
        yield view.violation(f"complete, but in {keys_of(in_queues(view))}: it will run again", key=in_queues(view)[0].key)
    if not view.where("completed"):
        yield view.violation("complete, but not among the completed ones: it never expires", severity=Severity.WARNING)


@book.about_jobs(
    "QLESS-9",
    "A job stands in one place only",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="leave the job only in the place that its state means",
)
def is_in_one_place(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    keys = {fact.key for fact in view.places}
    if len(keys) > 1:
        yield view.violation(f"in {len(keys)} places: {keys_of(view.places)}", severity=_weight(view))


@book.about_jobs(
    "QLESS-10",
    "A job stands in the queue that its hash names",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="move the job to the queue that its hash names",
)
def is_in_its_queue(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    queue = to_text(view.fields.get(b"queue", b""))
    for fact in in_queues(view) if view.is_job else ():
        if fact.queue != queue:
            detail = f"in {show(fact.key)}, but its hash says queue {show(queue, 60)!r}"
            yield view.violation(detail, key=fact.key, queue=fact.queue, severity=_weight(view))


@book.about_jobs(
    "QLESS-11",
    "The lock is over when the hash says",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="write the time of the lock into the hash",
)
def lock_is_as_said(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.has_grace:
        return
    raw = view.fields.get(b"expires", b"")
    expires = parse_number(raw)
    for fact in view.where("locks"):
        if expires is None or fact.score != float(expires):
            yield view.violation(f"the lock is over at {fact.score!r}, the hash says {show(raw, 40)!r}", key=fact.key)


@book.about_jobs(
    "QLESS-12",
    "No running job's lock is over",
    Severity.WARNING,
    Harm.LATE,
    repair="run any worker on the queue: its next pop hands the job on; or time it out (--older-than or --worker)",
)
def lock_is_not_over(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.where("locks") if view.is_job and view.word in RUNNING else ():
        if fact.score is not None and fact.score * 1000 <= keyspace.now_ms:
            over = ago(fact.score * 1000, keyspace.now_ms)
            detail = " after the courtesy to its worker" if view.has_grace else ""
            yield view.violation(f"the lock was over {over}{detail}, and nobody has popped since", key=fact.key)


@book.about_jobs(
    "QLESS-36",
    "No lock and no put lies far in the future",
    Severity.WARNING,
    Harm.LATE,
)
def is_not_from_the_future(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    now = keyspace.now_ms / 1000
    maxima = keyspace.totals.maxima
    # In the first weeks each pop and heartbeat said itself how long it would take.
    for fact in () if view.is_early else view.where("locks"):
        general = maxima.get(("heartbeat", "heartbeat"), DEFAULT_HEARTBEAT_S)
        beat = maxima.get(("heartbeat", f"{fact.queue}-heartbeat"), general)
        if fact.score is not None and fact.score > now + beat + SLACK_S:
            late = span((fact.score - now) * 1000)
            yield view.violation(f"locked for {late}, where {beat} s are usual: clocks differ", key=fact.key)
    put = parse_number(view.fields.get(b"time"))
    if put is not None and put > now + SLACK_S:
        yield view.violation(f"put or popped {span((put - now) * 1000)} in the future: clocks differ")


@book.about_jobs(
    "QLESS-18",
    "Every job among the completed ones is complete",
    Severity.ERROR,
    Harm.LOST,
    repair="take the job out of the completed ones, before it expires with them",
)
def completed_is_complete(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.where("completed"):
        if view.record is None:
            yield view.violation("among the completed ones without a hash", key=fact.key, severity=Severity.WARNING)
        elif view.word != "complete":
            detail = f"{show(view.word, 40)}, but among the completed ones: it will expire with them"
            yield view.violation(detail, key=fact.key, severity=_weight(view))


@book.about_jobs(
    "QLESS-17",
    "Every job listed as failed has failed, and in this group",
    Severity.ERROR,
    Harm.POISON,
    repair="take the job off the list",
)
def failed_has_failed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    listed = Counter((fact.key, fact.label) for fact in view.where("failed"))
    for (key, group), times in listed.items():
        if view.record is None:
            yield view.violation(f"listed in {show(key)} without a hash: putting the group back stops here", key=key)
        elif view.word != "failed" or view.stored.group != group:
            yield view.violation(f"listed in {show(key)}, but {show(view.word, 40)}", key=key)
        elif times > 1:
            yield view.violation(f"listed {times} times in {show(key)}", key=key)


@book.about_jobs(
    "QLESS-37",
    "A job and the scores of a queue are of one generation",
    Severity.WARNING,
    Harm.LATE,
    repair="write the score anew, by priority and time",
)
def is_of_one_generation(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if b"jid" in view.fields and b"id" in view.fields:
        yield view.violation("both jid and id: written by two generations")
    if view.history_facts and b"history" in view.fields:
        yield view.violation("a history in the hash and another one as a list: the next read mixes them")
    priority = parse_number(view.fields.get(b"priority"))
    for fact in view.where("work"):
        if priority is None or fact.score is None or era_of(keyspace).generation < Generation.JID:
            continue
        seconds = (fact.score - priority) * 1e10
        wrong = -seconds if era_of(keyspace).lower_first else seconds
        if RECENT_S[0] < wrong < RECENT_S[1]:
            detail = f"score {fact.score!r} for priority {priority} counts time the other way: it runs out of turn"
            yield view.violation(detail, key=fact.key, queue=fact.queue)
