"""Generated kickq jobs: the same for everybody, sound, and carried by the writer without loss."""

from __future__ import annotations

from collections import Counter

import redis
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.generate import QUEUES, STATES

from ...support.captures import dump, survey
from ...support.keyspace import store
from .keyspaces import NOW


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(FAMILY.generate(50, 7, NOW)) == list(FAMILY.generate(50, 7, NOW))
    assert list(FAMILY.generate(50, 7, NOW)) != list(FAMILY.generate(50, 8, NOW))


def test_all_queues_and_states_occur_in_about_their_shares(client: redis.Redis) -> None:
    jobs = list(FAMILY.generate(3000, 1, NOW))
    queues = Counter(job.queue for job in jobs)
    assert all(abs(queues[queue] / 30 - share) < 4 for queue, share in QUEUES)
    assert [job.id for job in jobs] == [str(number) for number in range(1, 3001)]
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 100 < sizes[1500] < 500
    assert sizes[-1] > 4000
    store(client, FAMILY, "kickq", jobs, NOW)
    assert all(abs(client.scard(f"kickq:state:{word}") / 30 - share) < 4 for word, share in STATES)


def test_the_writer_carries_every_generated_job_in_order(client: redis.Redis) -> None:
    jobs = {job.id: job for job in FAMILY.generate(500, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, FAMILY, "kickq", jobs.values(), NOW)
    seen = survey(FAMILY, dump(client).values(), "kickq", NOW)
    standing = {subject.job_id: FAMILY.read(subject, seen.keyspace) for subject in seen.subjects.values()}
    assert standing == jobs
    assert {job_id: job.position for job_id, job in standing.items() if job} == {job.id: job.position for job in jobs.values()}
    assert client.hexists("kickq:job:1", "ferryman") is False


def test_an_audit_of_generated_jobs_finds_nothing(client: redis.Redis) -> None:
    store(client, FAMILY, "kickq", FAMILY.generate(500, 4, NOW), NOW)
    seen = survey(FAMILY, dump(client).values(), "kickq", NOW)
    assert seen.findings() == []
    assert FAMILY.version(seen.keyspace) == "1.0 to 1.1"
