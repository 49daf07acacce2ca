"""Beside the real software: reqless runs what the writer wrote, in its order, and the reader reads what reqless wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.compat.qless import FAMILY
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import KeyspaceReading, dump, read_keyspace, store

from ...support.servers import Server

pytestmark = pytest.mark.in_turn

reqless = pytest.importorskip("reqless", reason="the real software is not installed (pip install reqless)")


def now_ms() -> int:
    """reqless takes the time of its own clock."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def peer(server: Server) -> Any:
    return reqless.Client(url=f"redis://{server.host}:{server.port}/0")


def seen(client: redis.Redis) -> KeyspaceReading:
    return read_keyspace(FAMILY, dump(client).values(), "ql", now_ms())


def standing(client: redis.Redis) -> dict[str, Job]:
    survey_now = seen(client)
    read = (FAMILY.read(subject, survey_now.keyspace) for subject in survey_now.subjects.values())
    return {job.id: job for job in read if job is not None}


def orders(jobs: dict[str, Job]) -> dict[str, list[str]]:
    """The waiting jobs of each queue, as positions tell."""
    found: dict[str, list[str]] = {}
    for job in sorted(jobs.values(), key=lambda job: job.position or 0):
        if job.position is not None:
            found.setdefault(job.queue, []).append(job.id)
    return found


def popped(queue: Any) -> Iterator[Any]:
    """Pops until nothing comes, and completes each job."""
    while (job := queue.pop()) is not None:
        yield job
        if job.state == "running":
            job.complete()


def findings(client: redis.Redis) -> list[Finding]:
    return seen(client).findings()


def foreign(jobs: list[Job]) -> list[Job]:
    """The same jobs as if read from a system whose lowest priority runs first."""
    return [
        evolve(job, extra={}, priority=-int(job.priority or 0), rank=-int(job.priority or 0), position=position)
        for position, job in enumerate(jobs)
        if job.state in (State.WAITING, State.SCHEDULED, State.FAILED, State.COMPLETED)
    ]


@pytest.mark.parametrize(("seed", "is_foreign"), [(2, False), (3, False), (2, True)], ids=["qless", "reqless", "foreign"])
def test_written_jobs_are_popped_in_their_order_and_completed(
    client: redis.Redis, peer: Any, seed: int, is_foreign: bool
) -> None:
    jobs = list(FAMILY.generate(120, seed, now_ms()))
    store(client, FAMILY, "ql", foreign(jobs) if is_foreign else jobs, now_ms())
    written = orders(standing(client))
    assert written
    for queue, ids in written.items():
        # What a completed job releases joins in later.
        taken = [job.jid for job in popped(peer.queues[queue]) if job.jid in ids]
        assert taken == ids
    after = standing(client)
    assert {after[job_id].state for ids in written.values() for job_id in ids} == {State.COMPLETED}
    assert findings(client) == []


def test_written_jobs_can_be_failed_retried_cancelled_and_timed_out(client: redis.Redis, peer: Any) -> None:
    store(client, FAMILY, "ql", FAMILY.generate(150, 3, now_ms()), now_ms())
    before = standing(client)

    def some(state: State) -> list[Any]:
        return [peer.jobs[job.id] for job in before.values() if job.state is state][:3]

    for job in (*some(State.FAILED), *some(State.SCHEDULED)):
        job.cancel()
    for job in some(State.ACTIVE):
        job.timeout()
    first, second = (peer.queues["emails"].pop() for _ in range(2))
    first.fail("group", "message")
    second.retry(delay=100)
    after = standing(client)
    assert (after[first.jid].state, after[first.jid].error) == (State.FAILED, "group: message")
    assert (after[second.jid].state, after[second.jid].attempts) == (State.SCHEDULED, (before[second.jid].attempts or 0) + 1)
    assert len(before) - len(after) == 6
    # A job that was timed out by hand stays with its worker.
    assert {finding.rule for finding in findings(client)} == {"QLESS-14"}


def test_what_reqless_wrote_is_read_as_it_says(client: redis.Redis, peer: Any) -> None:
    queue = peer.queues["mail"]
    parent = queue.put("shop.Mail", '{"to": "a"}', priority=3, tags=["t", "ü"], retries=2)
    child = queue.put("shop.Mail", "[]", depends=[parent])
    later = queue.put("shop.Mail", "{}", delay=1000)
    jobs = standing(client)
    assert [jobs[job_id].state for job_id in (parent, child, later)] == [State.WAITING, State.BLOCKED, State.SCHEDULED]
    job = jobs[parent]
    assert (job.name, job.queue, job.payload, job.priority) == ("shop.Mail", "mail", b'{"to": "a"}', 3)
    assert (job.tags, job.max_attempts, job.attempts) == (("t", "ü"), 3, 0)
    assert jobs[child].depends_on == (parent,)
    held = queue.pop()
    assert (held.jid, standing(client)[parent].worker, standing(client)[parent].attempts) == (parent, peer.worker_name, 1)
    held.complete()
    jobs = standing(client)
    assert [jobs[job_id].state for job_id in (parent, child)] == [State.COMPLETED, State.WAITING]
    assert findings(client) == []
