"""Captured keyspaces of qless in use: our client says of each what qless's own commands said, and pops in their order."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.compat.qless.client import QlessClient
from ferryman.compat.qless.live import Core

from ...support.captures import Capture, capture, load

pytestmark = pytest.mark.in_turn

CORES: dict[str, Core] = {"healthy": "final", "pypi-0.11.4": "unified", "reqless-0.13.3": "reqless"}
COUNTED = ("waiting", "running", "stalled", "scheduled", "depends", "recurring", "paused")


@pytest.fixture(params=CORES)
def captured(request: pytest.FixtureRequest, client: redis.Redis) -> Capture:
    """A capture, loaded."""
    found = capture("qless", request.param)
    load(found, client)
    return found


@pytest.fixture
def ours(captured: Capture, client: redis.Redis) -> QlessClient:
    """Our client, which tells the core from the keys where that can be told."""
    core = CORES[captured.name]
    return QlessClient(client, consumer="reader", core="" if core != "final" else core)


def test_jobs_are_what_qless_tells_of_them(captured: Capture, ours: QlessClient) -> None:
    for job_id, expected in captured.expected["jobs_by_id"].items():
        job = ours.get(job_id)
        assert job is not None
        told = (job.state, job.queue, job.klass, job.priority, job.retries, job.remaining, job.worker, job.tracked)
        names = ("state", "queue", "klass", "priority", "retries", "remaining", "worker", "tracked")
        assert told == tuple(expected[name] for name in names)
        assert job.data.decode("utf-8", "surrogateescape") == expected["payload"]
        assert sorted(job.dependencies) == sorted(expected["dependencies"])
        assert sorted(job.dependents) == sorted(expected["dependents"])
        assert list(job.tags) == [str(tag) for tag in expected["tags"]]
        assert [event["what"] for event in job.history] == [event["what"] for event in expected["history"]]
    assert ours.get("no such job") is None


def test_queues_workers_and_groups_are_counted_as_qless_counts(captured: Capture, ours: QlessClient) -> None:
    now, expected = captured.captured_at_ms, captured.expected
    counts = {row.name: {name: getattr(row, name) for name in COUNTED} for row in ours.counts(now=now)}
    assert list(counts) == expected["queues_in_order"]
    assert counts == {name: {each: row[each] for each in COUNTED} for name, row in expected["queue_counts"].items()}
    assert ours.failed_groups() == expected["failed_groups"]
    for group, ids in expected["failed_jobs"].items():
        assert [job.id for job in ours.failed(group)] == ids
    workers = {row.name: [row.jobs, row.stalled] for row in ours.workers(now=now)}
    assert workers == {name: row["counts"] for name, row in expected["workers"].items()}
    for tag, ids in expected["tags"].items():
        assert list(ours.tagged(tag)) == ids
    assert {job.id for job in ours.jobs("", "complete", n=1000)} == set(expected["complete_newest_first"])
    assert set(ours.tracked()) == {*expected["tracked"]["jobs"], *expected["tracked"]["expired"]}
    assert ours.config().items() >= {name: str(value) for name, value in expected["config"].items()}.items()


def test_statistics_are_what_qless_tells(captured: Capture, ours: QlessClient) -> None:
    for queue, days in captured.expected["stats"].items():
        for day, told in days.items():
            found = ours.stats(queue, float(day))
            assert (found.retries, found.failures, found.failed) == (told["retries"], told["failures"], told["failed"])
            for measure, expected in ((found.wait, told["wait"]), (found.run, told["run"])):
                assert measure.count == expected["count"]
                assert measure.mean == pytest.approx(expected["mean"], rel=1e-12)
                assert measure.std == pytest.approx(expected["std"], rel=1e-12)
                shown = {cell: count for cell, count in measure.histogram.items() if cell in expected["histogram"]}
                assert shown == expected["histogram"]


def test_recurring_jobs_are_what_qless_tells(captured: Capture, ours: QlessClient) -> None:
    for job_id, expected in captured.expected["recurring_by_id"].items():
        job = ours.recurring(job_id)
        assert job is not None
        told: dict[str, Any] = {"queue": job.queue, "klass": job.klass, "interval": job.interval, "count": job.count}
        assert told == {name: expected[name] for name in told}
        assert job.next_at == pytest.approx(expected["next"])
    assert ours.recurring("none") is None


@pytest.mark.parametrize(("n", "name"), [(1, "pop_order"), (1000, "pop_order_count_1000")])
def test_jobs_are_popped_in_the_order_of_qless(
    captured: Capture, ours: QlessClient, client: redis.Redis, n: int, name: str
) -> None:
    for queue, expected in captured.expected[name].items():
        client.flushdb()
        load(captured, client)
        popped: list[str] = []
        for _ in range(200):
            jobs = ours.take(queue, n, now=captured.captured_at_ms)
            popped += [job.id for job in jobs]
            if not jobs or n > 1:
                break
        assert popped == expected
