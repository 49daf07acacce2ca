"""Steering a live keyspace: bulk actions step by step, jobs too large for the server, races with consumers, records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.operations.actions import ActionRecord, JsonLines
from ferryman.operations.steering import Bulk, Controls, open_steering
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.steering import MAX_MOVES
from ferryman.schema.steering import Action, JobFilter

from ..support.servers import Server

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()
HEAD = b'{"content-type":"application/json","headers":{"task":"send","id":"x"}}\n'
JOBS = 3000


@pytest.fixture
def records() -> list[ActionRecord]:
    """What was recorded."""
    return []


@pytest.fixture
def controls(server: Server, client: redis.Redis, records: list[ActionRecord]) -> Iterator[Controls]:
    """The actions on two queues, one with jobs."""
    for queue in ("mail", "bulk"):
        run(client, scripts.declare(queue, {}))
        client.sadd("ferryman:queues", queue)
    for first in range(0, JOBS, 1000):
        jobs = [Publication(f"p-{n}", HEAD + b"[[%d],{},{}]" % n) for n in range(first, first + 1000)]
        run(client, scripts.publish("mail", "p", jobs))
    with open_steering(Address.parse(server.url()), by="ann", sinks=[records.append]) as found:
        yield found


def test_a_bulk_action_goes_in_steps_and_tells_how_far_it_is(controls: Controls, records: list[ActionRecord]) -> None:
    told: list[Bulk] = []
    found = controls.act_on_matching(Action.CANCEL, "mail", State.WAITING, JobFilter(text=b"7]"), progress=told.append)
    assert found == told[-1] == Bulk(JOBS, JOBS // 10, 0)
    assert len(told) > 2
    # A step ends when its time is up, so the last may find that there was nothing more.
    assert [one.looked_at for one in told] == sorted(one.looked_at for one in told)
    (record,) = records
    assert (record.by, record.action, record.queue, record.state) == ("ann", "cancel", "mail", "waiting")
    assert (record.outcome, record.done, record.left, record.chosen) == ("done", JOBS // 10, 0, {"text": "7]"})


def test_jobs_too_large_to_be_searched_by_the_server_are_searched_here(controls: Controls, client: redis.Redis) -> None:
    for n, body in enumerate((b"x" * 200_000 + b"needle", b"x" * 200_000)):
        run(client, scripts.publish("mail", "large", [Publication(f"large-{n}", HEAD + b'[["' + body + b'"],{},{}]')]))
    needle = JobFilter(text=b"needle", task="send")
    assert controls.act_on_matching(Action.MOVE, "mail", State.WAITING, needle, "bulk", dry_run=True).done == 1
    assert controls.act_on_matching(Action.MOVE, "mail", State.WAITING, needle, "bulk").done == 1
    assert client.zrange(scripts.keys("bulk").waiting, 0, -1) == [b"large-0"]


def test_a_move_into_a_queue_that_fills_up_ends_with_its_reason(controls: Controls, client: redis.Redis) -> None:
    run(client, scripts.declare("bulk", {"x-max-length": 10, "x-overflow": "reject-publish"}))
    with pytest.raises(UsageError, match="takes no more") as refusal:
        controls.act_on_matching(Action.MOVE, "mail", State.WAITING, JobFilter(), "bulk")
    assert client.zcard(scripts.keys("bulk").waiting) == 10
    assert f": {client.zcard(scripts.keys('mail').moves)} jobs wait to go there" in str(refusal.value)
    run(client, scripts.declare("bulk", {"x-max-length": 10 * JOBS}))
    controls.act_on_matching(Action.MOVE, "mail", State.WAITING, JobFilter(), "bulk")
    assert client.zcard(scripts.keys("bulk").waiting) == JOBS


def test_what_fits_goes_nowhere_before_what_was_refused(controls: Controls, client: redis.Redis) -> None:
    run(client, scripts.declare("bulk", {"x-max-length": 10, "x-overflow": "reject-publish"}))
    moved = [f"p-{number}" for number in range(MAX_MOVES + 10)]
    for job_id in moved:
        run(client, controls.steering.act(Action.MOVE, "mail", job_id, "bulk"))
    controls.act(Action.MOVE, "mail", f"p-{MAX_MOVES + 10}", "bulk")
    assert client.zrange(scripts.keys("bulk").waiting, 0, -1) == [b"p-%d" % number for number in range(10)]
    run(client, scripts.declare("bulk", {"x-max-length": 10 * JOBS}))
    controls.act(Action.MOVE, "mail", f"p-{MAX_MOVES + 11}", "bulk")
    assert client.zcard(scripts.keys("bulk").waiting) == len(moved) + 2
    assert client.zcard(scripts.keys("mail").waiting) == JOBS - len(moved) - 2


def test_errors_are_recorded_as_what_came_of_it(controls: Controls, records: list[ActionRecord]) -> None:
    with pytest.raises(UsageError):
        controls.act(Action.EDIT, "mail", "p-1", b"{")
    assert [record.outcome.partition(":")[0] for record in records] == ["UsageError"]
    assert records[0].value is not None
    assert records[0].value.startswith("1 bytes, sha256 ")


def test_an_interrupted_bulk_action_is_recorded_with_what_it_has_done(
    controls: Controls, records: list[ActionRecord], client: redis.Redis
) -> None:
    def interrupt(_: Bulk) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        controls.drain("mail", progress=interrupt)
    (record,) = records
    assert record.outcome.startswith("KeyboardInterrupt")
    assert record.done == JOBS - client.zcard(scripts.keys("mail").waiting) > 0


def test_an_interrupted_move_leaves_every_job_in_one_of_the_queues(controls: Controls, client: redis.Redis) -> None:
    def interrupt(_: Bulk) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        controls.act_on_matching(Action.MOVE, "mail", State.WAITING, JobFilter(), "bulk", progress=interrupt)
    left, arrived = (client.zcard(scripts.keys(queue).waiting) for queue in ("mail", "bulk"))
    assert left + arrived == JOBS
    assert arrived > 0
    assert controls.act_on_matching(Action.MOVE, "mail", State.WAITING, JobFilter(), "bulk").done == left


def test_the_audit_log_survives_lines_that_are_none(tmp_path: Path) -> None:
    log = JsonLines.at(tmp_path / "log")
    for n in range(3):
        log(ActionRecord(n, "ann", "ferryman://h/0", "pause", "mail\x1b[31m", outcome="done"))
    with log.path.open("ab") as file:
        file.write(b'{"not": "one"}\nhalf a li')
    assert [record.at_ms for record in log.last(2)] == [2, 1]
    assert log.last()[0].queue == "mail\x1b[31m"
    assert b"\x1b" not in log.path.read_bytes()


# Races


def consume(server: Server, queue: str, name: str, ends: threading.Event, taken: list[str]) -> None:
    """Takes and acks until there is nothing more to come."""
    with server.client() as client:
        while True:
            is_last = ends.is_set()
            jobs = run(client, scripts.take(queue, name, 20, 30_000)).jobs
            if jobs:
                verdicts = run(client, scripts.ack(queue, name, [job.id for job in jobs]))
                assert set(verdicts) == {"acked"}
                taken += [job.id for job in jobs]
            elif is_last:
                return


@pytest.mark.parametrize(
    ("action", "limits"),
    [
        (Action.MOVE, {}),
        (Action.MOVE, {"x-max-length": 10 * JOBS}),
        (Action.CANCEL, {}),
        (Action.REPRIORITISE, {}),
        (Action.EDIT, {}),
    ],
    ids=["move", "move by way of a client", "cancel", "reprioritise", "edit"],
)
def test_consumers_and_an_operator_at_the_same_time_lose_nothing_and_do_nothing_twice(
    controls: Controls, server: Server, client: redis.Redis, action: Action, limits: dict[str, int]
) -> None:
    run(client, scripts.declare("bulk", limits))
    value = {Action.MOVE: "bulk", Action.REPRIORITISE: 5, Action.EDIT: b"[[0],{},{}]"}.get(action)
    ends, taken = threading.Event(), {queue: list[str]() for queue in ("mail", "bulk")}
    threads = [threading.Thread(target=consume, args=(server, queue, queue, ends, taken[queue])) for queue in taken]
    for thread in threads:
        thread.start()
    found = controls.act_on_matching(action, "mail", State.WAITING, JobFilter(task="send"), value)
    ends.set()
    for thread in threads:
        thread.join(100)
    everything = taken["mail"] + taken["bulk"]
    gone = found.done if action is Action.CANCEL else 0
    assert len(everything) == len(set(everything)) == JOBS - gone
    assert len(taken["bulk"]) == (found.done if action is Action.MOVE else 0)
    assert not client.exists(scripts.keys("mail").waiting, scripts.keys("bulk").waiting, scripts.keys("mail").dead)


@pytest.mark.usefixtures("controls")
def test_two_operators_do_nothing_twice(server: Server, client: redis.Redis) -> None:
    found: list[Bulk] = []

    def move() -> None:
        with open_steering(Address.parse(server.url())) as other:
            found.append(other.act_on_matching(Action.MOVE, "mail", State.WAITING, JobFilter(), "bulk"))

    threads = [threading.Thread(target=move) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sum(one.done for one in found) == JOBS
    assert client.zcard(scripts.keys("bulk").waiting) == JOBS
    assert run(client, scripts.counters("bulk"))["published"] == JOBS
