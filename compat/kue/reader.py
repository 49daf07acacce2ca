"""Reading kue: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error, and nothing is ever evaluated (the
``backoff`` field is JavaScript source). Contradictions are settled by the hash: its state counts, indexes only tell scores
and order; the rules report them. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.odd_key import odd_key
from ...schema.text import to_text
from ...schema.totals import Totals
from ..numbers import parse_int
from ..overflow import FIELD
from .keys import EARLIEST_TIME, is_borrowed, layout, member_format, member_id
from .passthrough import NAME, Passthrough, with_overflow_restored
from .record import Record, canonical
from .view import View, view_of

KINDS = {
    "record": FactKind.RECORD,
    "log": FactKind.NOTE,
    "all": FactKind.PLACE,
    "by_state": FactKind.PLACE,
    "by_type": FactKind.PLACE,
    "search_word": FactKind.NOTE,
    "search_object": FactKind.NOTE,
    "ids": FactKind.COUNTER,
    "work_time": FactKind.COUNTER,
    "types": FactKind.REGISTRY,
    "settings": FactKind.REGISTRY,
    "tokens": FactKind.TOKEN,
    "lock": FactKind.TOKEN,
    "search_query": FactKind.TOKEN,
}
"""What the keys of each role state."""


# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None:
        yield from odd_key(entry, prefix, next(names.matches(entry.key), None))
        return
    role, named = match.role, match.fields
    about = partial(Fact, KINDS[role], role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
    match role:
        case "record":
            yield about(named["id"], values=entry.values)
        case "log":
            yield about(named["id"], values=tuple(entry.value), index=entry.offset)
        case "all" | "by_state" | "by_type" | "search_word":
            yield from _member_facts(entry, role, named)
        case "search_object":
            for code, score in _scored(entry):
                yield about(named["id"], member=code, score=score)
        case _:
            yield about(queue=named.get("queue"), values=entry.values)


def _member_facts(entry: Entry, role: str, named: Mapping[str, str]) -> Iterator[Fact]:
    """One fact a member; a member that names no job is odd."""
    kind = KINDS[role]
    queue, label = named.get("queue"), named.get("state", named.get("code"))
    for index, (member, score) in enumerate(_scored(entry), entry.offset):
        job_id = member_id(member)
        yield Fact(
            FactKind.ODD if job_id is None else kind,
            role,
            entry.key,
            entry.redis_type,
            job_id,
            queue=queue,
            label=label,
            member=member,
            score=score,
            index=index,
            ttl_ms=entry.ttl_ms,
        )


def _scored(entry: Entry) -> Iterator[tuple[bytes, float | None]]:
    """The members of a zset, or of a set, which has no scores."""
    if entry.redis_type == "set":
        return ((member, None) for member in entry.value)
    return iter(entry.value)


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the rules about the whole keyspace need. What it grows with: types, and kinds of damage."""
    is_stranger = fact.kind is FactKind.ODD and fact.member is None
    if fact.ttl_ms is not None and fact.role != "lock" and not is_stranger:
        totals.count_and_sample("expiring", to_text(fact.key), fact.role)
    if fact.kind is FactKind.ODD:
        measure = "odd key" if fact.member is None else "odd member"
        totals.count_and_sample(measure, to_text(fact.key), fact.role)
        return
    match fact.role:
        case "record":
            _tally_record(fact, totals)
        case "all" | "by_state" | "by_type":
            _tally_place(fact, totals)
        case "tokens":
            strange = len(fact.values) - fact.values.count(b"1")
            totals.count("tokens", fact.queue or "", len(fact.values))
            if strange:
                totals.count("strange tokens", fact.queue or "", strange)
        case "ids":
            # A counter that is no number has given out no id that could be told.
            totals.maximum("ids", parse_int(fact.values[0]) or 0)
        case "types":
            totals.name("types", map(to_text, fact.values))
        case "lock":
            totals.maximum("lock ttl", -1 if fact.ttl_ms is None else fact.ttl_ms, to_text(fact.key))


FIELDS_SINCE_0_8 = (b"backoff", b"result", b"removeOnComplete", b"progress_data")


def _tally_record(fact: Fact, totals: Totals) -> None:
    fields = fact.fields
    if not is_borrowed(fact.job_id or ""):
        totals.maximum("highest id", int(fact.job_id or 0))
    if b"promote_at" in fields:
        totals.count("trace", "0.9")
    elif any(name in fields for name in FIELDS_SINCE_0_8):
        totals.count("trace", "0.8")
    if b"max_attempts" not in fields:
        totals.count("trace", "no max_attempts")


def _tally_place(fact: Fact, totals: Totals) -> None:
    totals.count("members", member_format(to_text(fact.member or b""), fact.job_id or ""))
    if fact.role == "by_type" and fact.label == "inactive":
        totals.count("waiting", fact.queue or "")
    elif fact.role == "by_state" and fact.label == "delayed" and (fact.score or 0) > EARLIEST_TIME:
        totals.count("trace", "0.9")


# Facts to a job


def read(subject: Subject) -> Job | None:
    """The job that the facts describe; None without a hash."""
    view = view_of(subject)
    extra: dict[str, Any] = {}
    read = _read(view, extra)
    if read is None:
        return None
    job, stored = read
    own = Passthrough.of_difference(job, stored, view.is_plain, *view.search_counts()).to_extra()
    if own and job.extra is extra:
        extra[NAME] = own  # before anybody has seen the job: to copy it would cost as much as all else here
        return job
    return replaced(job, extra={**job.extra, NAME: own}) if own else job


def describe(subject: Subject) -> Job | None:
    """The job without what only matters to a copy."""
    read = _read(view_of(subject), {})
    return read and read[0]


def _read(view: View, extra: dict[str, Any]) -> tuple[Job, Record] | None:
    """The job without what is kept apart of its hash, and the hash."""
    if view.record is None:
        return None
    stored = Record(view.fields, {role: fact.score for role, fact in view.by_role.items() if fact.score is not None})
    waiting = view.by_role.get("by_type") if view.state is State.WAITING else None
    job = canonical(view.job_id, stored, view.logs, extra, (waiting.index, waiting.score) if waiting else (None, None))
    return (with_overflow_restored(job, stored) if FIELD in view.fields else job), stored
