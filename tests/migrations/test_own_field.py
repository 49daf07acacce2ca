"""A field named ferryman that the application itself keeps in its jobs' records comes back from a migration, in any state."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.overflow import FIELD
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import State
from ferryman.testing.keyspaces import store

from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


@pytest.mark.parametrize("name", ["kue"])
def test_the_field_comes_back_in_every_state_also_of_active_jobs(server: Server, client: redis.Redis, name: str) -> None:
    family, engine = get_family(name), LocalEngine()
    store(client, family, family.default_prefix, list(family.generate(60, 5, NOW)), NOW)
    source, between = Address.parse(server.url(family=name)), Address.parse(server.url(1))
    back = Address.parse(server.url(2, family=name))
    jobs = {job.id.encode(): job for job in engine.jobs(source, NOW)}
    assert State.ACTIVE in {job.state for job in jobs.values()}

    start = b"q:job:"
    for job_id in jobs:
        client.hset(start + job_id, FIELD.decode(), b"mine " + job_id)
    for first, second in ((source, between), (between, back)):
        plan = Plan.between(first, second, NOW, lossy=True)
        engine.migrate(first, second, plan, lambda _: None)
        differing = engine.verify(first, second, plan, lambda _: None).by_field
        assert set(differing) <= {"order"}  # where active jobs go back to is another matter
    jobs = {job.id.encode(): jobs[job.id.encode()] for job in engine.jobs(back, NOW)}
    assert State.ACTIVE in {job.state for job in jobs.values()}
    with server.client(2) as found:
        assert {job_id: found.hget(start + job_id, FIELD.decode()) for job_id in jobs} == {
            job_id: b"mine " + job_id for job_id in jobs
        }
        found.flushdb()
    with server.client(1) as target:
        target.flushdb()
