"""A server at maxmemory: publishing is refused with a typed error, everything that drains goes on. Each kind of server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.errors import PublishRefused
from ferryman.schema.native.scripts.exchange import Exchanges
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.servers import ServerKind, installed_servers

KINDS = installed_servers()
LEASE = 30_000
scripts = QueueScripts()
exchanges = Exchanges()


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[redis.Redis]:
    """A server with 200 jobs that has no memory left for another one."""
    kind: ServerKind = request.param
    with kind.start(tmp_path, "--maxmemory-policy", "noeviction") as server, server.client() as client:
        run(client, scripts.declare("q", {}))
        run(client, exchanges.fanout_bind("news", "q"))
        run(client, scripts.publish("q", "p", [Publication(f"p-{number}", b"x" * 500) for number in range(200)]))
        run(client, scripts.publish("q", "p", [Publication("p-200", b"x", due_ms=1)], now=0))
        client.config_set("maxmemory", 1)
        yield client


def test_publishing_is_refused_and_stores_nothing(full: redis.Redis) -> None:
    before = run(full, scripts.size("q"))
    with pytest.raises(PublishRefused, match=r"'q'.*maxmemory"):
        run(full, scripts.publish("q", "p", [Publication("p-300", b"x")]))
    with pytest.raises(PublishRefused, match=r"'news'.*maxmemory"):
        run(full, exchanges.fanout_publish("news", b"x", 100))
    after = run(full, scripts.size("q"))
    assert (before.waiting, before.scheduled) == (after.waiting, after.scheduled)


def test_all_jobs_can_be_taken_and_ended(full: redis.Redis) -> None:
    seen = []
    while taken := run(full, scripts.take("q", "ann", 50, LEASE)).jobs:
        ids = [job.id for job in taken]
        assert run(full, scripts.renew("q", "ann", LEASE))
        assert set(run(full, scripts.ack("q", "ann", ids))) == {"acked"}
        seen += ids
    assert len(set(seen)) == len(seen) == 201


def test_a_consumer_can_begin_hand_back_give_up_and_leave(full: redis.Redis) -> None:
    assert not run(full, scripts.declare("q", {})).created
    assert run(full, scripts.declare("replies", {"x-expires": 1_000})).created
    assert run(full, exchanges.declare("direct", "direct"))
    assert run(full, exchanges.bind("direct", "replies", "key"))
    assert run(full, exchanges.fanout_bind("news", "replies")) == b"0-0"
    assert run(full, exchanges.fanout_advance("news", "replies", b"1-1"))
    ids = [job.id for job in run(full, scripts.take("q", "ann", 10, LEASE)).jobs]
    assert run(full, scripts.requeue("q", "ann", ids[:1])) == (True,)
    assert run(full, scripts.release("q", "ann", ids[1:2])) == 1
    assert run(full, scripts.reject("q", "ann", ids[2], "rejected"))
    assert run(full, scripts.revive("q", [ids[2]])) == (True,)
    assert run(full, scripts.forget("q", "ann")) == 7


def test_a_dead_consumer_s_jobs_are_reclaimed(full: redis.Redis) -> None:
    run(full, scripts.take("q", "ann", 10, 1_000, now=10_000))
    assert run(full, scripts.advance("q", now=11_000)).reclaimed == 10


def test_a_queue_can_be_emptied_and_deleted(full: redis.Redis) -> None:
    assert run(full, scripts.remove("q", "p-0")) == "waiting"
    assert run(full, scripts.purge("q")).jobs == 200
    assert run(full, scripts.delete("q")).status == "deleted"
