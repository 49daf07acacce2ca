"""What generated qless jobs are like, beside what holds in every family."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.compat.qless.generate import QUEUES, STATES, generate
from ferryman.compat.qless.keys import Generation, era_of
from ferryman.schema.job import State
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.families import assert_in_shares

NOW = 1_800_000_000_000


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(3000, 2, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES)
    assert_in_shares((job.state for job in jobs), STATES)
    assert any(job.tags for job in jobs)
    assert any(job.depends_on for job in jobs)


@pytest.mark.parametrize(("seed", "generation"), [(4, Generation.UNIFIED), (5, Generation.REQLESS)])
def test_the_seed_chooses_the_generation(client: redis.Redis, seed: int, generation: Generation) -> None:
    jobs = list(generate(500, seed, NOW))
    assert all(list(FAMILY.incompatibilities(job)) == [] for job in jobs)
    store(client, FAMILY, "ql", jobs, NOW)
    seen = read_keyspace(FAMILY, dump(client).values(), "ql", NOW)
    assert {job.id: job for job in seen.jobs()} == {job.id: job for job in jobs}
    assert seen.findings() == []
    assert era_of(seen.keyspace).generation is generation


def test_odd_seeds_have_jobs_that_wait_for_a_throttle() -> None:
    throttled = [job for job in generate(500, 5, NOW) if job.extra["qless"].get("state") == "throttled"]
    assert throttled
    assert all(job.state is State.BLOCKED and not job.depends_on for job in throttled)
