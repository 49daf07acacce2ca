"""A first run takes nothing away from a target that is free of jobs, and leaves what a run that does would have left."""

from __future__ import annotations

import pytest
import redis
from attrs import evolve
from ferryman.compat.kue import FAMILY as KUE
from ferryman.migrations import journal
from ferryman.migrations.local import PART, LocalEngine
from ferryman.migrations.plan import Plan, decide
from ferryman.migrations.run import JOURNAL
from ferryman.migrations.store import open_store
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.native.overflow import Overflow
from ferryman.schema.tagged_json import decode_tagged
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ..support.captures import Capture, captures, load
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000


def plan_between(server: Server, case: Capture) -> tuple[Address, Address, Plan]:
    source = Address.parse(server.url(0, family=case.system, prefix=case.prefix))
    target = Address.parse(server.url(1))
    return source, target, Plan.between(source, target, case.captured_at_ms)


def migrate(source: Address, target: Address, plan: Plan) -> int:
    return LocalEngine().migrate(source, target, plan, lambda _: None).written


def written(server: Server, db: int) -> dict[bytes, object]:
    """All keys but the journal. An overflow has the order in which the source gave it, and that may change."""
    entries = {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(JOURNAL.encode())}
    return {key: _decoded(entry.value) if entry.redis_type == "hash" else entry for key, entry in entries.items()}


def _decoded(fields: dict[bytes, bytes]) -> dict[bytes, object]:
    return {name: decode_tagged(value) if name == Overflow.FIELD else value for name, value in fields.items()}


def taken_away(client: redis.Redis) -> int:
    """How many commands the server has had that take something away from a queue."""
    return sum(stats["calls"] for name, stats in client.info("commandstats").items() if name in ("cmdstat_zrem", "cmdstat_srem"))


@pytest.mark.parametrize("case", [case for system in ("kue", "qless", "bee", "pjq") for case in captures(system)[:3]], ids=str)
def test_the_target_is_the_same(case: Capture, server: Server) -> None:
    load(case, server.client())
    source, target, plan = plan_between(server, case)
    client = server.client()
    client.config_resetstat()
    count = migrate(source, target, plan)
    assert count
    assert taken_away(client) == 0

    seen = read_keyspace(get_family(case.system), dump(client).values(), case.prefix, case.captured_at_ms)
    jobs = [
        decision.job for subject in seen.subjects.values() if (decision := decide(subject, seen.keyspace, plan)).job is not None
    ]
    there, totals = server.client(2), Totals()
    for job in jobs:
        plan.writer.tally_written(job, totals)
    for command in (
        *(command for job in jobs for command in plan.writer.write(job, plan.target)),
        *plan.writer.finish(plan.target, totals),
    ):
        there.execute_command(*command)
    assert taken_away(client)
    assert written(server, 1) == written(server, 2)


def test_two_records_of_one_job_leave_it_in_one_place(server: Server, client: redis.Redis) -> None:
    """kue lends a number to a job whose id is none, another one for each state: an older record may still stand."""
    waiting = Job("a-1", "mail", "mail", State.WAITING, payload=b"{}", created_at=NOW)
    store(client, KUE, "q", [waiting, evolve(waiting, state=State.COMPLETED, attempts=1, finished_at=NOW + 1)], NOW)
    source, target = Address.parse(server.url(0, family="kue")), Address.parse(server.url(1))
    assert migrate(source, target, Plan.between(source, target, NOW)) == 2
    there = server.client(1)
    places = [key for key in there.scan_iter("ferryman:{mail}:*", _type="zset") if there.zscore(key, "a-1") is not None]
    assert len(places) == 1


def test_a_run_that_goes_on_takes_away_what_an_earlier_one_may_have_left(server: Server, client: redis.Redis) -> None:
    """A batch that is applied in part does not count, and its jobs may have moved at the source until it is sent again."""
    store(client, KUE, "q", [Job("7", "mail", "mail", State.WAITING, payload=b"{}", created_at=NOW)], NOW)
    source, target = Address.parse(server.url(0, family="kue")), Address.parse(server.url(1))
    plan = Plan.between(source, target, NOW)
    with open_store(target) as opened:
        journal.begin(opened, source, target, plan, PART, None)
    there = server.client(1)
    there.zadd("ferryman:{mail}:done", {"7": NOW})
    LocalEngine().migrate(source, target, plan, lambda _: None, resume=True)
    assert there.zscore("ferryman:{mail}:done", "7") is None
    assert there.zscore("ferryman:{mail}:waiting", "7") is not None
