"""Reading kue: keys to facts, facts to totals, and the facts about one job to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error, and nothing is ever evaluated (the
``backoff`` field is JavaScript source). Contradictions are settled by the hash: its state counts, indexes only tell scores
and order; the rules report them. Called by ``family.py``; the rules share its view of a subject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from attrs import define, evolve, field

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State
from ...schema.rule import Complaint, Severity
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from ..aside import FIELD
from ..memo import remember_last
from ..numbers import whole
from .kept import NAME, Counts, Kept, with_aside_restored
from .keys import EARLIEST_TIME, form, layout, member_id
from .record import Record, canonical, state_of

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

NAMELESS = "nameless"
"""Role of an ODD fact about a key that has no pattern's form."""


# Keys to facts


def facts(entry: Entry, prefix: str) -> Iterator[Fact]:
    """What one key states."""
    names = layout(prefix)
    match = names.parse(entry.key, entry.redis_type)
    if match is None:
        misfit = next(names.matches(entry.key), None)
        if misfit is not None or entry.key.startswith(to_bytes(prefix) + b":"):
            role = NAMELESS if misfit is None else misfit.role
            yield Fact(FactKind.ODD, role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
        return
    role, told = match.role, match.fields
    about = partial(Fact, KINDS[role], role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
    match role:
        case "record":
            yield about(told["id"], values=_flat(entry.value))
        case "log":
            yield about(told["id"], values=tuple(entry.value), index=entry.offset)
        case "all" | "by_state" | "by_type" | "search_word":
            yield from _member_facts(entry, role, told)
        case "search_object":
            for code, score in _scored(entry):
                yield about(told["id"], member=code, score=score)
        case _:
            yield about(queue=told.get("queue"), values=_values(entry))


def _member_facts(entry: Entry, role: str, told: Mapping[str, str]) -> Iterator[Fact]:
    """One fact a member; a member that names no job is odd."""
    kind = KINDS[role]
    queue, place = told.get("queue"), told.get("state", told.get("code"))
    for index, (member, score) in enumerate(_scored(entry), entry.offset):
        job_id = member_id(member)
        yield Fact(
            FactKind.ODD if job_id is None else kind,
            role,
            entry.key,
            entry.redis_type,
            job_id,
            queue=queue,
            place=place,
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


def _values(entry: Entry) -> tuple[bytes, ...]:
    match entry.redis_type:
        case "string":
            return (entry.value,)
        case "hash":
            return _flat(entry.value)
        case "zset":
            return tuple(member for member, _ in entry.value)
    return tuple(entry.value)


def _flat(fields: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    return tuple(text for pair in fields.items() for text in pair)


# Facts to totals


def tally(fact: Fact, totals: Totals) -> None:
    """Counts what the rules about the whole keyspace need. What it grows with: types, and kinds of damage."""
    if fact.ttl_ms is not None and fact.role != "lock":
        totals.count("expiring", fact.role)
        totals.sample("expiring", to_text(fact.key), fact.role)
    if fact.kind is FactKind.ODD:
        measure = "odd key" if fact.member is None else "odd member"
        totals.count(measure, fact.role)
        totals.sample(measure, to_text(fact.key), fact.role)
        return
    match fact.role:
        case "record":
            _tally_record(fact, totals)
        case "all" | "by_state" | "by_type":
            _tally_place(fact, totals)
        case "tokens":
            strange = sum(token != b"1" for token in fact.values)
            totals.count("tokens", fact.queue or "", len(fact.values))
            if strange:
                totals.count("strange tokens", fact.queue or "", strange)
        case "ids":
            # A counter that is no number has given out no id that could be told.
            totals.maximum("ids", whole(fact.values[0]) or 0)
        case "types":
            totals.name("types", map(to_text, fact.values))
        case "lock":
            totals.sample("locks", to_text(fact.key))
            totals.maximum("lock ttl", -1 if fact.ttl_ms is None else fact.ttl_ms, to_text(fact.key))


FIELDS_SINCE_0_8 = (b"backoff", b"result", b"removeOnComplete", b"progress_data")


def _tally_record(fact: Fact, totals: Totals) -> None:
    fields = fact.fields
    totals.maximum("highest id", int(fact.job_id or 0))
    if b"promote_at" in fields:
        totals.count("trace", "0.9")
    elif any(name in fields for name in FIELDS_SINCE_0_8):
        totals.count("trace", "0.8")
    if b"max_attempts" not in fields:
        totals.count("trace", "no max_attempts")


def _tally_place(fact: Fact, totals: Totals) -> None:
    totals.count("members", form(to_text(fact.member or b""), fact.job_id or ""))
    if fact.role == "by_type" and fact.place == "inactive":
        totals.count("waiting", fact.queue or "")
    elif fact.role == "by_state" and fact.place == "delayed" and (fact.score or 0) > EARLIEST_TIME:
        totals.count("trace", "0.9")


# Facts to a job


@define
class View:
    """The facts about one job, sorted by what readers and rules ask for."""

    job_id: str
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: list[Fact] = field(factory=list)
    log_facts: list[Fact] = field(factory=list)
    search_facts: list[Fact] = field(factory=list)

    @property
    def queue(self) -> str:
        """The type; empty if the hash has none."""
        return to_text(self.fields.get(b"type", b""))

    @property
    def word(self) -> str | None:
        """The state word in the hash, whatever it is."""
        raw = self.fields.get(b"state")
        return None if raw is None else to_text(raw)

    @property
    def state(self) -> State:
        """The canonical state."""
        return state_of(self.fields)

    @property
    def is_job(self) -> bool:
        """Whether kue would call this a job: it has a type."""
        return bool(self.fields.get(b"type"))

    @property
    def has_ttl(self) -> bool:
        """Whether kue gives up on the job when a worker takes too long."""
        return (self.whole(b"ttl") or 0) > 0

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        fact = self.record or (self.places + self.log_facts + self.search_facts)[0]
        return fact.key

    @property
    def logs(self) -> tuple[bytes, ...]:
        """All log lines, oldest first."""
        return tuple(line for fact in sorted(self.log_facts, key=lambda fact: fact.index or 0) for line in fact.values)

    def own_places(self) -> dict[str, Fact]:
        """By role, where the index for the job's own type and state holds it; the first place, should it stand there twice."""
        own: dict[str, Fact] = {}
        word, queue = self.word, self.queue
        for fact in self.places:
            if (fact.role == "all" or fact.place == word) and (fact.role != "by_type" or fact.queue == queue):
                known = own.get(fact.role)
                if known is None or (fact.index or 0) < (known.index or 0):
                    own[fact.role] = fact
        return own

    def own_place(self, role: str) -> Fact | None:
        """Where the right index of this role holds the job, if it does."""
        return self.own_places().get(role)

    def whole(self, name: bytes) -> int | None:
        """The integer in a field of the hash."""
        return whole(self.fields.get(name))

    def complaint(self, detail: str, *, key: bytes | None = None, severity: Severity | None = None) -> Complaint:
        """What a rule says about this job; about its hash if no other key is at fault."""
        return Complaint(detail, self.key if key is None else key, self.queue or None, severity)

    def is_plain(self, own: Mapping[str, Fact]) -> bool:
        """Whether every index of ``own`` names the job as kue did before 0.10.3."""
        plain = self.job_id.encode()
        return bool(own) and all(fact.member == plain for fact in own.values())

    def search_counts(self) -> tuple[Counts, Counts]:
        """What the search index says of the job: from its own key, and from the keys of the words."""
        if not self.search_facts:
            return {}, {}
        objects = {to_text(fact.member or b""): fact.score for fact in self.search_facts if fact.role == "search_object"}
        return objects, {fact.place or "": fact.score for fact in self.search_facts if fact.role == "search_word"}


@remember_last
def view_of(subject: Subject) -> View:
    """The subject's facts, sorted once for the reader and all rules."""
    view = View(subject.job_id)
    for fact in subject.facts:
        match fact.role:
            case "record":
                view.record = fact
                view.fields.update(fact.fields)
            case "all" | "by_state" | "by_type":
                view.places.append(fact)
            case "log":
                view.log_facts.append(fact)
            case "search_word" | "search_object":
                view.search_facts.append(fact)
    return view


def read(subject: Subject) -> Job | None:
    """The job that the facts describe; None without a hash."""
    view = view_of(subject)
    if view.record is None:
        return None
    own = view.own_places()
    stored = Record(view.fields, {role: fact.score for role, fact in own.items() if fact.score is not None})
    waiting = own.get("by_type") if view.state is State.WAITING else None
    job = canonical(view.job_id, stored, view.logs, position=waiting.index if waiting else None)
    if FIELD in view.fields:
        job = with_aside_restored(job, stored)
    search, search_words = view.search_counts()
    kept = Kept.of_difference(job, stored, view.is_plain(own), search, search_words).to_extra()
    return evolve(job, extra={**job.extra, NAME: kept}) if kept else job
