"""What an audit leaves out: jobs that are accepted become no subjects, and nothing of what rules find or count is missing.

What is found is held against facts of all jobs, made in the plainest way (support/captures.py).
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
import redis
from attrs import evolve
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Census
from ferryman.migrations.fact_reader import FactReader
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.prefiltering_reader import InMemoryPrefilterReader
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry
from ferryman.schema.job import State
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ..support.keyspace import inject_all
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000
JOBS = list(generate(600, 11, NOW))
ADDRESS = Address.parse("ferryman://localhost/0?family=kue")


def comparable(findings: list[Finding]) -> list[Finding]:
    """The findings in one order, but for the seconds that keys have left to live."""
    return sorted((evolve(each, detail=re.sub(r" in \d+ s", "", each.detail)) for each in findings), key=repr)


def audited(server: Server) -> tuple[list[Finding], Census]:
    findings: list[Finding] = []
    census = LocalEngine().audit(Address.parse(server.url(0, family="kue")), NOW, findings.append)
    return comparable(findings), census


def expected(client: redis.Redis) -> tuple[list[Finding], Census]:
    seen = read_keyspace(FAMILY, dump(client).values(), "q", NOW)
    census = Census()
    for job in seen.jobs():
        census.count(job, NOW)
    return comparable(seen.findings()), census


def test_a_large_hash_may_begin_with_a_chunk_without_fields() -> None:
    entry = Entry(b"q:job:1", "hash", {})
    prefiltering = InMemoryPrefilterReader(ADDRESS, NOW)
    assert [*prefiltering.facts(entry), *prefiltering.rest()] == list(FactReader(ADDRESS).facts(entry))


def test_only_jobs_that_are_not_accepted_become_facts(client: redis.Redis) -> None:
    store(client, FAMILY, "q", JOBS, NOW)
    prefiltering, plain = InMemoryPrefilterReader(ADDRESS, NOW), FactReader(ADDRESS)
    entries = list(dump(client).values())
    facts = [fact for entry in entries for fact in prefiltering.facts(entry)]
    all_facts = [fact for entry in entries for fact in plain.facts(entry)]
    facts += prefiltering.rest()
    remembered, accepted = prefiltering.settle()
    facts += remembered
    active = {job.id for job in JOBS if job.state is State.ACTIVE and not job.ttl}
    assert {fact.job_id for fact in facts if fact.job_id} == active
    assert accepted.jobs == len(JOBS) - len(active)
    assert prefiltering.close().totals == plain.close().totals
    # Of those that the rules look at, all that is known.
    assert Counter(facts) == Counter(fact for fact in all_facts if fact.job_id is None or fact.job_id in active)


def test_every_rule_finds_in_a_damaged_keyspace_what_it_would_find_in_all_jobs(server: Server, client: redis.Redis) -> None:
    store(client, FAMILY, "q", JOBS, NOW)
    inject_all(client, FAMILY, "q", JOBS, NOW)
    found = audited(server)
    assert found == expected(client)
    assert {finding.rule for finding in found[0]} >= FAMILY.injectable


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([("SREM", "q:job:types", "email")], id="a type that nobody has registered"),
        pytest.param([("ZADD", "q:jobs:failed", 0, "02|17")], id="one place too many"),
        pytest.param([("ZREM", "q:jobs", "02|17")], id="one too few"),
        pytest.param([("ZINCRBY", "q:jobs", 1, "02|17")], id="another score"),
        pytest.param([("COPY", "q:jobs", "q:jobs:elsewhere:failed")], id="everybody somewhere else as well"),
        pytest.param([("DEL", "q:job:17")], id="no record"),
        pytest.param([("PEXPIRE", "q:jobs", 10**12)], id="an index that expires"),
        pytest.param([("PEXPIRE", "q:job:17", 10**12)], id="a record that expires"),
        pytest.param([("ZADD", "q:jobs", 0, "17", 0, "x", 0, "03|017")], id="members in other forms"),
        pytest.param([("DEL", "q:job:17"), ("SET", "q:job:17", "x")], id="a record of another type"),
        pytest.param([("RPUSH", "q:job:999999:log", "line")], id="a log of nobody"),
    ],
)
def test_damage_of_each_kind_is_seen(server: Server, client: redis.Redis, commands: list[tuple[str | int, ...]]) -> None:
    store(client, FAMILY, "q", JOBS[:60], NOW)
    before = audited(server)
    for command in commands:
        client.execute_command(*command)
    found = audited(server)
    assert found[0] != before[0]
    assert found == expected(client)
