"""Jobs by their ids: the same jobs as whoever reads the whole keyspace finds, by reading nothing else."""

from __future__ import annotations

import pytest
import redis
from attrs import evolve
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.lookup import jobs_by_id
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.family import get_family
from ferryman.schema.job import Job
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.testing.keyspaces import store

from ..support.captures import Capture, captures, load
from ..support.mending import NOW
from ..support.native import jobs as publications
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

FINDING = ("kue", "kickq", "qless", "bee")
"""Foreign families that find a job by its id."""
MISNAMED = {("qless/crashed-reqless", "mover")}
"""A job that stands in the slots of a throttle which it does not name: that is seen by who reads all keys alone."""


def by_name(jobs: list[Job]) -> dict[tuple[str, str], Job]:
    return {(job.queue, job.id): job for job in jobs}


@pytest.mark.parametrize("captured", [each for family in FINDING for each in captures(family)], ids=str)
def test_every_job_is_found_as_it_is_read(server: Server, client: redis.Redis, captured: Capture) -> None:
    load(captured, client)
    address, now_ms = Address.parse(server.url(family=captured.system, prefix=captured.prefix)), captured.captured_at_ms
    jobs = list(LocalEngine().jobs(address, now_ms))
    assert jobs
    found = jobs_by_id(address, [job.id for job in jobs], now_ms=now_ms)
    assert found is not None

    def alike(each: list[Job]) -> dict[tuple[str, str], Job]:
        return by_name([evolve(job, extra={}) if (str(captured), job.id) in MISNAMED else job for job in each])

    assert alike(jobs) == alike(found)
    assert jobs_by_id(address, [jobs[0].id], now_ms=now_ms) == [job for job in jobs if job.id == jobs[0].id]


def test_a_job_of_ferryman_is_found_in_each_queue_that_has_it(server: Server, client: redis.Redis) -> None:
    family, address = get_family("ferryman"), Address.parse(server.url())
    store(client, family, "ferryman", list(family.generate(300, 5, NOW)), NOW)
    jobs = list(LocalEngine().jobs(address, NOW))
    some = jobs[::20]
    found = jobs_by_id(address, [job.id for job in some], now_ms=NOW)
    assert found is not None
    wanted = {job.id for job in some}
    assert by_name(found) == by_name([job for job in jobs if job.id in wanted])
    one = some[0]
    assert jobs_by_id(address, [one.id], [one.queue], now_ms=NOW) == [one]
    assert jobs_by_id(address, [one.id], ["elsewhere"], now_ms=NOW) == []


def test_a_job_of_a_temporary_queue_is_found_by_the_names_of_all_keys(server: Server, client: redis.Redis) -> None:
    scripts, address = QueueScripts("ferryman"), Address.parse(server.url())
    run(client, scripts.declare("replies", {"x-expires": 600_000}))
    run(client, scripts.publish("replies", "p", publications(1)))
    (job,) = LocalEngine().jobs(address, NOW)
    assert jobs_by_id(address, [job.id, "nobody"], now_ms=NOW) == [job]


def test_nothing_else_is_read(server: Server, client: redis.Redis) -> None:
    family = get_family("kue")
    store(client, family, "q", list(family.generate(2_000, 5, NOW)), NOW)
    address = Address.parse(server.url(family="kue"))
    job = next(iter(LocalEngine().jobs(address, NOW)))
    client.config_resetstat()
    assert jobs_by_id(address, [job.id], now_ms=NOW) == [job]
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in client.info("commandstats").items()}
    assert "scan" not in calls
    assert sum(calls.values()) < 200


def test_where_ids_tell_no_key_all_jobs_are_left_to_read(server: Server) -> None:
    for url in (server.url(family="kombu"), server.url(family="pjq"), "ferryman+rdb:///dump.rdb?family=kue"):
        assert jobs_by_id(Address.parse(url), ["1"]) is None
