"""Reading qless: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error. Contradictions are settled by the
hash: its state counts, indexes tell scores and order; the rules report them. Tags, failure groups, workers, throttles,
recurring jobs and statistics are subjects of their own, since a keyspace may have as many of them as it has jobs.
Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.family import Keyspace
from ...schema.job import Counted, Job, State, rank_of, replaced
from ...schema.keys import KeyMatch
from ...schema.odd_key import odd_key
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from ..numbers import parse_number
from ..overflow import FIELD
from .history import LATEST
from .keys import INDEXES, Generation, Scope, era_of, layout, time_part
from .passthrough import NONE, Memberships, job_of
from .record import RUNNING, STALLED, canonical, created_at_of
from .view import GONE, View, view_of

REGISTRIES = frozenset({"queues", "paused", "config", "identifiers", "priorities", "name_patterns", "name_order"})

UNCARRIED = (REGISTRIES - {"queues"}) | {"template", "recur", "statistics", "throttle"}
"""What is beside jobs in a keyspace: recurring jobs, what queues are set to, how they did."""


# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None:
        yield from odd_key(entry, prefix, names.misfit(entry.key))
        return
    yield from _STATING.get(match.role, _registry)(entry, match)


def _registry(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    yield _fact(FactKind.REGISTRY, entry, match.role, values=entry.values)


def _record(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    yield _fact(FactKind.RECORD, entry, match.role, job_id=match.fields["id"], values=entry.values)


def _history(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    yield _fact(FactKind.NOTE, entry, match.role, job_id=match.fields["id"], values=entry.values, index=entry.offset)


def _edges(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    """Each member of the sets ``dependencies`` and ``dependents`` is a fact about both jobs."""
    owner = match.fields["id"]
    reverse = "waits" if match.role == "dependencies" else "releases"
    for member in entry.value:
        yield _fact(FactKind.NOTE, entry, match.role, job_id=owner, member=member)
        yield _fact(FactKind.NOTE, entry, reverse, job_id=to_text(member), label=owner)


def _index_facts(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    scope = Scope.RECURRING if match.role == "recur" else Scope.JOB
    yield from _members(entry, match, kind=FactKind.PLACE, scope=scope, queue=match.fields.get("queue"))


def _failed(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    group = match.fields["group"]
    yield _fact(FactKind.NOTE, entry, "group_list", job_id=group, scope=Scope.GROUP, index=len(entry.value))
    for index, member in enumerate(entry.value, entry.offset):
        yield _fact(FactKind.PLACE, entry, match.role, job_id=to_text(member), label=group, member=member, index=index)


def _listing(name: str, role: str, scope: Scope) -> Callable[[Entry, KeyMatch], Iterator[Fact]]:
    """States a zset of jobs that belongs to something: facts about the jobs, and about what it belongs to."""

    def state(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
        owner = match.fields[name]
        yield _fact(FactKind.NOTE, entry, role, job_id=owner, scope=scope, index=len(entry.value))
        yield from _members(entry, match, kind=FactKind.NOTE, label=owner)

    return state


def _names(scope: Scope) -> Callable[[Entry, KeyMatch], Iterator[Fact]]:
    """States a register whose members are subjects of their own."""

    def state(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
        for item in entry.value:
            member, score = item if isinstance(item, tuple) else (item, None)
            yield _fact(FactKind.NOTE, entry, match.role, job_id=to_text(member), scope=scope, member=member, score=score)

    return state


def _hash_of(name: str, scope: Scope) -> Callable[[Entry, KeyMatch], Iterator[Fact]]:
    """States a hash that is about one thing: the field ``name`` of its key, or without such a field the key itself."""

    def state(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
        owner = match.fields[name] if name else to_text(entry.key)
        named = {"queue": match.fields.get("queue"), "label": match.fields.get("measure")}
        yield _fact(FactKind.NOTE, entry, match.role, job_id=owner, scope=scope, values=entry.values, **named)

    return state


def _tracked(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    yield from _members(entry, match, kind=FactKind.NOTE)


_STATING: dict[str, Callable[[Entry, KeyMatch], Iterator[Fact]]] = {
    "record": _record,
    "history": _history,
    "dependencies": _edges,
    "dependents": _edges,
    **dict.fromkeys((*INDEXES, "recur", "beats", "completed"), _index_facts),
    "template": _hash_of("id", Scope.RECURRING),
    "throttle": _hash_of("throttle", Scope.THROTTLE),
    "statistics": _hash_of("", Scope.STATISTICS),
    "failed": _failed,
    "groups": _names(Scope.GROUP),
    "workers": _names(Scope.WORKER),
    "tags": _names(Scope.TAG),
    "held": _listing("worker", "worker_jobs", Scope.WORKER),
    "tagged": _listing("tag", "tag_jobs", Scope.TAG),
    "slots": _listing("throttle", "throttle_slots", Scope.THROTTLE),
    "pending": _listing("throttle", "throttle_pending", Scope.THROTTLE),
    "tracked": _tracked,
}


def _members(
    entry: Entry,
    match: KeyMatch,
    kind: FactKind,
    scope: Scope = Scope.JOB,
    queue: str | None = None,
    label: str | None = None,
) -> Iterator[Fact]:
    """One fact a member of a zset."""
    role, key, redis_type, ttl_ms = match.role, entry.key, entry.redis_type, entry.ttl_ms
    for index, (member, score) in enumerate(entry.value, entry.offset):
        job_id = to_text(member)
        yield Fact(kind, role, key, redis_type, job_id, scope, queue, label, member, score, index, (), ttl_ms)


def _fact(kind: FactKind, entry: Entry, role: str, **named: Any) -> Fact:
    return Fact(kind, role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms, **named)


# What jobs tell each other

MOST_DEPENDENCIES = 100
"""Circles are looked for among jobs that wait for no more than so many."""


def back_references(subject: Subject) -> Iterator[Fact]:
    """The answers to all who wait for this job: its state, whether it will release them, and whom it waits for itself."""
    waiters = [fact.label or "" for fact in subject.in_role("waits")] if subject.scope == Scope.JOB else []
    if not waiters:
        return
    view = view_of(subject)
    source = view.record or subject.facts[0]
    others = tuple(to_bytes(other) for other in sorted(view.dependencies)) if len(view.dependencies) <= MOST_DEPENDENCIES else ()
    word = GONE if view.record is None else to_bytes(view.word)
    for waiter in waiters:
        values = (word, b"1" if waiter in view.dependents else b"0", *others)
        yield Fact(FactKind.NOTE, "answer", source.key, source.redis_type, waiter, label=view.job_id, values=values)


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what readers and rules need to know of the whole. It grows with queues, groups of failures, kinds of damage."""
    if fact.kind is FactKind.ODD:
        totals.count_and_sample("odd key", to_text(fact.key), fact.role)
        return
    if fact.ttl_ms is not None and fact.role != "throttle":
        totals.count_and_sample("expiring", to_text(fact.key), fact.role)
    match fact.role:
        case "record":
            _tally_record(fact, totals)
        case "history":
            tally_history(totals)
        case "throttle" | "throttle_slots" | "throttle_pending":
            totals.count("generation", Generation.REQLESS.name)
        case "work" | "locks" | "scheduled" | "depends" | "throttled" | "recur":
            tally_members(fact.role, fact.queue or "", (fact.score or 0.0,), totals)
        case "group_list":
            totals.count("listed", fact.job_id or "", fact.index or 0)
        case "beats":
            totals.count_and_sample("beats", to_text(fact.key))
        case "queues":
            totals.name("queues", map(to_text, fact.values))
        case "paused":
            totals.name("paused", map(to_text, fact.values))
        case "config":
            _tally_config(fact, totals)
        case "identifiers" | "priorities":
            totals.count("trace", "queue patterns")


def _tally_record(fact: Fact, totals: Totals) -> None:
    fields = fact.fields
    if b"throttles" in fields:
        generation = Generation.REQLESS
    elif b"time" in fields:
        generation = Generation.UNIFIED
    elif b"jid" in fields:
        generation = Generation.JID
    elif b"id" not in fields:
        return
    else:
        first_days = fields.get(b"history", b"").lstrip().startswith(b"[[") or fields.get(b"state") == b"pending"
        generation = Generation.SEED if first_days else Generation.FIRST
    totals.count("generation", generation.name)
    if b"spawned_from_jid" in fields or b"scheduled" in fields:
        totals.count("trace", "final")


def tally_history(totals: Totals) -> None:
    """Counts one history."""
    totals.count("generation", Generation.UNIFIED.name)


def tally_members(role: str, queue: str, scores: Sequence[float], totals: Totals) -> None:
    """Counts jobs in an index of a queue with these scores: at least one."""
    totals.name("indexed", (queue,))
    if role == "work":
        totals.count("work", queue, len(scores))
        for score in scores:
            totals.count("time part", time_part(score))
        return
    times = [int(score) for score in scores if 0 < score < LATEST]
    if times:
        totals.maximum("newest", max(times))


def _tally_config(fact: Fact, totals: Totals) -> None:
    for name, raw in fact.fields.items():
        option = to_text(name)
        seconds = parse_number(raw)
        if option.endswith("heartbeat") and seconds is not None and 0 <= seconds < LATEST:
            totals.maximum("heartbeat", int(seconds), option)
        elif option == "max-job-history":
            totals.count("trace", "final")


# Facts to a job


def describe(subject: Subject, keyspace: Keyspace) -> Job | None:
    """See KeyFamily.describe."""
    view = view_of(subject)
    if view.record is None:
        return None
    return read(subject, keyspace) if FIELD in view.fields else canonical(view.job_id, view.stored)


def counted(subject: Subject, keyspace: Keyspace) -> Job | Counted | None:
    """See KeyFamily.counted."""
    view = view_of(subject)
    if view.record is None or FIELD in view.fields:
        return describe(subject, keyspace)
    stored = view.stored
    return Counted(stored.queue, stored.state, created_at_of(stored))


def read(subject: Subject, keyspace: Keyspace) -> Job | None:
    """The job that the facts describe; None without a hash, and for what is no job."""
    view = view_of(subject)
    if view.record is None:
        return None
    job, place, era = job_of(view.job_id, view.stored, _memberships(view)), _work_fact(view), era_of(keyspace)
    position = None
    # In a queue where it strayed it has a place, but none among its own.
    if place is not None and place.index is not None and to_bytes(place.queue or "") == view.fields.get(b"queue"):
        position = position_of(place.queue or "", place.index, keyspace.totals, lower_first=era.lower_first)
    score = parse_number(view.fields.get(b"priority")) if place is None else place.score
    return replaced(job, position=position, rank=rank_in(score, lower_first=era.lower_first))


def _memberships(view: View) -> Memberships:
    if not (view.tagged or view.held or view.slots or view.pending or view.tracked):
        return NONE
    slots = {f"slot:{name}": fact.score or 0.0 for name, fact in view.slots.items()}
    pending = {f"pending:{name}": fact.score or 0.0 for name, fact in view.pending.items()}
    return Memberships(
        held=_held(view),
        slots={**slots, **pending},
        tagged={tag: fact.score or 0.0 for tag, fact in view.tagged.items() if tag in (view.stored.tags or ())},
        tracked=None if view.tracked is None else view.tracked.score,
    )


def _held(view: View) -> dict[str, float]:
    if not view.held:
        return {}
    held, lock = view.held.get(to_text(view.fields.get(b"worker", b""))), view.by_role.get("locks")
    if held is None or held.score is None or view.word not in (*RUNNING, STALLED):
        return {}
    usual = lock is not None and lock.score == held.score
    return {} if usual else {"worker": held.score}


def _work_fact(view: View) -> Fact | None:
    """Where a waiting job waits: in its queue, or in one where it strayed."""
    if view.state is not State.WAITING:
        return None
    return view.by_role.get("work") or next(iter(view.where("work")), None)


def position_of(queue: str, index: int, totals: Totals, *, lower_first: bool) -> int:
    """How many jobs of a queue would run before the one at this index of its zset."""
    return index if lower_first else max(0, totals.sums["work", queue] - 1 - index)


def rank_in(score: int | float | None, *, lower_first: bool) -> int | None:
    """The rank of a job with this score in its queue, whatever its hash says of its priority; that counts where it has none."""
    return None if score is None else rank_of(score if lower_first else -score)
