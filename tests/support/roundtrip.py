"""Jobs into a real server by a family's writer, and back by its reader: what the writer tests of all families do."""

from __future__ import annotations

from collections.abc import Iterable

import redis
from attrs import evolve, frozen
from ferryman.schema.fact import Entry
from ferryman.schema.family import KeyFamily, Target
from ferryman.schema.job import Job
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import dump, read_keyspace, store
from hypothesis import HealthCheck, settings

from .captures import Capture
from .effort import examples

on_a_server = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(20)
)
"""For properties that take the ``client`` fixture: each example empties the server itself."""


@frozen(eq=False)
class Roundtrip:
    """One keyspace of a family, in database 0 of whatever server a test has."""

    family: KeyFamily
    prefix: str
    now_ms: int

    def of(self, case: Capture) -> Roundtrip:
        """The same where and when a capture was made."""
        return evolve(self, prefix=case.prefix, now_ms=case.captured_at_ms)

    @property
    def target(self) -> Target:
        return Target(self.prefix, self.now_ms)

    def store(self, client: redis.Redis, jobs: Iterable[Job]) -> None:
        """What a migration does: every job, then what is done once."""
        store(client, self.family, self.prefix, jobs, self.now_ms)

    def read(self, entries: Iterable[Entry]) -> dict[str, Job]:
        """The jobs that stand in these keys, by id."""
        return {job.id: job for job in read_keyspace(self.family, entries, self.prefix, self.now_ms).jobs()}

    def standing(self, client: redis.Redis) -> dict[str, Job]:
        """The jobs that the server holds now."""
        return self.read(dump(client).values())

    def findings(self, client: redis.Redis) -> list[Finding]:
        """What an audit of the server says now."""
        return read_keyspace(self.family, dump(client).values(), self.prefix, self.now_ms).findings()

    def errors(self, job: Job) -> list[str]:
        """The rules by which the writer can't store a job."""
        return [finding.rule for finding in self.family.incompatibilities(job) if finding.severity is Severity.ERROR]


def by_id(job: Job) -> str:
    """What makes drawn jobs different from each other."""
    return job.id
