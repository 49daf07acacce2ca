"""Generated bee jobs: the same for everybody, sound, and carried by the writer without loss."""

from __future__ import annotations

from collections import Counter

import redis
from attrs import evolve
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.generate import QUEUES
from ferryman.schema.job import State

from ...support.captures import dump, survey
from ...support.keyspace import store
from .test_writer import read_all

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(FAMILY.generate(50, 7, NOW)) == list(FAMILY.generate(50, 7, NOW))
    assert list(FAMILY.generate(50, 7, NOW)) != list(FAMILY.generate(50, 8, NOW))


def test_all_queues_states_and_ties_occur() -> None:
    jobs = list(FAMILY.generate(4000, 1, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 40 - share) < 4 for queue, share in QUEUES)
    assert states.keys() == set(State) - {State.UNKNOWN}
    assert 1300 < states[State.WAITING] < 1900
    assert len({job.id for job in jobs}) == len(jobs) == 4000
    assert sum(job.extra.get("bee", {}).get("state") == "duplicate" for job in jobs) > 50
    assert sum(bool(job.tags) for job in jobs) > 200


def test_the_writer_carries_every_generated_job(client: redis.Redis) -> None:
    jobs = {job.id: job for job in FAMILY.generate(400, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, FAMILY, "bee", jobs.values(), NOW)
    back = read_all(dump(client).values(), NOW)
    assert back == jobs
    assert {job.id: job.position for job in back.values()} == {job.id: job.position for job in jobs.values()}


def test_an_audit_of_generated_jobs_finds_only_running_ones_without_a_heartbeat(client: redis.Redis) -> None:
    jobs = list(FAMILY.generate(400, 4, NOW))
    store(client, FAMILY, "bee", jobs, NOW)
    found = {(finding.rule, finding.job_id) for finding in survey(FAMILY, dump(client).values(), "bee", NOW).findings()}
    assert found == {("BEE-16", job.id) for job in jobs if job.state is State.ACTIVE}


def test_jobs_of_another_family_made_of_generated_ones_are_sound_too(client: redis.Redis) -> None:
    jobs = [evolve(job, extra={}, history=()) for job in FAMILY.generate(200, 5, NOW) if job.state is not State.ACTIVE]
    store(client, FAMILY, "bee", jobs, NOW)
    findings = survey(FAMILY, dump(client).values(), "bee", NOW).findings()
    assert [finding for finding in findings if finding.rule != "BEE-22"] == []
