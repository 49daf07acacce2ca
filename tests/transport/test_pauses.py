"""Paused queues and real Celery workers; actions of operators on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from ferryman.operations.steering import open_steering
from ferryman.schema.connection.address import Address
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.steering import Action, JobFilter

from ..conftest import SERVERS
from ..support.clusters import Cluster, cluster
from ..support.command import ferryman
from ..support.servers import Server
from ..support.workers import Ledger, send, worker

NOTE = "tests.support.tasks.note"
scripts = QueueScripts()


def test_a_pause_outlasts_its_workers_and_its_end_wakes_them(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with worker(server, tmp_path):
        send(server, [(NOTE, ["before"], {})])
        ledger.wait_for("run", 1)
        assert ferryman("pause", server.url(), "celery").status == 0
        send(server, [(NOTE, ["while it is paused"], {})])
    with worker(server, tmp_path, name="w2") as second:
        send(server, [(NOTE, ["delayed"], {"countdown": 1})])
        assert client.zcard(scripts.keys("celery").waiting) >= 1
        assert ledger.names("run") == ["before"]
        assert ferryman("resume", server.url(), "celery").status == 0
        ledger.wait_for("run", 3)
        assert sorted(ledger.names("run")) == ["before", "delayed", "while it is paused"]
        assert second.stop() == 0


def test_a_promoted_task_runs_at_once(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with worker(server, tmp_path):
        send(server, [(NOTE, ["in an hour"], {"countdown": 3600})])
        (job,) = client.zrange(scripts.keys("celery").scheduled, 0, -1)
        assert ferryman("steer", server.url(), "promote", job.decode()).status == 0
        ledger.wait_for("run", 1)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_jobs_move_between_the_nodes_of_a_cluster(nodes: Cluster) -> None:
    queues = [f"queue {n}" for n in range(4)]
    with open_steering(Address.parse(nodes.url())) as steering:
        link = steering.link
        for queue in queues:
            link.run(scripts.declare(queue, {}))
            link.command("SADD", "ferryman:queues", queue)
        link.run(scripts.publish(queues[0], "p", [Publication(f"p-{n}", b"{}\n[%d]" % n) for n in range(300)]))
        assert steering.pause(queues[0])
        assert steering.paused(queues) == {queues[0]}
        for here, there in pairwise(queues):
            found = steering.act_on_matching(Action.MOVE, here, State.WAITING, JobFilter(), there)
            assert (found.done, found.left) == (300, 0)
        assert steering.find("p-7") == [queues[-1]]
        sizes = link.run_all([scripts.size(queue) for queue in queues])
        assert [size.waiting for size in sizes] == [0, 0, 0, 300]
        assert sum(size.dead for size in sizes) == 0
        assert steering.drain(queues[-1]).done == 300
