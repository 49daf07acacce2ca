"""Reading kickq: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error, and nothing is ever evaluated.
Contradictions are settled by the hash: its state word counts, lists and sets only tell order and times; the rules report them.
Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.odd_key import odd_key
from ...schema.text import to_text
from ...schema.totals import Totals
from ..numbers import parse_int
from ..overflow import FIELD
from .keys import RUN_TRACE, WORDS, counted, layout
from .passthrough import NAME, Passthrough, take_overflow, with_overflow_restored
from .record import ITEM, Record, canonical
from .view import view_of

# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None or match.role.startswith("staged"):
        yield from odd_key(entry, prefix, next(names.matches(entry.key), None))
        return
    role, named = match.role, match.fields
    about = partial(Fact, role=role, key=entry.key, redis_type=entry.redis_type, ttl_ms=entry.ttl_ms)
    match role:
        case "record":
            yield about(FactKind.RECORD, job_id=named["id"], values=entry.values)
        case "queue":
            for index, member in enumerate(entry.value, entry.offset):
                yield about(FactKind.PLACE, job_id=to_text(member), queue=named["queue"], member=member, index=index)
        case "state":
            for member in entry.value:
                yield about(FactKind.PLACE, job_id=to_text(member), label=named["state"], member=member)
        case "time_index" | "scheduled" | "purge":
            for member, score in entry.value:
                yield about(FactKind.PLACE, job_id=to_text(member), member=member, score=score)
        case "ids":
            yield about(FactKind.COUNTER, values=(entry.value,))


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the rules about the whole keyspace need. What it grows with: kinds of damage."""
    if fact.kind is FactKind.ODD:
        totals.count_and_sample("odd key", to_text(fact.key), fact.role)
        return
    if fact.ttl_ms is not None and fact.role != "record":
        totals.count_and_sample("expiring", to_text(fact.key), fact.role)
    match fact.role:
        case "record":
            totals.count("records")
            number = counted(fact.job_id or "")
            if number is not None:
                totals.maximum("highest id", number)
            trace = RUN_TRACE.search(fact.fields.get(ITEM, b""))
            if trace:
                totals.name("run traces", [to_text(trace[1])])
        case "state":
            totals.count("state members")
            if fact.label not in WORDS:
                totals.count_and_sample("strange state", to_text(fact.key))
        case "ids":
            # A counter that is no number has given out no id that could be told.
            totals.maximum("ids", parse_int(fact.values[0]) or 0)
            totals.count("bad counter", number=int(parse_int(fact.values[0]) is None))


# Facts to a job


def describe(subject: Subject) -> Job | None:
    """See KeyFamily.describe."""
    view = view_of(subject)
    if view.fact is None:
        return None
    return read(subject) if FIELD in view.stored.fields else canonical(view.job_id, view.stored)


def read(subject: Subject) -> Job | None:
    """The job that the facts describe; None without a hash."""
    view = view_of(subject)
    if view.fact is None:
        return None
    lists = view.queue_lists if view.state is State.WAITING else []
    return replaced(job_of(view.job_id, view.stored), position=lists[0].index if lists else None)


def job_of(job_id: str, stored: Record) -> Job:
    """The job with everything: canonical fields, what overflowed, and what goes back byte for byte."""
    meant, overflow, note = take_overflow(stored)
    job = canonical(job_id, meant)
    if overflow is not None:
        job = with_overflow_restored(job, overflow, note, stored)
    own = Passthrough.of_difference(job, meant).to_extra()
    return replaced(job, extra={**job.extra, NAME: own}) if own else job
