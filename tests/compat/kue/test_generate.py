"""What generated kue jobs are like, beside what holds in every family."""

from __future__ import annotations

import redis
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import QUEUES, STATES, generate
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.families import assert_in_shares

NOW = 1_800_000_000_000


def test_all_types_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES, within=3)
    assert_in_shares((job.state for job in jobs), STATES, within=3)
    assert [job.id for job in jobs] == [str(number) for number in range(1, 5001)]
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 100 < sizes[2500] < 500
    assert sizes[-1] > 4000


def test_an_audit_of_generated_jobs_finds_only_active_ones_without_ttl(client: redis.Redis) -> None:
    jobs = list(generate(500, 4, NOW))
    store(client, FAMILY, "q", jobs, NOW)
    findings = read_keyspace(FAMILY, dump(client).values(), "q", NOW).findings()
    held = {job.id for job in jobs if job.state == "active" and job.ttl is None}
    assert {(finding.rule, finding.job_id) for finding in findings} == {("KUE-15", job_id) for job_id in held}
