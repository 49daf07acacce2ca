"""In parts by several processes or in memory, every captured keyspace: the same findings, jobs, summaries and, byte for byte, the
same target.

tests/spark/test_same_as_local.py runs these with Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TypeVar
from urllib.parse import quote

import pytest
from attrs import evolve
from ferryman.compat.kue import FAMILY as KUE
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Census, Difference, Engine, Summary, Verification, comparison
from ferryman.migrations.engine.carrier import Carrier
from ferryman.migrations.engine.groups import Groups
from ferryman.migrations.engine.job_selection import JobSelection, Mismatch
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Active, Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry
from ferryman.schema.family import family_names
from ferryman.schema.job import State
from ferryman.schema.rule import Finding
from ferryman.schema.tagged_json import decode_tagged, encode_tagged
from ferryman.testing.keyspaces import dump, store

from ..support.captures import Capture, capture, captures, load
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

T = TypeVar("T")

LOCAL = MemoryEngine()

BACK = ("crashed", "hash-tag")
"""The captures that are carried to their own family again, the others to ferryman: each path is taken by two."""


EVERY = [case for family in family_names() for case in captures(family)]


@pytest.fixture(scope="module")
def engine() -> Carrier:
    """An engine that cuts even the smallest keyspace into parts."""
    return ProcessEngine(tasks=3)


@pytest.fixture(params=EVERY, ids=str)
def loaded(request: pytest.FixtureRequest, server: Server) -> Capture:
    """A capture, in database 0. Jobs of kue have keys of their own, those of bee tell each other how they stand, and those of
    kombu are items of lists."""
    capture: Capture = request.param
    load(capture, server.client())
    return capture


@pytest.fixture
def source(server: Server, loaded: Capture) -> Address:
    return Address.parse(server.url(0, family=loaded.system, prefix=quote(loaded.prefix)))


def reported(run: Callable[[Callable[[T], None]], object]) -> list[T]:
    """What a run reports, in an order that depends on nothing else."""
    found: list[T] = []
    run(found.append)
    return sorted(found, key=repr)


def target_of(server: Server, db: int, family: str) -> Address:
    return Address.parse(server.url(db, family=family, prefix="new"))


def keyspace(server: Server, db: int) -> dict[bytes, Entry]:
    """Every key of a target but the journal, which knows its own source and moment."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(b"ferryman-migration:")}


def migrate(engine: Engine, source: Address, target: Address, plan: Plan) -> tuple[Summary, list[Finding]]:
    summaries: list[Summary] = []
    findings = reported(lambda report: summaries.append(engine.migrate(source, target, plan, report)))
    return evolve(summaries[0], seconds=0), findings


def verify(engine: Engine, source: Address, target: Address, plan: Plan) -> tuple[Verification, list[Difference]]:
    outcomes: list[Verification] = []
    differences = reported(lambda report: outcomes.append(engine.verify(source, target, plan, report)))
    return evolve(outcomes[0], seconds=0), differences


def test_an_audit_finds_the_same(engine: Carrier, loaded: Capture, source: Address) -> None:
    now = loaded.captured_at_ms
    censuses: list[Census] = []
    findings = reported(lambda report: censuses.append(engine.audit(source, now, report)))
    assert findings == reported(lambda report: censuses.append(LOCAL.audit(source, now, report)))
    assert censuses[0] == censuses[1]


@pytest.mark.parametrize("family", ["bee", "qless"])
def test_jobs_are_told_what_others_say_of_them(engine: Carrier, server: Server, family: str) -> None:
    case = capture(family, "healthy")
    load(case, server.client())
    source = Address.parse(server.url(0, family=family, prefix=quote(case.prefix)))
    assert list(engine.jobs(source, case.captured_at_ms)) == list(LOCAL.jobs(source, case.captured_at_ms))
    findings = reported(lambda report: engine.audit(source, case.captured_at_ms, report))
    assert findings == reported(lambda report: LOCAL.audit(source, case.captured_at_ms, report))


def test_jobs_are_listed_in_the_same_order(engine: Carrier, loaded: Capture, source: Address) -> None:
    jobs = list(engine.jobs(source, loaded.captured_at_ms))
    expected = list(LOCAL.jobs(source, loaded.captured_at_ms))
    assert jobs == expected
    assert [job.position for job in jobs] == [job.position for job in expected]


def test_queues_have_the_same_numbers(engine: Carrier, loaded: Capture, source: Address) -> None:
    found = engine.queues(source, loaded.captured_at_ms)
    assert found == LOCAL.queues(source, loaded.captured_at_ms)
    assert found


def test_a_migration_leaves_the_same_keyspace_and_is_verified(
    engine: Carrier, server: Server, loaded: Capture, source: Address
) -> None:
    family = loaded.system if loaded.name in BACK else "ferryman"
    in_memory, in_parts = target_of(server, 1, family), target_of(server, 2, family)
    plans = [Plan.between(source, target, loaded.captured_at_ms) for target in (in_memory, in_parts)]
    assert migrate(engine, source, in_parts, plans[1]) == migrate(LOCAL, source, in_memory, plans[0])
    assert keyspace(server, 2) == keyspace(server, 1)
    outcome, differences = verify(engine, source, in_parts, plans[1])
    assert (outcome, differences) == verify(LOCAL, source, in_memory, plans[0])
    assert not differences
    assert outcome.matched == outcome.target_jobs > 0


def test_jobs_can_be_filtered_by_queue_and_state(engine: Carrier, server: Server) -> None:
    capture = next(each for each in captures("kue") if each.name == "healthy")
    load(capture, server.client())
    source = Address.parse(server.url(0, family="kue"))
    now = capture.captured_at_ms
    found = list(engine.jobs(source, now, "email", State.WAITING))
    assert found == list(LOCAL.jobs(source, now, "email", State.WAITING))
    assert found


def test_verify_names_the_same_differences(engine: Carrier, server: Server) -> None:
    capture = next(each for each in captures("kue") if each.name == "healthy")
    load(capture, server.client())
    source, target = Address.parse(server.url(0, family="kue")), target_of(server, 1, "kue")
    plan = Plan.between(source, target, capture.captured_at_ms)
    migrate(LOCAL, source, target, plan)
    client = server.client(1)
    waiting = client.zrange("new:jobs:email:inactive", 0, -1)
    assert isinstance(waiting, list)
    client.hset("new:job:1", "data", '{"changed": true}')
    client.delete("new:job:2")
    client.copy("new:job:3", "new:job:9999")
    client.hset("new:job:9999", "type", "another")
    client.zadd("new:jobs:email:inactive", {member: -rank for rank, member in enumerate(waiting)})
    outcome, differences = verify(engine, source, target, plan)
    assert (outcome, differences) == verify(LOCAL, source, target, plan)
    assert {"payload", "missing", "unexpected", "order"} <= {difference.field for difference in differences}


def test_verify_names_jobs_that_were_to_stay_at_the_source_and_that_the_target_has(engine: Carrier, server: Server) -> None:
    source, target, now = Address.parse(server.url(0, family="kue")), target_of(server, 1, "ferryman"), 1_800_000_000_000
    generate_keyspace(source, KeyspaceSpec(300, 7, now))
    plan = Plan.between(source, target, now)
    migrate(engine, source, target, plan)
    refusing = evolve(plan, active=Active.REFUSE)
    outcome, differences = verify(engine, source, target, refusing)
    assert (outcome, differences) == verify(LOCAL, source, target, refusing)
    assert {(each.field, each.source) for each in differences} == {("unexpected", "refused by MIGRATE-ACTIVE")}
    assert len(differences) == outcome.refused > 3


def test_verify_sees_each_kind_of_damage_to_a_target_of_our_own(engine: Carrier, server: Server) -> None:
    """Both sides come as tables; what differs in one job of a thousand must show."""
    now = 1_800_000_000_000
    jobs = list(generate(300, 5, now))
    store(server.client(), KUE, "q", jobs, now)
    source, target = Address.parse(server.url(0, family="kue")), target_of(server, 1, "ferryman")
    plan = Plan.between(source, target, now)
    migrate(engine, source, target, plan)
    assert verify(engine, source, target, plan)[0].matched == len(jobs)
    client = server.client(1)
    waiting = [job for job in jobs if job.state is State.WAITING and job.queue == "email"]
    keys = [f"new:{{email}}:job:{job.id}" for job in waiting]
    changes = ({"payload": "{}"}, {"name": "other"}, {"published_at": 5}, {"deliveries": 7}, {"consumer": "w"}, {"error": "no"})
    for key, fields in zip(keys, changes, strict=False):
        client.hset(key, mapping=fields)
    overflow = client.hget(keys[6], "job")
    assert overflow is not None
    client.hset(keys[6], "job", overflow.replace(b'"max_attempts":', b'"max_attempts":4'))
    client.delete(keys[7])
    client.zrem("new:{email}:waiting", waiting[7].id)
    client.copy(keys[8], "new:{email}:job:stray")
    client.zadd("new:{email}:waiting", {"stray": 2**44})
    places = [client.zscore("new:{email}:waiting", job.id) for job in waiting[9:11]]
    client.zadd("new:{email}:waiting", {job.id: score for job, score in zip(waiting[9:11], reversed(places), strict=True)})
    done = next(job for job in jobs if job.state is State.COMPLETED)
    client.zincrby(f"new:{{{done.queue}}}:done", 1, done.id)
    outcome, differences = verify(engine, source, target, plan)
    assert (outcome, differences) == verify(LOCAL, source, target, plan)
    fields = {difference.field for difference in differences}
    assert {"payload", "name", "created_at", "attempts", "worker", "error", "max_attempts"} <= fields
    assert {"missing", "unexpected", "order", "finished_at"} <= fields


@pytest.mark.parametrize("family", family_names())
def test_many_jobs_are_carried_the_same_and_none_is_compared_field_by_field_for_nothing(
    engine: Carrier, server: Server, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many that those of most kinds are in tables, whether their family reads them so or not."""
    source, now = Address.parse(server.url(0, family=family)), 1_800_000_000_000
    generate_keyspace(source, KeyspaceSpec(1_500, 7, now))
    in_memory, in_parts = target_of(server, 1, "ferryman"), target_of(server, 2, "ferryman")
    plans = [Plan.between(source, target, now) for target in (in_memory, in_parts)]
    assert migrate(engine, source, in_parts, plans[1]) == migrate(LOCAL, source, in_memory, plans[0])
    assert keyspace(server, 2) == keyspace(server, 1)
    compared: list[Mismatch] = []

    def select(mismatches: Groups[Mismatch], expected: bool) -> JobSelection:
        found = chain.from_iterable(map(mismatches.rows, range(mismatches.buckets)))
        compared.extend(each for each in found if each.expected == expected)
        return JobSelection(mismatches, expected)

    monkeypatch.setattr(comparison, "JobSelection", select)
    outcome, differences = verify(engine, source, in_parts, plans[1])
    assert (outcome, differences) == verify(LOCAL, source, in_memory, plans[0])
    assert not differences
    assert not compared
    assert bool(outcome.refused) is (family == "qless")


@pytest.mark.parametrize("family", ["bee", "kickq", "qless"])
def test_verify_sees_what_changed_in_a_history_or_in_tags(engine: Carrier, server: Server, family: str) -> None:
    """Both sides come as tables, or go into some."""
    source, target, now = Address.parse(server.url(0, family=family)), target_of(server, 1, "ferryman"), 1_800_000_000_000
    generate_keyspace(source, KeyspaceSpec(1_500, 7, now))
    plan = Plan.between(source, target, now)
    migrate(engine, source, target, plan)
    client, expected = server.client(1), set()
    for field, change in (("history", b'{"changed":1,'), ("tags", b'"changed","')):
        before, after = (f'"{field}":['.encode() + text for text in (change[:1], change))
        for key in client.scan_iter("new:{*}:job:*"):
            overflow = client.hget(key, "job") or b""
            if before in overflow:
                client.hset(key, "job", overflow.replace(before, after))
                expected.add(field)
                break
    outcome, differences = verify(engine, source, target, plan)
    assert (outcome, differences) == verify(LOCAL, source, target, plan)
    assert {difference.field for difference in differences} == expected
    assert expected == ({"history"} if family == "kickq" else {"history", "tags"})


def test_the_order_of_what_other_families_keep_is_no_difference(engine: Carrier, server: Server) -> None:
    """Digests differ then, and the jobs are compared field by field."""
    source, target, now = Address.parse(server.url(0, family="kickq")), target_of(server, 1, "ferryman"), 1_800_000_000_000
    generate_keyspace(source, KeyspaceSpec(200, 7, now))
    plan = Plan.between(source, target, now)
    migrate(engine, source, target, plan)
    client, turned = server.client(1), 0
    for key in client.scan_iter("new:{*}:job:*"):
        overflow = decode_tagged(client.hget(key, "job") or b"{}")
        for name in ("extra", "fields"):
            if overflow.get(name):
                overflow[name] = dict(reversed(overflow[name].items()))
        item = overflow.get("extra", {}).get("kickq", {}).get("item", {})
        if len(item) > 1:
            overflow["extra"]["kickq"]["item"] = dict(reversed(item.items()))
            client.hset(key, "job", encode_tagged(overflow))
            turned += 1
    outcome, differences = verify(engine, source, target, plan)
    assert (outcome, differences) == verify(LOCAL, source, target, plan)
    assert turned > 100
    assert not differences
    assert outcome.matched == outcome.source_jobs
