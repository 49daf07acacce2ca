"""The smallest key family, for tests of what engines do with any family; installed as anybody would install theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ferryman.schema.fact import Entry, Fact, FactKind, Subject
from ferryman.schema.family import Command, KeyFamily, Keyspace, Target
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Harm, Rule, Severity, Violation
from ferryman.schema.totals import Totals


def no_payload(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    if subject.record is not None and b"payload" not in subject.record.fields:
        yield Violation("no payload", subject.record.key)


def no_record(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    if subject.record is None:
        yield Violation("an index names a job that does not exist", subject.facts[0].key)


class Toy(KeyFamily):
    """A hash with state and payload for each job."""

    name = "toy"
    title = "a toy"
    default_prefix = "toy"
    rules = (
        Rule("TOY-1", "A job has a payload", Severity.ERROR, Harm.POISON, refuses=True, subject=no_payload),
        Rule("TOY-2", "An index names jobs that exist", Severity.WARNING, Harm.LEAK, subject=no_record),
    )

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (prefix + ":*",)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        yield Fact(FactKind.ODD, "odd", entry.key, entry.redis_type, queue=prefix)

    def tally(self, fact: Fact, totals: Totals) -> None:
        totals.count(fact.role)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        if subject.record is None:
            return None
        fields = subject.record.fields
        return Job(subject.job_id, keyspace.prefix, "n", State(fields[b"state"].decode()), payload=fields.get(b"payload"))

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        for tag in job.payload.split() if job.payload else ():
            if tag in (b"warning", b"error"):
                yield Finding("TOY-9", Severity(tag.decode()), job.id, "", job.queue, "can't be kept")

    def write(self, job: Job, target: Target) -> list[Command]:
        return [("SET", f"{target.prefix}:{job.id}", job.payload or b"")]

    def finish(self, target: Target, written: Totals) -> list[Command]:
        return [("SADD", target.prefix, *written.labels("jobs"))]


TOY = Toy()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``family=toy`` known for the rest of the test, by an entry point in ``folder``."""
    metadata = folder / "toy-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[ferryman.families]\ntoy = {__name__}:TOY\n")
    monkeypatch.syspath_prepend(folder)
