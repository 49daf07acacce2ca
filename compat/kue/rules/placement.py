"""The rules of kue keyspaces about a job and the indexes that name it.

The hash is right and the indexes are wrong wherever they contradict each other. Live workers make KUE-5 and KUE-6 flicker
for milliseconds. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ...numbers import parse_number
from ...rulebook import Rulebook, keys_of
from ..keys import WORDS, Era, MemberFormat, layout, member_format
from ..record import due_at
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)


def index_of(view: View, keyspace: Keyspace, role: str) -> str:
    """The index where the job belongs, for a message."""
    return show(layout(keyspace.prefix).key(role, queue=view.queue, state=view.word or ""))


@book.about_jobs(
    "KUE-1",
    "Every member of an index has a job hash",
    Severity.ERROR,
    Harm.LEAK,
    repair="remove the member from the indexes",
)
def member_has_hash(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None and view.places:
        waits = any(fact.label == WORDS[State.WAITING] and fact.role == "by_type" for fact in view.places)
        cost = "; it will eat a wake-up token and a job's turn" if waits else ""
        yield view.violation(f"listed without a hash in {keys_of(view.places)}{cost}")


@book.about_jobs(
    "KUE-4",
    "Every job is in the index of all jobs",
    Severity.ERROR,
    Harm.LEAK,
    repair="add the job to the index of all jobs",
)
def is_in_all(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.by_role.get("all") is None:
        yield view.violation(f"missing in {index_of(view, keyspace, 'all')}: no listing shows it")


@book.about_jobs(
    "KUE-5",
    "Every job is in the index of its state",
    Severity.ERROR,
    Harm.LOST,
    repair="add the job to the index of its state",
)
def is_in_state(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    now = view.state
    if now is State.UNKNOWN or view.by_role.get("by_state") is not None:
        return
    where = index_of(view, keyspace, "by_state")
    if now is State.SCHEDULED:
        yield view.violation(f"missing in {where}: never promoted")
    elif now is State.ACTIVE and view.has_ttl:
        yield view.violation(f"missing in {where}: its lease is lost, so nobody will give up on a dead worker")
    else:
        yield view.violation(f"missing in {where}: counts are wrong", severity=Severity.WARNING)


@book.about_jobs(
    "KUE-6",
    "Every job is in the index of its type and state",
    Severity.ERROR,
    Harm.LOST,
    repair="add the job to the index of its type and state, and push a wake-up token if it waits",
)
def is_in_type(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    now = view.state
    if now is State.UNKNOWN or view.by_role.get("by_type") is not None:
        return
    where = index_of(view, keyspace, "by_type")
    if now is State.WAITING:
        held = f"; {show(view.fields[b'workerId'])} had taken it" if b"workerId" in view.fields else ""
        yield view.violation(f"missing in {where}: never delivered{held}")
    else:
        yield view.violation(f"missing in {where}: listings by type are wrong", severity=Severity.WARNING)


@book.about_jobs(
    "KUE-7",
    "A job is in the indexes of one state and one type only",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="remove the job from the indexes that contradict its hash",
)
def is_in_one_state(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is State.UNKNOWN:
        return
    others = [
        fact
        for fact in view.places
        if fact.role != "all" and (fact.label != view.word or (fact.role == "by_type" and fact.queue != view.queue))
    ]
    if others:
        runs = any(fact.label in (WORDS[State.WAITING], WORDS[State.SCHEDULED]) for fact in others)
        detail = f"the hash says {show(view.word or '')}, but it is also in {keys_of(others)}"
        yield view.violation(detail + (": it may run again" if runs else ""), severity=None if runs else Severity.WARNING)


@book.about_jobs(
    "KUE-12",
    "Scores equal the priority",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="set the scores to the priority",
)
def scores_are_priority(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    priority = parse_number(view.fields.get(b"priority"))
    if view.state is State.UNKNOWN or priority is None:
        return
    times = view.state in (State.SCHEDULED, State.ACTIVE)
    own = [fact for role, fact in view.by_role.items() if not (times and role == "by_state")]
    wrong = [fact for fact in own if fact.score != float(priority)]
    if wrong:
        yield view.violation(f"priority {show(view.fields[b'priority'], 40)}, but score {wrong[0].score:g} in {keys_of(wrong)}")


@book.about_jobs(
    "KUE-13",
    "The score in the delayed index is the time when the job is due",
    Severity.ERROR,
    Harm.LATE,
    repair="set the score to the due time",
)
def due_score(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    fact = view.by_role.get("by_state")
    if view.state is not State.SCHEDULED or fact is None:
        return
    if Era.of(keyspace.totals) >= Era.V0_9:
        promote_at = view.int_field(b"promote_at")
        due = due_at(view.fields) if promote_at is None else promote_at
        if due is not None and fact.score != float(due):
            detail = f"due at {due}, but the score is {fact.score:g}"
            yield view.violation(f"{detail}: kue goes by the score", key=fact.key)
    elif fact.score != parse_number(view.fields.get(b"priority")):
        # Up to 0.8 the delay itself decides when; the score only sorts.
        yield view.violation(f"score {fact.score:g} is not the priority", key=fact.key, severity=Severity.WARNING)


@book.about_jobs(
    "KUE-25", "A job's type is registered", Severity.WARNING, Harm.COSMETIC, repair="add the type to the set of types"
)
def type_is_registered(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.queue not in keyspace.totals.names.get("types", ()):
        yield view.violation(f"type {show(view.queue)!r} is not in {show(layout(keyspace.prefix).key('types'))}")


@book.about_jobs(
    "KUE-27",
    "All indexes name a job in the form of the version in use",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="replace the old members by those of the newer form",
)
def members_have_one_format(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    padded = Era.of(keyspace.totals) is Era.V0_10_3
    wrong = {}
    for fact in view.places:
        found = member_format(to_text(fact.member or b""), view.job_id)
        if found is MemberFormat.MALFORMED or (padded and found is MemberFormat.PLAIN):
            wrong[fact.key] = fact
    if wrong:
        facts = list(wrong.values())
        finished = all(fact.label not in (WORDS[State.WAITING], WORDS[State.SCHEDULED], WORDS[State.ACTIVE]) for fact in facts)
        detail = f"member {show(facts[0].member or b'')!r} in {keys_of(facts)}: kue in its present version never removes it"
        yield view.violation(detail, key=facts[0].key, severity=Severity.WARNING if finished else None)


@book.about_jobs(
    "KUE-28", "The search index knows only jobs that exist", Severity.WARNING, Harm.LEAK, repair="remove the search entries"
)
def search_has_job(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.search_facts and view.record is None:
        yield view.violation(f"{len(view.search_facts)} search entries of a removed job", key=view.search_facts[0].key)
