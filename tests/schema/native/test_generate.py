"""Generated native queues: the same for everybody, sound, and stored without loss."""

from __future__ import annotations

from collections import Counter

import redis
from ferryman.schema.job import State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.generate import QUEUES, STATES, generate

from ...support.captures import dump, survey
from ...support.keyspace import store

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(generate(50, 7, NOW)) == list(generate(50, 7, NOW))
    assert list(generate(50, 7, NOW)) != list(generate(50, 8, NOW))


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 50 - share) < 3 for queue, share in QUEUES)
    assert all(abs(states[state] / 50 - share) < 3 for state, share in STATES)
    assert len({job.id for job in jobs}) == 5000


def test_every_generated_job_is_stored_whole_and_the_audit_finds_nothing(client: redis.Redis) -> None:
    jobs = {(job.queue, job.id): job for job in generate(500, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, FAMILY, "ferryman", jobs.values(), NOW)
    seen = survey(FAMILY, dump(client).values(), "ferryman", NOW)
    assert {place: FAMILY.read(subject, seen.keyspace) for place, subject in seen.subjects.items()} == jobs
    assert seen.findings() == []


def test_jobs_run_by_priority_and_in_the_order_of_their_making(client: redis.Redis) -> None:
    jobs = list(generate(500, 4, NOW))
    store(client, FAMILY, "ferryman", jobs, NOW)
    for queue, _ in QUEUES:
        waiting = [job for job in jobs if job.queue == queue and job.state is State.WAITING]
        ids = [job.id.encode() for job in sorted(waiting, key=lambda job: job.priority or 0)]
        tag = queue.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        assert client.zrange(f"ferryman:{{{tag}}}:waiting", 0, -1) == ids
