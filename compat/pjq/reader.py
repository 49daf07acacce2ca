"""Reading pjq: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error. Every hash of the database might be a
job's, so one counts only if it has a field that the program writes first. Contradictions are settled by how far a job came:
finished, accepted, dispatched, queued; the rules report them. Called by ``family.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import partial

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.family import Keyspace
from ...schema.job import Job, State, replaced
from ...schema.keys import longer_prefixes
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from ..numbers import MAX_INT64
from ..overflow import FIELD
from .keys import CONTAINERS, JS_1, LISTS, PREFIX_FINDER, WORKERS, is_uuid, layout
from .passthrough import job_of
from .record import canonical
from .view import View, view_of

FIRST_FIELDS = (b"json", b"dispatched_at")
"""Every job's hash has one of them: adding writes the first, dispatching a job whose hash is gone leaves only the second."""

OTHER = "other"
"""Role of a fact about a container under another prefix."""


# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states; nothing for a key of somebody else's."""
    match = next(layout(prefix).matches(entry.key), None)
    if match is None:
        return
    role, named = match.role, match.fields
    if role == "record":
        yield from _record_facts(entry, named["id"])
        others = longer_prefixes(PREFIX_FINDER.prefixes(entry.key, entry.redis_type), prefix)
        if others:
            yield Fact(FactKind.TOKEN, OTHER, entry.key, entry.redis_type, values=tuple(map(to_bytes, others)))
        return
    about = partial(Fact, role=role, key=entry.key, redis_type=entry.redis_type, queue=named["queue"], ttl_ms=entry.ttl_ms)
    if entry.redis_type not in match.pattern.redis_types or role.startswith("staged"):
        yield about(FactKind.ODD)
    elif role in WORKERS:
        yield about(FactKind.TOKEN, values=_worker_values(entry))
    else:
        items = ((member, None) for member in entry.value) if role in LISTS else entry.value
        for index, (member, score) in enumerate(items, entry.offset):
            yield about(FactKind.PLACE, job_id=to_text(member), member=member, score=score, index=index)


def _record_facts(entry: Entry, job_id: str) -> Iterator[Fact]:
    about = partial(Fact, key=entry.key, redis_type=entry.redis_type, job_id=job_id, ttl_ms=entry.ttl_ms)
    if entry.redis_type == "hash":
        if any(name in entry.value for name in FIRST_FIELDS):
            yield about(FactKind.RECORD, "record", values=entry.values)
    elif is_uuid(job_id):
        # Of any other name nothing tells that it is not a key of somebody else's, in a database that many share.
        yield about(FactKind.ODD, "stranger")


def _worker_values(entry: Entry) -> tuple[bytes, ...]:
    """Worker ids; from a zset each one with its score."""
    if entry.redis_type == "set":
        return tuple(entry.value)
    return tuple(text for worker, score in entry.value for text in (worker, repr(score).encode()))


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the reader and the rules need. What it grows with: queues, workers and kinds of damage."""
    queue = fact.queue or ""
    if fact.role in ("record", "stranger"):
        return
    if fact.role == OTHER:
        totals.name("other prefixes", map(to_text, fact.values))
        return
    if not fact.index:
        _tally_key(fact, queue, totals)
    if fact.kind is FactKind.ODD:
        totals.name("misfits", [to_text(fact.key)])
        if fact.role == "idle" and fact.redis_type == "zset":
            totals.count("trace", "js-3")
    elif fact.role in CONTAINERS:
        _tally_place(fact, queue, totals)
    else:
        _tally_workers(fact, queue, totals)


def _tally_key(fact: Fact, queue: str, totals: Totals) -> None:
    totals.name("queues", [queue])
    totals.name("js-1 keys" if fact.role in JS_1 else "current keys", [to_text(fact.key)])
    if fact.ttl_ms is not None and fact.kind is not FactKind.ODD:
        totals.name("expiring", [to_text(fact.key)])


def tally_members(role: str, entry: Entry, queue: str, totals: Totals) -> None:
    """The same for all of what an entry of a container of jobs states that does not expire, one of lists or of ended jobs."""
    if not entry.offset:
        totals.name("queues", [queue])
        totals.name("js-1 keys" if role in JS_1 else "current keys", [to_text(entry.key)])
    if role in LISTS:
        totals.maximum(f"length:{role}", entry.offset + len(entry.value), queue)


def _tally_place(fact: Fact, queue: str, totals: Totals) -> None:
    if fact.role in LISTS:
        totals.maximum(f"length:{fact.role}", (fact.index or 0) + 1, queue)
    elif fact.role in ("dispatched", "processing"):
        totals.count(fact.role, queue)
        totals.count("trace", "accepted" if fact.role == "processing" else "dispatched")


def _tally_workers(fact: Fact, queue: str, totals: Totals) -> None:
    match fact.role:
        case "idle" | "busy":
            totals.name(f"{fact.role}:{queue}", map(to_text, fact.values))
        case "seen":
            for worker, score in zip(fact.values[::2], fact.values[1::2], strict=True):
                totals.maximum(f"seen:{queue}", _microseconds(float(score)), to_text(worker))


def _microseconds(seconds: float) -> int:
    """Fine enough to give back every score that the program writes."""
    if math.isnan(seconds):
        return 0
    return round(max(-MAX_INT64, min(seconds * 1e6, MAX_INT64)))


def other_prefixes(totals: Totals) -> Collection[str]:
    """See KeyFamily.other_prefixes. A keyspace of its own has a container: a hash alone may be anybody's."""
    return () if totals.names.get("queues") else totals.names.get("other prefixes", ())


# Facts to a job


def describe(subject: Subject, keyspace: Keyspace) -> Job | None:
    """See KeyFamily.describe."""
    view = view_of(subject)
    if view.record is None and not view.is_contained:
        return None
    stored = view.stored(keyspace.totals)
    return read(subject, keyspace) if FIELD in stored.fields else canonical(view.job_id, view.queue, stored)


def read(subject: Subject, keyspace: Keyspace) -> Job | None:
    """The job that the facts describe; None where there is no hash, and nothing that says in which state it would be."""
    view = view_of(subject)
    if view.record is None and not view.is_contained:
        return None
    job = job_of(view.job_id, view.queue, view.stored(keyspace.totals), view.found())
    return replaced(job, position=_position(view, keyspace.totals)) if job.state is State.WAITING else job


def _position(view: View, totals: Totals) -> int | None:
    own = view.at(view.role or "")
    if own is None or own.queue != view.queue:
        return None
    return position(own.role, view.queue, own.index or 0, totals)


def position(role: str, queue: str, index: int, totals: Totals) -> int:
    """How many jobs of a queue would run before one that waits in a list of this role, with this index there.

    What the first program left behind is older than all that stands in a list of today's.
    """
    older = totals.maxima.get(("length:js_queued", queue), 0) if role == "queued" else 0
    return older + totals.maxima.get((f"length:{role}", queue), 0) - 1 - index
