"""The rules of kickq keyspaces about the keys in which a job stands: lists, state sets, sorted sets of times.

A place without a record, a record without its place, and a job that stands where it will run again or be deleted alive. Live
workers make KICKQ-4, 8 and 11 flicker for milliseconds. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show
from ...rulebook import Rulebook, keys_of
from ..keys import FINISHED, LOOK_MS, layout
from ..record import as_number, due_of
from ..view import View, view_of

SCHEDULED = "A job that waits for a time is scheduled; where nothing says for when, it is not carried"

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "KICKQ-4",
    "A job is in the set of its state and in no other",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="put the id into the set of its state, and take it out of the others",
)
def is_in_one_set(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    words = {fact.label for fact in view.sets}
    if not view.known or words == {view.word}:
        return
    if len(words) > 1:
        detail = f"{view.word}, but in {keys_of(view.sets)}: it ran twice at once, or its record was overwritten"
        yield view.violation(detail, severity=Severity.ERROR)
    elif words:
        yield view.violation(f"{view.word}, but in {keys_of(view.sets)}, as kickq up to 0.0.13 leaves it")
    else:
        yield view.violation(f"{view.word}, but in no state set, as kickq up to 0.0.11 leaves it")


@book.about_jobs(
    "KICKQ-5", "Every id in a state set has a record", Severity.WARNING, Harm.LEAK, repair="take the id out of the state sets"
)
def set_has_record(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is None and view.sets:
        yield view.violation(f"in {keys_of(view.sets)} without a record", key=view.sets[0].key)


@book.about_jobs(
    "KICKQ-6",
    "Every job is in the time index with the time of its creation",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="put the id into the time index with the time of its creation",
)
def is_in_time_index(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is None:
        return
    fact = view.times.get("time_index")
    if fact is None:
        yield view.violation(f"missing in {show(layout(keyspace.prefix).key('time_index'))}")
    elif view.readable and fact.score is not None:
        created_at = as_number(view.stored.value("createTime"))
        if created_at is not None and fact.score != float(created_at):
            yield view.violation(f"created at {created_at}, but the score is {fact.score:.17g}", key=fact.key)


@book.about_jobs(
    "KICKQ-7", "Every id in the time index has a record", Severity.WARNING, Harm.LEAK, repair="take the id out of the time index"
)
def time_index_has_record(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is None and "time_index" in view.times:
        yield view.violation("in the time index without a record", key=view.times["time_index"].key)


@book.about_jobs(
    "KICKQ-8",
    "A job that waits is in a queue",
    Severity.ERROR,
    Harm.LOST,
    repair="push the job to the queue of its name",
)
def is_in_queue(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.state is State.WAITING and not view.lists:
        yield view.violation(f"{view.word}, but in no queue: its producer, scheduler or worker died, and nobody will run it")


@book.about_jobs("KICKQ-9", "Every id in a queue has a record", Severity.ERROR, Harm.LATE, repair="take the id out of the queues")
def queue_has_record(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is None and view.lists:
        detail = f"in {keys_of(view.lists)} without a record: the worker that takes it sleeps a second"
        yield view.violation(detail, key=view.lists[0].key)


@book.about_jobs(
    "KICKQ-10",
    "Only jobs that wait are in a queue",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the queues, unless somebody wants it to run again",
)
def only_waiting_in_queue(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.known and view.state is not State.WAITING and view.lists:
        detail = f"{view.word}, but in {keys_of(view.lists)}: it will run again, for workers never look at the state"
        yield view.violation(detail, key=view.lists[0].key)


@book.about_jobs(
    "KICKQ-11",
    SCHEDULED,
    Severity.ERROR,
    Harm.LOST,
    repair="schedule the job for its time; push it to its queue if that has passed",
    refuses=True,
    assumes="due at once",
)
def is_scheduled_for_a_time(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is None or view.state is not State.SCHEDULED or due_of(view.stored) is not None:
        return
    if "scheduled" not in view.times:
        yield from _unscheduled(view, keyspace)
    else:
        fact = view.times["scheduled"]
        yield view.violation(f"{view.word} until {fact.score!r}, which is no time: it will never run", key=fact.key)


@book.about_jobs(
    "KICKQ-11",
    SCHEDULED,
    Severity.ERROR,
    Harm.LOST,
    repair="schedule the job for its time; push it to its queue if that has passed",
)
def is_scheduled(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.state is State.SCHEDULED and due_of(view.stored) is not None:
        yield from _unscheduled(view, keyspace)


def _unscheduled(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if "scheduled" not in view.times:
        yield view.violation(f"{view.word}, but not in {show(layout(keyspace.prefix).key('scheduled'))}: it will never run")


@book.about_jobs(
    "KICKQ-12",
    "Only jobs that wait for a time are scheduled",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="take the job out of the schedule",
)
def only_scheduled_in_schedule(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.known and view.state is not State.SCHEDULED and "scheduled" in view.times:
        detail = f"{view.word}, but scheduled: it will be queued when that time comes, and run again"
        yield view.violation(detail, key=view.times["scheduled"].key)


@book.about_jobs(
    "KICKQ-13",
    "Nothing in the schedule is long due",
    Severity.ERROR,
    Harm.LOST,
    repair="push the job to its queue",
)
def schedule_is_in_time(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    return _late(view, keyspace, "scheduled", "due", "so none will ever take it")


@book.about_jobs(
    "KICKQ-14",
    "A finished job is scheduled to be deleted (not where the option purgeJobs is off)",
    Severity.WARNING,
    Harm.LEAK,
    repair="schedule the job to be deleted",
)
def is_to_be_purged(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.state in FINISHED and "purge" not in view.times:
        yield view.violation(f"{view.word}, but not in {show(layout(keyspace.prefix).key('purge'))}: it stays for ever")


@book.about_jobs(
    "KICKQ-15",
    "Only finished jobs are scheduled to be deleted",
    Severity.ERROR,
    Harm.LOST,
    repair="take the job out of the schedule of deletions",
)
def only_finished_to_be_purged(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.known and view.state not in FINISHED and "purge" in view.times:
        detail = f"{view.word}, but scheduled to be deleted: its record will go, finished or not"
        yield view.violation(detail, key=view.times["purge"].key)


@book.about_jobs(
    "KICKQ-16",
    "No deletion is long due",
    Severity.WARNING,
    Harm.LEAK,
    repair="schedule the deletion anew",
)
def purge_is_in_time(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    return _late(view, keyspace, "purge", "to be deleted", "so it stays for ever")


def _late(view: View, keyspace: Keyspace, role: str, what: str, so: str) -> Iterator[Violation]:
    """A time has passed that no scheduler will look at any more."""
    fact = view.times.get(role)
    if fact is not None and fact.score is not None and fact.score < keyspace.now_ms - LOOK_MS:
        when = ago(fact.score, keyspace.now_ms)
        yield view.violation(f"{what} {when}; schedulers only look back {LOOK_MS / 1000:g} s, {so}", key=fact.key)


@book.about_jobs(
    "KICKQ-17",
    "Everything scheduled has a record",
    Severity.ERROR,
    Harm.POISON,
    repair="take the id out of the schedules",
)
def schedule_has_record(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    facts = [view.times[role] for role in ("scheduled", "purge") if role in view.times]
    if view.fact is None and facts:
        detail = f"in {keys_of(facts)} without a record: kickq 1.x loses all jobs that are due within 1.5 s of it"
        yield view.violation(detail, key=facts[0].key)


@book.about_jobs(
    "KICKQ-23",
    "A job is in the queues at most once",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="leave only the entry that runs first",
)
def is_in_queue_once(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and len(view.lists) > 1:
        yield view.violation(f"{len(view.lists)} times in {keys_of(view.lists)}: it will run as often", key=view.lists[0].key)


@book.about_jobs(
    "KICKQ-24",
    "A job is in the queue of its name",
    Severity.ERROR,
    Harm.LOST,
    repair="move the job to the queue of its name",
)
def is_in_own_queue(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    wrong = [fact for fact in view.lists if fact.queue != view.queue]
    if view.fact is not None and wrong:
        own = show(layout(keyspace.prefix).key("queue", queue=view.queue))
        yield view.violation(f"in {keys_of(wrong)} instead of {own}: the wrong consumer runs it, or none", key=wrong[0].key)
