"""A migration carries no pause, and names the queues that were paused at the source: as it is done, rehearsed, and done again."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.engine import Summary
from ferryman.migrations.engine.carrier import Carrier
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.plan import Plan
from ferryman.operations.steering import open_steering
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store

from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_700_000_000_000
QUEUES = ("bulk", "mail", "video")
PAUSED = ["mail", "video"]


@pytest.fixture(params=["ferryman", "qless"])
def source(request: pytest.FixtureRequest, server: Server, client: redis.Redis) -> Address:
    """A keyspace of three queues, of which two are paused."""
    family = get_family(request.param)
    address = Address.parse(server.url(family=request.param))
    jobs = [Job(f"{n:032x}", queue, "send", State.WAITING, priority=0, payload=b"{}") for n, queue in enumerate(QUEUES)]
    store(client, family, address.prefix, jobs, NOW)
    with open_steering(address) as steering:
        for queue in PAUSED:
            assert steering.pause(queue)
    return address


@pytest.mark.parametrize("engine", [MemoryEngine(), ProcessEngine(tasks=2)], ids=["memory", "processes"])
def test_the_summary_names_them(source: Address, server: Server, engine: Carrier) -> None:
    target = Address.parse(server.url(1, prefix="new"))
    plan = Plan.between(source, target, NOW)
    summaries = [
        engine.migrate(source, target, plan, lambda _finding: None, dry_run=True),
        engine.migrate(source, target, plan, lambda _finding: None),
        engine.migrate(source, target, plan, lambda _finding: None),
    ]
    assert [summary.repeated for summary in summaries] == [False, False, True]
    assert [summary.paused for summary in summaries] == [PAUSED] * 3
    assert Summary.from_dict(summaries[0].to_dict()).paused == PAUSED
    with open_steering(target) as steering:
        assert steering.paused(QUEUES) == set()


def test_the_command_says_it_and_how_to_pause_them_there(source: Address, server: Server) -> None:
    rehearsed = ferryman("migrate", source.url(), server.url(1, prefix="new"), "--dry-run")
    carried = ferryman("migrate", source.url(), server.url(1, prefix="new"))
    for outcome in (rehearsed, carried):
        assert outcome.status == 0, outcome.stderr
        told = " ".join(outcome.stdout.split())
        assert "a migration carries no pause: mail, video. `ferryman pause` pauses them there." in told
    (*_, summary) = ferryman("migrate", source.url(), server.url(1, prefix="new"), "--format", "json").lines()
    assert summary["paused"] == PAUSED


def test_a_target_that_knows_no_pauses_is_not_said_to(source: Address, server: Server) -> None:
    told = ferryman("migrate", source.url(), server.url(1, family="bee"), "--dry-run").stdout
    assert "carries no pause" in told
    assert "ferryman pause" not in told
