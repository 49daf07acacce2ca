"""A keyspace with faults in it, in which jobs move: what an audit must tell, and what it must not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import redis
from attrs import evolve
from ferryman.migrations.engine import Census, Engine
from ferryman.migrations.throttle import Throttle
from ferryman.schema.connection.address import Address
from ferryman.schema.family import KeyFamily, Target
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import send, store

from . import movers
from .movers import Step
from .servers import Server

PREFIX = "moved:"

FAULTS = {
    "ferryman": tuple((f"NATIVE-{number}", State.FAILED) for number in (1, 2, 5, 8)),
    "kue": (("KUE-1", State.FAILED), ("KUE-5", State.SCHEDULED), ("KUE-4", State.COMPLETED)),
    "kombu": (("KOMBU-1", State.ACTIVE), ("KOMBU-2", State.ACTIVE), ("KOMBU-4", State.ACTIVE)),
}
"""Rules to break, and in which state a job must be for it: one that no mover touches."""

JOBS = 300
PACE = Throttle(2_000)
"""Keys a second: jobs move while others are read."""


class Moved:
    """A generated keyspace with faults in it, and the way to audit it while jobs move."""

    def __init__(self, server: Server, family: KeyFamily) -> None:
        self.server, self.family = server, family
        self.prefix = PREFIX if family.name == "kombu" else PREFIX[:-1]
        self.address = Address.parse(server.url(0, family=family.name, prefix=self.prefix))
        self.now_ms = time.time_ns() // 1_000_000
        self.jobs = list(family.generate(JOBS, 7, self.now_ms))
        client = server.client()
        store(client, family, self.prefix, [*self.jobs, *self._others()], self.now_ms)
        unbroken = iter(self.jobs)
        self.injected = {(rule, self._inject(client, rule, state, unbroken)) for rule, state in FAULTS[family.name]}

    def _others(self) -> Iterator[Job]:
        """Jobs at rest that make more keys of a system that has few: a queue each."""
        if self.family.name == "kombu":
            for number, job in enumerate(self.family.generate(JOBS, 8, self.now_ms)):
                if job.state is State.WAITING:
                    yield evolve(job, queue=f"other-{number}", extra={})

    def _inject(self, client: redis.Redis, rule: str, state: State, jobs: Iterator[Job]) -> str:
        job = next(job for job in jobs if job.state is state and job.payload)
        send(client, self.family.inject(rule, job, Target(self.prefix, self.now_ms)))
        return job.id

    def steps(self, client: redis.Redis) -> Iterator[Step]:
        move = {"ferryman": movers.native, "kue": movers.kue, "kombu": movers.kombu}[self.family.name]
        return move(client, self.prefix, self.jobs)

    def errors(self, engine: Engine) -> tuple[set[tuple[str, str | None]], Census]:
        """Rule and job of every finding that is an error."""
        found: list[Finding] = []
        census = engine.audit(self.address, self.now_ms, found.append)
        return {(finding.rule, finding.job_id) for finding in found if finding.severity is Severity.ERROR}, census

    def assert_only_injected(self, engine: Engine, most: int) -> None:
        """Audits until one saw a job that was moving, ``most`` times at most: each tells the faults, and nothing else."""
        passing = 0
        for _ in range(most):
            found, census = self.errors(engine)
            assert found == self.injected
            assert not census.unconfirmed
            passing += census.passing
            if passing:
                break
        assert passing
