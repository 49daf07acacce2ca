"""Generated jobs of pjq: the same for everybody, sound, and carried by the writer without loss."""

from __future__ import annotations

from collections import Counter

import redis
from ferryman.compat.pjq import FAMILY
from ferryman.compat.pjq.generate import QUEUES
from ferryman.schema.job import State

from ...support.captures import dump, survey
from ...support.keyspace import store
from .test_writer import read_all

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(FAMILY.generate(50, 7, NOW)) == list(FAMILY.generate(50, 7, NOW))
    assert list(FAMILY.generate(50, 7, NOW)) != list(FAMILY.generate(50, 8, NOW))


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(FAMILY.generate(5000, 1, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 50 - share) < 3 for queue, share in QUEUES)
    assert states.keys() == {State.WAITING, State.ACTIVE, State.COMPLETED, State.FAILED}
    assert 0.4 < states[State.WAITING] / 5000 < 0.55
    assert len({job.id for job in jobs}) == 5000
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 200 < sizes[2500] < 1000
    assert sizes[-1] > 4000


def test_the_writer_carries_every_generated_job(client: redis.Redis) -> None:
    jobs = {job.id: job for job in FAMILY.generate(500, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, FAMILY, "", jobs.values(), NOW)
    found = read_all(dump(client).values())
    assert found == jobs
    assert {job.id: job.position for job in found.values()} == {job.id: job.position for job in jobs.values()}


def test_an_audit_of_generated_jobs_finds_nothing(client: redis.Redis) -> None:
    store(client, FAMILY, "", FAMILY.generate(500, 4, NOW), NOW)
    assert survey(FAMILY, dump(client).values(), "", NOW).findings() == []
