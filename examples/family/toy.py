"""The smallest complete key family: copy it to begin one for another system.

The toy system stores each job in a hash and the ids of each queue's jobs in a set:

    <prefix>:job:<id>       hash  queue, name, state, payload
    <prefix>:queue:<queue>  set   ids

What a job has beside these fields is kept in one more field of the hash, ``ferryman``, so that jobs of richer systems can pass
through. The rules name what can be wrong. ``test_toy.py`` runs the conformance suite; ``pyproject.toml`` registers the family.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ferryman.compat.overflow import FIELD, Overflow
from ferryman.schema.choices import NO_CHOICES, Choices
from ferryman.schema.errors import MalformedValue
from ferryman.schema.fact import Entry, Fact, FactKind, Subject
from ferryman.schema.family import Command, KeyFamily, Keyspace, Target
from ferryman.schema.incompatibilities import error, warning
from ferryman.schema.job import JOB_FIELDS, Job, State
from ferryman.schema.keys import KeyLayout, KeyPattern, glob_escape
from ferryman.schema.rule import Finding, Harm, Rule, Severity, Violation
from ferryman.schema.sampling import UNSHARDED, Shard
from ferryman.schema.text import to_bytes, to_text
from ferryman.schema.totals import Totals

PATTERNS = (
    KeyPattern("record", "<prefix>:job:<id>", ("hash",)),
    KeyPattern("members", "<prefix>:queue:<queue>", ("set",)),
)
OWN_FIELDS = ("id", "queue", "name", "state", "payload")
"""What a hash and its key say of a job."""


@cache
def layout(prefix: str) -> KeyLayout:
    """The keys of one keyspace."""
    return KeyLayout(PATTERNS, prefix=prefix)


# Rules: each is a pure function of what is known about one job, or about the whole keyspace


def fields_of(subject: Subject) -> dict[bytes, bytes]:
    """The hash of a job, which may have been read in pieces."""
    return {name: value for fact in subject.in_role("record") for name, value in fact.fields.items()}


def no_payload(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    if subject.record is not None and b"payload" not in fields_of(subject):
        yield Violation("no payload", subject.record.key)


def no_record(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    if subject.record is None:
        yield Violation("a queue names a job that does not exist", subject.facts[0].key, subject.facts[0].queue)


def no_member(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    if subject.record is not None:
        queue = to_text(fields_of(subject).get(b"queue", b""))
        if all(fact.queue != queue for fact in subject.in_role("members")):
            yield Violation("its queue does not name it", subject.record.key, queue)


def wrong_types(keyspace: Keyspace) -> Iterator[Violation]:
    for key in keyspace.totals.samples.get(("odd", ""), ()):
        yield Violation("a key of another type than the toy system would make", to_bytes(key))


RULES = (
    Rule("TOY-1", "A job has a payload", Severity.ERROR, Harm.POISON, refuses=True, subject=no_payload),
    Rule("TOY-2", "A queue names jobs that exist", Severity.WARNING, Harm.LEAK, repair="take it out", subject=no_record),
    Rule("TOY-3", "A queue names its jobs", Severity.ERROR, Harm.LOST, repair="add it", subject=no_member),
    Rule("TOY-4", "A key has the type of its name", Severity.WARNING, Harm.COSMETIC, keyspace=wrong_types),
)


class Toy(KeyFamily):
    """See above. Every method is pure: engines do the reading and the sending."""

    name = "toy"
    title = "the toy system"
    default_prefix = "toy"
    rules = RULES
    keeps_extra = True
    repairable = frozenset({"TOY-2", "TOY-3"})
    injectable = frozenset({"TOY-1", "TOY-2", "TOY-3", "TOY-4"})

    # Reading: key -> facts -> job

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (f"{glob_escape(prefix)}:*",)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        found = layout(prefix).parse(entry.key, entry.redis_type)
        if found is None:
            if next(layout(prefix).matches(entry.key), None) is not None:
                yield Fact(FactKind.ODD, "odd", entry.key, entry.redis_type)
        elif found.role == "record":
            yield Fact(FactKind.RECORD, "record", entry.key, "hash", found.fields["id"], values=entry.values, ttl_ms=entry.ttl_ms)
        else:
            for member in entry.value:
                yield Fact(
                    FactKind.PLACE, "members", entry.key, "set", to_text(member), queue=found.fields["queue"], member=member
                )

    def tally(self, fact: Fact, totals: Totals) -> None:
        if fact.role == "odd":
            totals.sample("odd", to_text(fact.key))

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        fields = fields_of(subject)
        if subject.record is None:
            return None
        word = fields.get(b"state", b"")
        state = State(to_text(word)) if to_text(word) in list(State) else State.UNKNOWN
        job = Job(
            id=subject.job_id,
            queue=to_text(fields.get(b"queue", b"")),
            name=to_text(fields.get(b"name", b"")),
            state=state,
            payload=fields.get(b"payload"),
        )
        try:
            return Overflow.decode(fields[FIELD]).restored(job, self.name, word) if FIELD in fields else job
        except MalformedValue:
            return job

    # Writing: job -> commands

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        if not job.id or not job.queue:
            yield error(job, "TOY-W1", "the toy system needs an id and a queue")
        if job.state is State.UNKNOWN:
            yield error(job, "TOY-W2", "a job needs a state")
        if job.payload is None:
            yield error(job, "TOY-W3", "a job needs a payload")
        if job.logs:
            yield error(job, "TOY-W4", "the toy system has no place for log lines")
        idle = [
            name for name in JOB_FIELDS if name not in (*OWN_FIELDS, "logs", "extra") and getattr(job, name) not in (None, ())
        ]
        if idle:
            yield warning(job, "TOY-W5", f"kept in the hash, but without effect: {', '.join(idle)}")

    def write(self, job: Job, target: Target) -> list[Command]:
        names = layout(target.prefix)
        lost = {name: getattr(job, name) for name in JOB_FIELDS if name not in (*OWN_FIELDS, "logs", "extra")}
        lost = {name: value for name, value in lost.items() if value not in (None, ())}
        overflow = Overflow.of(job, lost, self.name, to_bytes(job.state))
        fields = {
            b"queue": to_bytes(job.queue),
            b"name": to_bytes(job.name),
            b"state": to_bytes(job.state),
            b"payload": job.payload or b"",
            **({FIELD: overflow.encode()} if overflow is not None else {}),
        }
        record = names.key("record", id=job.id)
        return [
            ("DEL", record),
            ("HSET", record, *(word for pair in fields.items() for word in pair)),
            ("SADD", names.key("members", queue=job.queue), job.id),
        ]

    def finish(self, target: Target, written: Totals) -> list[Command]:
        return []

    # Mending, and material for tests

    def repair(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
    ) -> list[Command]:
        match finding.rule, subject:
            case "TOY-2", Subject():
                return [("SREM", fact.key, fact.member or b"") for fact in subject.in_role("members")]
            case "TOY-3", Subject() if finding.queue:
                return [("SADD", layout(keyspace.prefix).key("members", queue=finding.queue), to_bytes(subject.job_id))]
        return []

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        for numbers, random in shard.blocks(jobs, seed):
            for number in numbers:
                state = random.choice((State.WAITING, State.COMPLETED, State.FAILED))
                yield Job(
                    str(number + 1), random.choice(("mail", "über ✓")), "send", state, payload=b"%d" % random.getrandbits(32)
                )

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        names = layout(target.prefix)
        record, members = names.key("record", id=job.id), names.key("members", queue=job.queue)
        match rule:
            case "TOY-1":
                return [("HDEL", record, b"payload")]
            case "TOY-2":
                return [("DEL", record)]
            case "TOY-3":
                return [("SREM", members, job.id)]
            case "TOY-4":
                return [("SET", members + b"?", b"")]
        return []


TOY = Toy()
