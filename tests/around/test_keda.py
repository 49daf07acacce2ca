"""What KEDA's scalers ask, and what they are told while tasks wait, are due, and run."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
import redis

from ..support.command import ferryman
from ..support.endpoint import exporter
from ..support.metrics import samples
from ..support.servers import Server, free_port
from ..support.topologies import wait_until
from ..support.workers import send, worker

HOLD = "tests.support.tasks.hold"
NAP = "tests.support.tasks.nap"
NOTE = "tests.support.tasks.note"
QUEUE = "celery"


def metrics_api(address: str, location: str = "backlog") -> int | None:
    """The number at ``valueLocation`` of the reply; None where the scaler would have an error, and keep what it has."""
    try:
        with urllib.request.urlopen(address.replace("/metrics", f"/backlog?queue={QUEUE}"), timeout=30) as reply:
            value = json.load(reply)
    except urllib.error.HTTPError:
        return None
    for step in location.split("."):
        value = value[step]
    return int(value)


def prometheus(address: str) -> float | None:
    """``sum(ferryman_queue_backlog{queue="celery"})``; None where there is no such series."""
    with urllib.request.urlopen(address, timeout=30) as reply:
        return samples(reply.read().decode()).get(("ferryman_queue_backlog", QUEUE))


def redis_scaler(client: redis.Redis, key: str = f"ferryman:{{{QUEUE}}}:waiting") -> int:
    """The number of members of one key: all that this scaler can ask for."""
    kind = client.type(key)
    assert kind in (b"zset", b"none")
    return int(client.zcard(key))


def test_all_scalers_count_what_waits_and_only_the_redis_one_misses_what_is_due(server: Server, client: redis.Redis) -> None:
    with exporter(server.url(), "--listen", "0") as (_, address):
        assert (metrics_api(address), prometheus(address), redis_scaler(client)) == (0, None, 0), "before the first publish"
        # The one that is due comes last and not at once: each publish has what is due already wait.
        send(server, [(NOTE, ["now"], {}), (NOTE, ["later"], {"countdown": 3600}), (NOTE, ["due"], {"countdown": 3})])
        wait_until(lambda: metrics_api(address) == 2)
        assert (prometheus(address), redis_scaler(client)) == (2, 1)
        assert metrics_api(address, f"queues.{QUEUE}.waiting") == 2


@pytest.mark.parametrize("late", [True, False])
def test_a_running_task_is_backlog_if_it_is_acked_late(server: Server, client, ledger, tmp_path, late: bool) -> None:
    with (
        worker(server, tmp_path, concurrency=1, prefetch=1, late=int(late)),
        exporter(server.url(), "--listen", "0") as (_, address),
    ):
        send(server, [(NAP, ["long", 60.0], {})])
        ledger.wait_for("start", 1)
        if not late:
            wait_until(lambda: metrics_api(address) == 0)
        assert "end" not in [line["event"] for line in ledger.lines()]
        assert metrics_api(address) == prometheus(address) == int(late)
        assert redis_scaler(client) == 0, "nothing is told of those that run"


def test_a_worker_that_is_scaled_away_ends_what_it_runs_and_gives_back_the_rest(server: Server, ledger, tmp_path) -> None:
    with worker(server, tmp_path, concurrency=1, prefetch=4, late=1, level="DEBUG") as running:
        send(server, [(HOLD, [n], {}) for n in range(4)])
        ledger.wait_for("start", 1)
        assert ferryman("backlog", server.url()).stdout == "4\n", "those that it has fetched and not begun as well"
        assert running.stop_with(ledger) == 0
    assert len(ledger.names("end")) == len(ledger.names("start")) < 4
    assert ferryman("backlog", server.url()).stdout == f"{4 - len(ledger.names('end'))}\n"


def test_no_scaler_reads_a_zero_while_the_broker_is_away() -> None:
    with exporter(f"ferryman://127.0.0.1:{free_port()}/0", "--listen", "0") as (_, address):
        assert metrics_api(address) is None, "HTTP 503"
        assert prometheus(address) is None, "no series: ignoreNullValues must be false"
