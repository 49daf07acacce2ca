"""Reading native keyspaces: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error. Ids are unique within a queue, so the
queue is every fact's scope. Called by ``family.py``; the rules share its view of a subject.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial

from attrs import define, field

from ..errors import MalformedValue
from ..fact import Entry, Fact, FactKind, Subject
from ..family import Keyspace
from ..job import Job
from ..odd_key import odd_key
from ..text import to_bytes, to_text
from ..totals import Totals
from . import codec
from .keys import is_escaped, unescape
from .layout import JOB_ROLES, WITH_TTL, layout
from .numbers import parse_int, score_to_int
from .overflow import job_of
from .record import Stored
from .routing import NO_HEADERS, queues_of
from .scripts.exchange import Binding
from .scripts.waiting_score import ASCENDING, DESCENDING, PriorityOrder, sequence_of

KINDS = {
    "record": FactKind.RECORD,
    **dict.fromkeys(JOB_ROLES, FactKind.PLACE),
    **dict.fromkeys(("needs", "unblocks", "tag", "outbox", "moves", "letters", "unreported"), FactKind.NOTE),
    **dict.fromkeys(("times", "history", "slots"), FactKind.COUNTER),
    **dict.fromkeys(("meta", "consumers", "queues", "forwarding"), FactKind.REGISTRY),
    **dict.fromkeys(("exchange", "fanout", "cursors", "unroutable"), FactKind.REGISTRY),
    **dict.fromkeys(("wake", "publisher", "batch", "unique", "connection"), FactKind.TOKEN),
}
"""What the keys of each role state."""


# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None or not is_escaped(match.fields.get("tag", "")):
        yield from odd_key(entry, prefix, match or next(names.matches(entry.key), None))
        return
    role, named = match.role, match.fields
    queue = unescape(named["tag"]) if "tag" in named else None
    about = partial(Fact, KINDS[role], role, entry.key, entry.redis_type, queue=queue, ttl_ms=entry.ttl_ms)
    about_job = partial(about, scope=queue or "")
    match role:
        case "record":
            yield about_job(named["id"], values=entry.values)
        case "needs" | "unblocks":
            yield about_job(named["id"], values=tuple(entry.value))
        case "tag" | "blocked":
            for member in entry.value:
                yield about_job(to_text(member), member=member, label=named.get("label", role))
        case "waiting" | "scheduled" | "held" | "dead" | "done":
            for index, (member, score) in enumerate(entry.value, entry.offset):
                yield about_job(to_text(member), member=member, score=score, index=index, label=named.get("consumer"))
        case "outbox" | "moves" | "letters" | "unreported":
            for member, score in entry.value:
                yield about_job(to_text(member), member=member, score=score)
        case "unique":
            yield about_job(to_text(entry.value), label=named["label"], values=(entry.value,))
        case "consumers":
            for member, score in entry.value:
                yield about(member=member, score=score)
        case _:
            yield about(values=entry.values, label=named.get("name"))


# Facts to totals


def consumer_label(queue: str, consumer: str) -> str:
    """The label under which a consumer's lease is counted."""
    return f"{queue}\0{consumer}"


def bindings_label(exchange: str) -> str:
    """Under which name the bindings of an exchange are collected."""
    return f"bindings of {exchange}"


def consumers(totals: Totals, now_ms: int) -> Counter[str]:
    """How many consumers of each queue have a lease."""
    leases = ((label, ends) for (measure, label), ends in totals.maxima.items() if measure == "lease")
    return Counter(label.rpartition("\0")[0] for label, ends in leases if ends > now_ms)


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the rules about the whole keyspace need, and the leases that readers need."""
    queue = fact.queue or ""
    if fact.kind is FactKind.ODD:
        totals.count_and_sample("odd key", to_text(fact.key), fact.role)
        return
    if fact.ttl_ms is not None and fact.role not in WITH_TTL:
        totals.count_and_sample("expiring", to_text(fact.key), queue)
    match fact.role:
        case "meta":
            _tally_meta(fact, queue, totals)
        case "consumers":
            if fact.score != math.inf:  # it never ends: as good as none, for nobody reclaims what its consumer holds
                totals.maximum("lease", score_to_int(fact.score) or 0, consumer_label(queue, to_text(fact.member or b"")))
        case "queues":
            totals.name("registered", map(to_text, fact.values))
        case "forwarding":
            totals.name("looked at", map(to_text, fact.values))
        case "exchange":
            totals.name(bindings_label(fact.label or ""), (to_text(name) for name in fact.fields if Binding.parse(name)))
        case "wake":
            totals.count("tokens", queue, len(fact.values))
        case "waiting" | "held":
            totals.count(fact.role, queue)
            score = score_to_int(fact.score)
            if score is not None:
                totals.maximum("highest sequence", sequence_of(score), queue)
        case "record":
            totals.count("records", queue)


def _tally_meta(fact: Fact, queue: str, totals: Totals) -> None:
    fields = fact.fields
    totals.name("queues", [queue])
    if fields.get(b"priority_order") == b"descending":
        totals.name("descending", [queue])
    if b"expires" in fields:
        totals.name("temporary", [queue])
    if b"dead_letter_exchange" in fields:
        totals.name("forwarding", [queue])
    if b"paused" in fields:
        totals.name("paused", [queue])
    if fields.get(b"schema") != b"1":
        totals.name("other schema", [queue])
        totals.sample("other schema", to_text(fields.get(b"schema", b"")), queue)
    totals.maximum("sequence", parse_int(fields.get(b"sequence", b"0")) or 0, queue)


def order_of(queue: str, totals: Totals) -> PriorityOrder:
    """The queue's priority order."""
    return DESCENDING if queue in totals.names.get("descending", ()) else ASCENDING


# Facts to a job


@define
class View:
    """The facts about one job, sorted by what readers and rules ask for."""

    job_id: str
    queue: str
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    places: list[Fact] = field(factory=list)
    needs: tuple[str, ...] = ()
    outbox_entries: list[Fact] = field(factory=list)
    """One, if any."""
    unique_keys: list[Fact] = field(factory=list)
    """The dedup keys that name it."""

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        fact = self.record or next(iter(self.places), None)
        return fact.key if fact else b""

    @property
    def place(self) -> Fact | None:
        """Where the job stands; of several places the one from which it goes on soonest."""
        return min(self.places, key=lambda fact: JOB_ROLES.index(fact.role), default=None)

    def stored(self, totals: Totals) -> Stored:
        """The job as it stands in Redis."""
        place = self.place
        if place is None:
            return Stored(self.fields, needs=self.needs)
        lease = None
        if place.label is not None and place.role == "held":
            lease = totals.maxima.get(("lease", consumer_label(self.queue, place.label)))
        holder = place.label if place.role == "held" else None
        return Stored(self.fields, place.role, place.score, holder, lease, self.needs)


def view_of(subject: Subject) -> View:
    """The subject's facts, sorted."""
    view = View(subject.job_id, subject.scope)
    for fact in subject.facts:
        if fact.kind is FactKind.RECORD:
            view.record = fact
            view.fields = fact.fields
        elif fact.kind is FactKind.PLACE:
            view.places.append(fact)
        elif fact.role == "needs":
            view.needs = tuple(sorted({*view.needs, *map(to_text, fact.values)}))
        elif fact.role == "outbox":
            view.outbox_entries.append(fact)
        elif fact.role == "unique":
            view.unique_keys.append(fact)
    return view


def read(subject: Subject, keyspace: Keyspace) -> Job | None:
    """The job that the facts describe; None without a hash."""
    view = view_of(subject)
    if view.record is None:
        return None
    place = view.place
    position = place.index if place is not None and place.role == "waiting" else None
    return job_of(view.job_id, view.queue, view.stored(keyspace.totals), order_of(view.queue, keyspace.totals), position)


def has_twin(subject: Subject, keyspace: Keyspace) -> bool:
    """Whether the exchange to which the message was published leads to several queues: each of them gets it, under one id."""
    try:
        head, _ = codec.decode(view_of(subject).fields.get(b"message", b""))
    except MalformedValue:
        return False
    properties, headers = (head.get(name) for name in ("properties", "headers"))
    info = properties.get("delivery_info") if isinstance(properties, dict) else None
    exchange, key = (info.get("exchange"), info.get("routing_key")) if isinstance(info, dict) else (None, None)
    if not (exchange and isinstance(exchange, str) and isinstance(key, str)):
        return False
    named = (Binding.parse(to_bytes(name)) for name in keyspace.totals.names.get(bindings_label(exchange), ()))
    bindings = [binding for binding in named if binding is not None]
    return len(queues_of(bindings, key, headers if isinstance(headers, dict) else NO_HEADERS)) > 1
