"""Reading bee: keys to facts, facts to totals, what jobs tell each other, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error. A record speaks of other jobs too, so
it claims them: a duplicate its original, a blocked job what it waits for. Once all facts are together each claim is answered
(``back_references``). Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Counted, Job, State, replaced
from ...schema.keys import KeyMatch
from ...schema.odd_key import odd_key
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from .. import lua_json
from ..numbers import parse_int, score_to_int
from ..overflow import FIELD
from .keys import SCRIPTS, UNFINISHED, layout
from .passthrough import job_of
from .record import canonical, dependants_of, state_for_duplicates
from .view import View, view_of

# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None:
        yield from odd_key(entry, prefix, next(names.matches(entry.key), None))
        return
    yield from _stated(entry, match)


def _stated(entry: Entry, match: KeyMatch) -> Iterator[Fact]:
    named, role = match.fields, match.role
    about = partial(_fact, entry, role)
    match role:
        case "record":
            yield about(FactKind.RECORD, named["id"], values=entry.values)
            yield from _claims(entry, named["id"])
        case "queue" | "delayed" | "locks" | "expires":
            key, redis_type, queue, ttl_ms = entry.key, entry.redis_type, named["queue"], entry.ttl_ms
            for index, (member, score) in enumerate(entry.value, entry.offset):
                job_id = to_text(member)
                yield Fact(FactKind.PLACE, role, key, redis_type, job_id, "", queue, None, member, score, index, (), ttl_ms)
        case "hashes":
            # How many there are is told only by a list that came in one piece.
            length = (b"%d" % len(entry.value),) if entry.offset == 0 else ()
            for index, member in enumerate(entry.value, entry.offset):
                yield about(FactKind.PLACE, to_text(member), label=named["hashed"], member=member, index=index, values=length)
        case "tag" | "held" | "children":
            label = named.get("tag", named.get("worker", named.get("id")))
            for member in entry.value:
                yield about(FactKind.NOTE, to_text(member), label=label, member=member)
        case "dependencies":
            for member in entry.value:
                yield about(FactKind.NOTE, named["id"], member=member)
                yield _fact(entry, "needed", FactKind.NOTE, to_text(member), member=to_bytes(named["id"]))
        case "lock_waits":
            yield about(FactKind.NOTE, named["id"], label=named["worker"], values=(entry.value,))
        case "bees":
            for member, score in entry.value:
                yield about(FactKind.REGISTRY, None, queue=named["queue"], member=member, score=score)
        case "hive":
            yield about(FactKind.REGISTRY, None, values=(entry.value,))
        case "scripts":
            yield about(FactKind.REGISTRY, None, values=entry.values)


def _fact(
    entry: Entry,
    role: str,
    kind: FactKind,
    job_id: str | None,
    *,
    queue: str | None = None,
    label: str | None = None,
    member: bytes | None = None,
    score: float | None = None,
    index: int | None = None,
    values: tuple[bytes, ...] = (),
) -> Fact:
    return Fact(kind, role, entry.key, entry.redis_type, job_id, "", queue, label, member, score, index, values, entry.ttl_ms)


def _claims(entry: Entry, job_id: str) -> Iterator[Fact]:
    """A duplicate asks its original how it ended; a job that has yet to end tells who is to wait for it."""
    original, dependants = entry.value.get(b"duplicate"), entry.value.get(b"dependants")
    if original is None and dependants is None:
        return
    status, about = to_text(entry.value.get(b"status", b"")), partial(_fact, entry, member=to_bytes(job_id))
    if original is not None and status == "duplicate":
        yield about("claimed", FactKind.NOTE, to_text(original))
    if status in UNFINISHED:
        for dependant in dependants_of(dependants):
            yield about("expected", FactKind.NOTE, dependant)


# What jobs tell each other


def back_references(subject: Subject) -> Iterator[Fact]:
    """The answers to all who have claimed this job."""
    view = view_of(subject)
    source = view.record or view.facts[0]
    for claim in view.claims:
        other = to_text(claim.member or b"")
        note = partial(Fact, FactKind.NOTE, key=source.key, redis_type=source.redis_type, job_id=other, label=view.job_id)
        if claim.role == "claimed":
            yield note("original", values=(to_bytes(view.status), _state_for_duplicates(view)))
        else:
            flags = (other in view.dependants, view.is_lost)
            yield note("dependency", values=(to_bytes(view.status), *(b"1" if flag else b"" for flag in flags)))


def _state_for_duplicates(view: View) -> bytes:
    return str(state_for_duplicates(view.fields) if view.is_job else State.UNKNOWN).encode()


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the rules about the whole keyspace need. What it grows with: workers, queues and kinds of damage."""
    if fact.kind is FactKind.ODD:
        totals.count_and_sample("odd key", to_text(fact.key), fact.role)
        return
    match fact.role:
        case "record":
            _tally_record(fact, totals)
        case "bees":
            beat = score_to_int(fact.score)
            totals.maximum(f"heartbeat:{fact.queue}", 0 if beat is None else beat, to_text(fact.member or b""))
            totals.name("served", [fact.queue or ""])
        case "lock_waits" if fact.ttl_ms is None:
            totals.count("trace", "0.0.4")
        case "hive":
            totals.count("hive options", "sound" if lua_json.as_object(fact.values[0]) is not None else "broken")
        case "scripts":
            totals.count("trace", "head")
            for name in _broken_scripts(fact.fields):
                totals.sample("broken script", name)


def _tally_record(fact: Fact, totals: Totals) -> None:
    totals.count("records")
    trace = trace_of(fact.fields.get(b"options", b""), fact.fields)
    if trace is not None:
        totals.count("trace", trace)


def trace_of(options: bytes, fields: Container[bytes]) -> str | None:
    """The version that has left a record with these options and these names of fields behind; None where that is open."""
    if b'"preferredHostname"' in options:
        return "head"
    if b'"timeout"' in options or b"failed_reason" in fields:
        return "0.0.3"
    return "0.0.4" if b"jid" in fields and b'"ttl"' in options else None


def _broken_scripts(fields: Mapping[bytes, bytes]) -> Iterator[str]:
    for name in sorted(SCRIPTS):
        sha = fields.get(name.encode(), b"")
        if len(sha) != 40 or sha.strip(b"0123456789abcdef"):
            yield name
    yield from sorted(to_text(name) for name in fields if to_text(name) not in SCRIPTS)


# Facts to a job

RANK = 0
"""Of all jobs: a queue is ordered by its scores alone. A priority is worth what it was when the job came, and no longer."""


def describe(subject: Subject) -> Job | None:
    """See KeyFamily.describe."""
    view = view_of(subject)
    if not view.is_job:
        return None
    return read(subject) if FIELD in view.stored.fields else canonical(view.job_id, view.stored)


def counted(subject: Subject) -> Job | Counted | None:
    """See KeyFamily.counted."""
    view = view_of(subject)
    if not view.is_job or FIELD in view.fields:
        return describe(subject)
    return Counted(view.queue, view.stored.state, parse_int(view.fields.get(b"submitted")))


def read(subject: Subject) -> Job | None:
    """The job that the facts describe; None without a record that names itself."""
    view = view_of(subject)
    if not view.is_job:
        return None
    job = job_of(view.job_id, view.stored)
    fact = view.by_role.get("queue")
    return replaced(job, position=fact.index if fact else None, rank=RANK)
