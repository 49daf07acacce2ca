"""What generated bee jobs are like, beside what holds in every family."""

from __future__ import annotations

from collections import Counter

import redis
from attrs import evolve
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.generate import QUEUES
from ferryman.schema.job import State
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.families import assert_in_shares

NOW = 1_800_000_000_000


def test_all_queues_states_and_ties_occur() -> None:
    jobs = list(FAMILY.generate(4000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES)
    states = Counter(job.state for job in jobs)
    assert states.keys() == set(State) - {State.UNKNOWN}
    assert 1300 < states[State.WAITING] < 1900
    assert sum(job.extra.get("bee", {}).get("state") == "duplicate" for job in jobs) > 50
    assert sum(bool(job.tags) for job in jobs) > 200


def test_an_audit_of_generated_jobs_finds_only_running_ones_without_a_heartbeat(client: redis.Redis) -> None:
    jobs = list(FAMILY.generate(400, 4, NOW))
    store(client, FAMILY, "bee", jobs, NOW)
    found = {(finding.rule, finding.job_id) for finding in read_keyspace(FAMILY, dump(client).values(), "bee", NOW).findings()}
    assert found == {("BEE-16", job.id) for job in jobs if job.state is State.ACTIVE}


def test_jobs_of_another_family_made_of_generated_ones_are_valid_too(client: redis.Redis) -> None:
    jobs = [evolve(job, extra={}, history=()) for job in FAMILY.generate(200, 5, NOW) if job.state is not State.ACTIVE]
    store(client, FAMILY, "bee", jobs, NOW)
    findings = read_keyspace(FAMILY, dump(client).values(), "bee", NOW).findings()
    assert [finding for finding in findings if finding.rule != "BEE-22"] == []
