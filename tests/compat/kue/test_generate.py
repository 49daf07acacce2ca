"""Generated kue jobs: the same for everybody, sound, and carried by the writer without loss."""

from __future__ import annotations

from collections import Counter

import redis
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import QUEUES, STATES, generate
from ferryman.schema.family import Target

from ...support.captures import dump, survey
from .test_writer import read_all, store

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(generate(50, 7, NOW)) == list(generate(50, 7, NOW))
    assert list(generate(50, 7, NOW)) != list(generate(50, 8, NOW))


def test_all_types_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 50 - share) < 3 for queue, share in QUEUES)
    assert all(abs(states[state] / 50 - share) < 3 for state, share in STATES)
    assert [job.id for job in jobs] == [str(number) for number in range(1, 5001)]
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 100 < sizes[2500] < 500
    assert sizes[-1] > 4000


def test_the_writer_carries_every_generated_job(client: redis.Redis) -> None:
    jobs = {job.id: job for job in generate(500, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, jobs.values(), Target("q", NOW))
    assert read_all(dump(client).values()) == jobs


def test_an_audit_of_generated_jobs_finds_only_active_ones_without_ttl(client: redis.Redis) -> None:
    jobs = list(generate(500, 4, NOW))
    store(client, jobs, Target("q", NOW))
    findings = survey(FAMILY, dump(client).values(), "q", NOW).findings()
    held = {job.id for job in jobs if job.state == "active" and job.ttl is None}
    assert {(finding.rule, finding.job_id) for finding in findings} == {("KUE-15", job_id) for job_id in held}
