"""Generated qless jobs: the same for everybody, sound, and carried by the writer without loss."""

from __future__ import annotations

from collections import Counter

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.compat.qless.generate import QUEUES, STATES, generate
from ferryman.compat.qless.keys import Generation, era_of
from ferryman.schema.job import State

from ...support.captures import dump, survey
from ...support.keyspace import store

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(generate(50, 7, NOW)) == list(generate(50, 7, NOW))
    assert list(generate(50, 7, NOW)) != list(generate(50, 8, NOW))


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(3000, 2, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 30 - share) < 4 for queue, share in QUEUES)
    assert all(abs(states[state] / 30 - share) < 4 for state, share in STATES)
    assert len({job.id for job in jobs}) == 3000
    assert any(job.tags for job in jobs)
    assert any(job.depends_on for job in jobs)


@pytest.mark.parametrize(("seed", "generation"), [(4, Generation.UNIFIED), (5, Generation.REQLESS)])
def test_the_writer_carries_every_generated_job_and_an_audit_finds_nothing(
    client: redis.Redis, seed: int, generation: Generation
) -> None:
    jobs = {job.id: job for job in generate(500, seed, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, FAMILY, "ql", jobs.values(), NOW)
    seen = survey(FAMILY, dump(client).values(), "ql", NOW)
    read = (FAMILY.read(subject, seen.keyspace) for subject in seen.subjects.values())
    assert {job.id: job for job in read if job is not None} == jobs
    assert seen.findings() == []
    assert era_of(seen.keyspace).generation is generation


def test_odd_seeds_have_jobs_that_wait_for_a_throttle() -> None:
    throttled = [job for job in generate(500, 5, NOW) if job.extra["qless"].get("state") == "throttled"]
    assert throttled
    assert all(job.state is State.BLOCKED and not job.depends_on for job in throttled)
