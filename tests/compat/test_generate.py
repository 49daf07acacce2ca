"""Generated keyspaces of every family: the same for everybody, sound, and carried by the family's own writer without loss."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.schema.job import Job

from ..support.captures import dump, survey
from ..support.families import GENERATING
from ..support.keyspace import store
from ..support.mending import NOW

each_family = pytest.mark.parametrize("name", GENERATING)
UNSURE = {"kue": {"KUE-15"}, "bee": {"BEE-16"}}
"""What rules say of some active jobs in sound keyspaces too: nothing tells whether their workers live."""

PLACED = {"bee", "kickq", "pjq"}
"""Those whose generated jobs have the very positions that they are read with."""


def generated(name: str, jobs: int, seed: int) -> list[Job]:
    return list(get_family(name).generate(jobs, seed, NOW))


@each_family
def test_the_same_seed_gives_the_same_jobs_and_another_one_others(name: str) -> None:
    assert generated(name, 50, 7) == generated(name, 50, 7)
    assert generated(name, 50, 7) != generated(name, 50, 8)


@each_family
def test_there_are_as_many_different_jobs_as_asked_for(name: str) -> None:
    assert len({job.id for job in generated(name, 3000, 1)}) == len(generated(name, 3000, 1)) == 3000


@each_family
def test_the_writer_carries_every_generated_job_to_its_place(client: redis.Redis, name: str) -> None:
    family = get_family(name)
    jobs = {(job.queue, job.id): job for job in generated(name, 500, 3)}
    assert [list(family.incompatibilities(job)) for job in jobs.values()] == [[]] * 500
    store(client, family, family.default_prefix, jobs.values(), NOW)
    back = {(job.queue, job.id): job for job in survey(family, dump(client).values(), family.default_prefix, NOW).jobs()}
    assert back == jobs
    if name in PLACED:
        assert {place: job.position for place, job in back.items()} == {place: job.position for place, job in jobs.items()}


@each_family
def test_an_audit_of_generated_jobs_finds_nothing(client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, generated(name, 500, 4), NOW)
    findings = survey(family, dump(client).values(), family.default_prefix, NOW).findings()
    assert [finding for finding in findings if finding.rule not in UNSURE.get(name, set())] == []
