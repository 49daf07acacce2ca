"""The rules of kue keyspaces about what a job's hash says, alone and against the clock.

Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, is_json, show, span, to_text
from ...numbers import parse_int, parse_number
from ...overflow import FIELD, about_overflow
from ...rulebook import Rulebook
from ...unreadable import about_unreadable
from ..keys import Era
from ..passthrough import decoded
from ..record import SHORTEST_LEASE, due_at, is_function, progress_of
from ..view import View, view_of

LATE_MS = 3000
"""kue promotes and checks leases every second, and takes up to 1.3 s; what is older is late."""

FINISHED = frozenset({State.COMPLETED, State.FAILED})

TO_RUN = frozenset({State.WAITING, State.SCHEDULED, State.ACTIVE})

LIMITS = (b"attempts", b"max_attempts", b"ttl")
"""Whole numbers; kue reads a missing one as 0 attempts, 1 that is allowed, and no limit."""

PRIORITY = "The priority is a finite number; a job is not carried with another one, nor one that has yet to run without"

PAYLOAD = "The payload of a job is JSON; without that, one that has yet to run is not carried"

ATTEMPTS = "A job says how often and how long it may run; where that can't be read, it is not carried"

book: Rulebook[View] = Rulebook(view_of)


def are_silent(view: View) -> bool:
    """Whether no rule of this folder that refuses can find anything: of nearly all jobs, at a glance."""
    if FIELD in view.fields or _unreadable_values(view) or unreadable(view):
        return False
    if view.state in FINISHED:
        return b"priority" not in view.fields or parse_number(view.fields[b"priority"]) is not None
    return (
        view.state in (State.WAITING, State.SCHEDULED)
        and is_json(view.fields.get(b"data"))
        and parse_number(view.fields.get(b"priority")) is not None
        and (view.state is State.WAITING or view.due_at is not None)
    )


def unreadable(view: View) -> list[bytes]:
    """The fields that tell how often and how long a job may run, and can't be read."""
    return [name for name in LIMITS if name in view.fields and parse_int(view.fields[name]) is None]


@book.about_jobs(
    "KUE-2",
    "Every job hash has a type; without one it is not carried",
    Severity.ERROR,
    Harm.LEAK,
    repair="write the type that its index names; delete the hash and log of what is no job any more",
    refuses=True,
    record_only=True,
)
def has_type(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is not None and not view.is_job:
        found = ", ".join(sorted(map(show, view.fields)))
        yield view.violation(f"a hash without type: written after the job was removed, or cut short, or damaged ({found})")


@book.about_jobs(
    "KUE-3",
    "The state is one of kue's five words; otherwise the job is not carried",
    Severity.ERROR,
    Harm.LOST,
    repair="write the state that its indexes name; where none does, let the job wait (--requeue)",
    refuses=True,
    record_only=True,
)
def has_known_state(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state is State.UNKNOWN:
        if view.word is None:
            yield view.violation("no state: its producer died while creating it, and no worker will ever see it")
        else:
            yield view.violation(f"state {show(view.word)!r} is an application's own", severity=Severity.WARNING)


@book.about_jobs(
    "KUE-11",
    PRIORITY,
    Severity.ERROR,
    Harm.POISON,
    repair="set priority 0 and put the job into its indexes",
    refuses=True,
    record_only=True,
    assumes="without a priority: it runs as its score in the index says, or like one of priority 0",
)
def has_priority_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state in TO_RUN or (view.is_job and b"priority" in view.fields):
        yield from _without_priority(view)


@book.about_jobs(
    "KUE-11",
    PRIORITY,
    Severity.ERROR,
    Harm.POISON,
    repair="set priority 0 and put the job into its indexes",
    record_only=True,
)
def has_priority(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state not in TO_RUN and b"priority" not in view.fields:
        yield from _without_priority(view)


def _without_priority(view: View) -> Iterator[Violation]:
    raw = view.fields.get(b"priority")
    if parse_number(raw) is None:
        found = "no priority" if raw is None else f"priority {show(raw, 40)!r} is no number"
        yield view.violation(f"{found}: the next change of state takes the job out of every index")


@book.about_jobs(
    "KUE-14",
    "No delayed job is overdue",
    Severity.WARNING,
    Harm.LATE,
    repair="run any kue process that works on a queue: it promotes the jobs",
)
def is_not_overdue(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    fact = view.by_role.get("by_state")
    if view.state is not State.SCHEDULED or fact is None or fact.score is None:
        return
    due = view.due_at if Era.of(keyspace.totals) >= Era.V0_9 else due_at(view.fields)
    if due is not None and due < keyspace.now_ms - LATE_MS:
        yield view.violation(f"due {ago(due, keyspace.now_ms)}, and nobody has promoted it", key=fact.key)


@book.about_jobs(
    "KUE-15",
    "An active job without ttl has a live worker (a suspicion: keys alone can't tell)",
    Severity.WARNING,
    Harm.LOST,
    repair="if that worker is dead, let the job wait again (choose it with --older-than or --worker)",
    record_only=True,
)
def has_live_worker(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is not State.ACTIVE or view.has_ttl:
        return
    started_at, worker = view.int_field(b"started_at"), view.fields.get(b"workerId")
    since = "for an unknown time" if started_at is None else f"for {span(keyspace.now_ms - started_at)}"
    holder = "an unknown worker" if worker is None else f"worker {show(worker)}"
    yield view.violation(f"active {since}, held by {holder}; should that be dead, the job stays active for ever")


@book.about_jobs(
    "KUE-16",
    "No active job's lease is over",
    Severity.ERROR,
    Harm.LATE,
    repair="run any kue process that works on a queue: it fails the job, which may be tried again; or let it wait",
)
def lease_is_not_over(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    fact = view.by_role.get("by_state")
    if view.state is not State.ACTIVE or not view.has_ttl or fact is None or fact.score is None:
        return
    if SHORTEST_LEASE <= fact.score < keyspace.now_ms - LATE_MS:
        over = ago(fact.score, keyspace.now_ms)
        yield view.violation(f"its ttl ran out {over}: the worker is dead, and nobody checks", key=fact.key)


@book.about_jobs(
    "KUE-17",
    "No active job is finished; such a job is not carried, since it must not run again",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="complete the job: its result is written already",
    refuses=True,
    record_only=True,
)
def is_not_finished(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is State.ACTIVE and view.fields.get(b"progress") == b"100" and b"duration" in view.fields:
        yield view.violation("its work is done, and the worker died before it could say so: requeueing it would run it twice")


@book.about_jobs(
    "KUE-18",
    PAYLOAD,
    Severity.ERROR,
    Harm.POISON,
    refuses=True,
    record_only=True,
)
def has_payload_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state not in FINISHED and not is_json(view.fields.get(b"data")):
        yield view.violation(f"{_payload(view)}: the worker that takes the job drops it")


@book.about_jobs("KUE-18", PAYLOAD, Severity.WARNING, Harm.POISON, record_only=True)
def has_payload(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state in FINISHED and not is_json(view.fields.get(b"data")):
        yield view.violation(f"{_payload(view)}: kue can't show the job, nor run it again")


def _payload(view: View) -> str:
    raw = view.fields.get(b"data")
    return "no payload" if raw is None else f"payload {show(raw, 40)!r} is not JSON"


@book.about_jobs(
    "KUE-19",
    "The backoff is JSON that kue understands",
    Severity.ERROR,
    Harm.POISON,
    repair="remove the backoff",
    record_only=True,
)
def has_backoff(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"backoff")
    if not view.is_job or raw is None or is_json(raw):
        return
    if is_function(raw):
        yield view.violation("the backoff is JavaScript source, which only kue can run", severity=Severity.WARNING)
    else:
        yield view.violation(f"backoff {show(raw, 40)!r} is neither JSON nor a function: the worker that takes the job drops it")


@book.about_jobs(
    "KUE-20",
    "Result and progress data are JSON",
    Severity.ERROR,
    Harm.POISON,
    repair="remove the fields that are not JSON",
    record_only=True,
)
def has_readable_results(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wrong = [name for name in (b"result", b"progress_data") if name in view.fields and not is_json(view.fields[name])]
    if view.is_job and wrong:
        texts = ", ".join(f"{to_text(name)} {show(view.fields[name], 40)!r}" for name in wrong)
        runs = view.state in (State.WAITING, State.SCHEDULED)
        harm = "the worker that takes the job drops it" if runs else "kue leaves the job out of listings"
        yield view.violation(f"not JSON: {texts}: {harm}", severity=None if runs else Severity.WARNING)


@book.about_jobs(
    "KUE-21",
    ATTEMPTS,
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
    record_only=True,
    assumes="without those",
)
def has_readable_limits(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wrong = unreadable(view) if view.is_job else []
    if wrong:
        texts = ", ".join(f"{to_text(name)} {show(view.fields[name], 40)!r}" for name in wrong)
        yield view.violation(f"no whole number: {texts}")


@book.about_jobs("KUE-21", ATTEMPTS, Severity.WARNING, Harm.LOST, repair="set max_attempts to 1")
def has_attempts(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or Era.of(keyspace.totals) < Era.V0_8 or unreadable(view):
        return
    raw = view.fields.get(b"max_attempts")
    allowed, made = parse_int(raw), parse_int(view.fields.get(b"attempts", b"0"))
    if allowed is None or allowed < 1:
        found = "no max_attempts" if raw is None else f"max_attempts {show(raw, 40)!r}"
        yield view.violation(f"{found}: failures are not counted, and never tried again")
    elif Era.of(keyspace.totals) >= Era.V0_10_3 and made is not None and made > allowed:
        yield view.violation(f"{made} attempts of {allowed}, as kue up to 0.10.4 counted", severity=Severity.INFO)


@book.about_jobs(
    "KUE-22",
    "A failed job has no attempts left",
    Severity.ERROR,
    Harm.LOST,
    repair="requeue the job for its next attempt",
    record_only=True,
)
def retry_is_not_lost(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    made, allowed = parse_int(view.fields.get(b"attempts", b"0")), parse_int(view.fields.get(b"max_attempts", b"1"))
    if view.state is State.FAILED and made is not None and allowed is not None and made < allowed:
        yield view.violation(f"failed at attempt {made} of {allowed}: its worker died before the next one was queued")


@book.about_jobs(
    "KUE-23",
    "A completed job counts its attempt, and is gone if it was to be removed",
    Severity.WARNING,
    Harm.LEAK,
    repair="count the attempt; remove the job if it says removeOnComplete",
)
def is_completed_fully(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is not State.COMPLETED or Era.of(keyspace.totals) < Era.V0_8:
        return
    if view.fields.get(b"removeOnComplete"):
        yield view.violation("complete, and still there though it says removeOnComplete")
    if (parse_int(view.fields.get(b"attempts", b"0")) or 0) < 1:
        yield view.violation("complete, but its worker died before it counted the attempt")


@book.about_jobs("KUE-24", "A log belongs to a job", Severity.WARNING, Harm.LEAK, repair="delete the log")
def log_has_job(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.log_facts and not view.is_job:
        yield view.violation("a log of a job that does not exist", key=view.log_facts[0].key)


@book.about_jobs(
    "KUE-29",
    "Every key under the prefix is one of kue's, has the right Redis type, and does not run out",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the keys (PERSIST)",
)
def does_not_expire(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in (view.record, *view.log_facts):
        if fact is not None and fact.ttl_ms is not None:
            yield view.violation(f"{show(fact.key)} vanishes in {span(fact.ttl_ms)}", key=fact.key)


@book.about_jobs("KUE-30", "A job's times and end are consistent", Severity.INFO, Harm.COSMETIC, record_only=True)
def times_are_consistent(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    now = view.state
    if now is State.UNKNOWN:
        return
    created_at, updated_at = view.int_field(b"created_at"), view.int_field(b"updated_at")
    promote_at = view.int_field(b"promote_at")
    wrong = [f"{name} is missing" for name in ("created_at", "updated_at") if name.encode() not in view.fields]
    if created_at is not None and updated_at is not None and updated_at < created_at:
        wrong.append("updated before it was created")
    if created_at is not None and promote_at is not None and promote_at < created_at:
        wrong.append("due before it was created")
    if now is State.FAILED:
        wrong += [f"failed without {to_text(name)}" for name in (b"failed_at", b"error") if name not in view.fields]
    if now is State.COMPLETED and view.fields.get(b"progress") != b"100":
        wrong.append("complete, but progress is not 100")
    if wrong:
        yield view.violation("; ".join(wrong))


@book.about_jobs(
    "KUE-32",
    "A delayed job says when it is due; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
    assumes="due at once",
)
def has_due_time(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is State.SCHEDULED and view.due_at is None:
        yield view.violation("neither its score nor its hash says when it is due: that is lost")


about_overflow(book, "KUE-33", lambda view: view.fields.get(FIELD), decoded)


TIMES = (b"created_at", b"updated_at", b"started_at", b"failed_at", b"duration")


def _unreadable_values(view: View) -> dict[str, bytes]:
    if not view.is_job:
        return {}
    wrong = {to_text(name): view.fields[name] for name in TIMES if name in view.fields and parse_int(view.fields[name]) is None}
    if progress_of(view.fields.get(b"progress")) is None:
        wrong["progress"] = view.fields[b"progress"]
    return wrong


about_unreadable(book, "KUE-34", _unreadable_values)
