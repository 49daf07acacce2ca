"""What an operator does to queues and jobs, one script each: what is left in Redis, and what consumers see of it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.errors import PublishRefused, UsageError
from ferryman.schema.job import State
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.steering import Action, JobFilter

from ...support.steered_queue import LATER, NOW, OTHER, QUEUE, Queue, done, everything, frame, keys, scripts, steering


@pytest.fixture
def queue(client: redis.Redis) -> Queue:
    """A queue beside another, and who may look into it."""
    return Queue.made(client)


# Pausing


def test_nothing_is_taken_from_a_paused_queue_and_publishing_goes_on(queue: Queue) -> None:
    queue.publish("p-1")
    assert queue.send(steering.pause(QUEUE, now=NOW))
    assert queue.send(steering.paused(QUEUE))
    queue.publish("p-2")
    assert queue.send(scripts.publish_one(QUEUE, "p", Publication("p-3", frame()), now=NOW)).status == "stored"
    assert queue.take() == []
    assert queue.send(scripts.size(QUEUE, now=NOW)).paused
    assert queue.send(steering.resume(QUEUE, now=NOW))
    assert queue.take() == ["p-1", "p-2", "p-3"]


def test_consumers_of_a_paused_queue_are_left_asleep_and_woken_by_its_end(queue: Queue) -> None:
    queue.publish("p-1")
    queue.take()
    queue.send(steering.pause(QUEUE, now=NOW))
    queue.publish("p-2")
    queue.send(scripts.publish_one(QUEUE, "p", Publication("p-3", frame()), now=NOW))
    queue.send(scripts.requeue(QUEUE, "ann", ["p-1"], now=NOW))
    assert queue.client.llen(keys.wake) == 0
    taken = queue.send(scripts.take(QUEUE, "ann", 10, 30_000, now=NOW))
    assert (taken.jobs, taken.more) == ((), False)
    (wait,) = queue.send(scripts.poll([QUEUE], "ann", 30_000, now=NOW))
    assert wait is not None
    assert queue.client.llen(keys.wake) == 0
    queue.send(steering.resume(QUEUE, now=NOW))
    assert queue.client.llen(keys.wake) == 1


def test_delayed_jobs_and_lapsed_leases_come_back_while_it_is_paused(queue: Queue) -> None:
    queue.publish("p-1")
    queue.publish("p-2", due=NOW + 10)
    assert queue.take(consumer="bob") == ["p-1"]
    queue.send(steering.pause(QUEUE, now=NOW))
    assert queue.take(now=NOW + 40_000) == []
    assert queue.client.zrange(keys.waiting, 0, -1) == [b"p-1", b"p-2"]
    assert queue.send(scripts.ack(QUEUE, "bob", ["p-1"], now=NOW + 40_000)) == ("cancelled",)


def test_a_declaration_leaves_a_pause_and_a_deletion_ends_it(queue: Queue) -> None:
    queue.send(steering.pause(QUEUE, now=NOW))
    queue.send(scripts.declare(QUEUE, {"x-max-length": 3}, now=NOW))
    assert queue.send(steering.paused(QUEUE))
    queue.send(scripts.delete(QUEUE, now=NOW))
    queue.send(scripts.declare(QUEUE, {}, now=NOW))
    assert not queue.send(steering.paused(QUEUE))


@pytest.mark.parametrize("call", [steering.pause, steering.resume])
def test_a_queue_that_is_not_there_is_neither_paused_nor_made(queue: Queue, call: Any) -> None:
    with pytest.raises(UsageError, match="there is no such queue"):
        queue.send(call("nowhere"))
    assert not queue.client.exists(scripts.keys("nowhere").meta)


# One job


def test_a_promoted_task_has_no_eta_left_for_which_its_worker_would_wait(queue: Queue) -> None:
    nested = {"eta": "2030-01-01T00:00:00+00:00"}
    queue.publish("p-1", due=LATER, message=frame(copy=nested, eta="2030-01-01T00:00:00+00:00", note='"eta":"x"'))
    assert queue.act(Action.PROMOTE, "p-1") == "done"
    assert queue.take() == ["p-1"]
    headers = queue.message("p-1")[0]["headers"]
    assert headers == {"task": "send", "id": "t", "copy": nested, "eta": None, "note": '"eta":"x"'}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ('"\\u0065ta":"then","copy":{"eta":"there"}', {"eta": "then", "copy": {"eta": "there"}}),
        ('"a\\"eta":"x","copy":{"eta":"there"}', {'a"eta': "x", "copy": {"eta": "there"}}),
        ('"a\\"eta":"x","eta":"then"', {'a"eta': "x", "eta": None}),
        ('"eta" : "then \\\\", "note":"x"', {"eta": None, "note": "x"}),
    ],
)
def test_only_the_header_itself_is_changed_however_it_is_written(queue: Queue, headers: str, expected: dict[str, Any]) -> None:
    head = f'{{"headers":{{"task":"send","id":"t",{headers}}},"content-type":"application/json"}}'
    queue.publish("p-1", due=LATER, message=head.encode() + b"\n[[],{},{}]")
    assert queue.act(Action.PROMOTE, "p-1") == "done"
    assert queue.message("p-1")[0]["headers"] == {"task": "send", "id": "t"} | expected


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_another_priority_keeps_the_order_inside_it(client: redis.Redis, order: Any) -> None:
    queue = Queue(client)
    queue.send(scripts.declare(QUEUE, {"x-max-priority": 9}, order, now=NOW))
    queue.publish("p-1", "p-2", "p-3", priority=4)
    first, last = (0, 9) if order == "ascending" else (9, 0)
    assert queue.act(Action.REPRIORITISE, "p-3", first) == "done"
    assert queue.act(Action.REPRIORITISE, "p-1", last) == "done"
    queue.publish("p-4", due=NOW + 1, priority=4)
    assert queue.act(Action.REPRIORITISE, "p-4", 200) == "done"
    jobs = queue.send(scripts.take(QUEUE, "ann", 10, 1000, now=NOW + 1)).jobs
    expected = [("p-3", first), ("p-2", 4), ("p-1", last), ("p-4", 9)]
    if order == "descending":
        expected = [("p-3", 9), ("p-4", 9), ("p-2", 4), ("p-1", 0)]
    assert [(job.id, job.priority) for job in jobs] == expected


def test_an_edited_task_says_so_in_the_headers_that_monitors_show(queue: Queue) -> None:
    queue.publish("p-1", message=frame(argsrepr="('ann',)", kwargsrepr="{}", origin="x"))
    assert queue.act(Action.EDIT, "p-1", b'[["b\\"ob", null], {"n": 1}, {"chain": null}]') == "done"
    head, body = queue.message("p-1")
    assert body == b'[["b\\"ob", null], {"n": 1}, {"chain": null}]'
    assert head["headers"]["argsrepr"] == "('b\"ob', None)"
    assert head["headers"]["kwargsrepr"] == "{'n': 1}"
    assert head["headers"]["origin"] == "x"
    assert queue.act(Action.EDIT, "p-1", b"[[" + b"1," * 2000 + b"1],{},{}]") == "done"
    assert len(queue.message("p-1")[0]["headers"]["argsrepr"]) == 1024


def test_an_edited_payload_is_no_longer_compressed(queue: Queue) -> None:
    queue.publish("p-1", message=frame(b"\x1f\x8b", compression="application/x-gzip"))
    assert queue.act(Action.EDIT, "p-1", b"[[],{},{}]") == "done"
    assert queue.message("p-1")[0]["headers"]["compression"] is None


@pytest.mark.parametrize(
    ("content_type", "payload", "reason"),
    [
        ("application/json", b"{", "is JSON, and the new payload is not"),
        ("application/json", b'{"a": 1}', "is a Celery task, whose payload is"),
        ("application/x-python-serialize", b"[[],{},{}]", "only JSON and plain texts can be edited"),
    ],
)
def test_a_payload_that_could_not_be_delivered_is_refused(queue: Queue, content_type: str, payload: bytes, reason: str) -> None:
    head, body = codec.decode(frame())
    queue.publish("p-1", message=codec.encode(head | {"content-type": content_type}, body))
    with pytest.raises(UsageError, match=reason):
        queue.act(Action.EDIT, "p-1", payload)
    assert queue.message("p-1")[1] == body


def test_the_bytes_that_wait_are_accounted_for_through_every_action(queue: Queue) -> None:
    queue.send(scripts.declare(QUEUE, {"x-max-length-bytes": 1000}, now=NOW))
    queue.publish("p-1", "p-2", "p-3", "p-4", message=frame(b"[[1],{},{}]"))
    queue.publish("p-5", due=LATER, message=frame(b"[[1],{},{}]", eta="2030-01-01T00:00:00+00:00"))

    def accounted() -> int:
        return int(queue.client.hget(keys.meta, "bytes"))

    assert accounted() == 44
    queue.act(Action.EDIT, "p-1", b"[[12345],{},{}]")
    assert accounted() == 48
    queue.act(Action.REPRIORITISE, "p-1", 7)
    assert accounted() == 48
    queue.act(Action.PROMOTE, "p-5")
    assert accounted() == 59
    queue.act(Action.MOVE, "p-1", OTHER)
    assert accounted() == 44
    queue.act(Action.CANCEL, "p-2")
    assert accounted() == 33
    queue.act_on_matching(Action.DELETE, State.WAITING)
    assert accounted() == 0


def test_an_edit_is_refused_by_a_full_server_and_all_else_is_not(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.publish("p-3", due=LATER)
    queue.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused):
            queue.act(Action.EDIT, "p-1", b"[[],{},{}]")
        assert queue.send(steering.pause(QUEUE, now=NOW))
        assert queue.send(steering.resume(QUEUE, now=NOW))
        assert queue.act(Action.DELETE, "p-1") == "done"
        assert queue.act(Action.PROMOTE, "p-3") == "done"
        assert done(queue.act_on_matching(Action.CANCEL, State.WAITING)) == 2
    finally:
        queue.client.config_set("maxmemory", 0)


def test_dedup_keys_are_given_free_and_taken_again(queue: Queue) -> None:
    queue.publish("p-1", unique="k")
    queue.act(Action.MOVE, "p-1", OTHER)
    assert not queue.client.exists(keys.unique("k"))
    queue.publish("p-2", unique="k")
    queue.settle()
    assert queue.client.get(keys.unique("k")) == b"p-2"
    assert queue.client.get(scripts.keys(OTHER).unique("k")) == b"p-1"
    queue.act(Action.CANCEL, "p-2")
    assert not queue.client.exists(keys.unique("k"))


def test_a_blocked_job_that_waits_for_thousands_goes_in_several_calls(queue: Queue) -> None:
    queue.client.hset(keys.job("x"), mapping={"message": frame(), "published_at": NOW})
    queue.client.sadd(keys.blocked, "x")
    queue.client.sadd(keys.needs("x"), *range(2500))
    outcomes = []
    while not outcomes or outcomes[-1] == "more":
        outcomes.append(queue.act(Action.CANCEL, "x"))
    assert outcomes == ["more", "more", "done"]
    assert not queue.client.exists(keys.blocked, keys.needs("x"), keys.job("x"))


# All that match


def test_a_filter_chooses_by_task_age_text_and_reason(queue: Queue) -> None:
    queue.publish("p-1", message=frame(b'[["needle"],{},{}]'))
    queue.publish("p-2", message=frame(task="check", note="send needle"))
    queue.publish("p-3", now=NOW + 5000)

    def chosen(state: State = State.WAITING, **said: Any) -> int:
        return done(queue.act_on_matching(Action.DELETE, state, JobFilter(**said), now=NOW + 6000, dry_run=True))

    assert chosen() == 3
    assert chosen(task="check") == 1
    assert chosen(task="chec") == 0
    assert chosen(text=b"needle") == 1
    assert chosen(text=b"check") == 0
    assert chosen(older_than_ms=6000) == 2
    assert chosen(younger_than_ms=6000) == 1
    assert chosen(task="send", text=b"needle", older_than_ms=1) == 1
    queue.take()
    for job, reason, error in (("p-1", "rejected", "ValueError: 1"), ("p-2", "other", "KeyError"), ("p-3", "cancelled", "")):
        queue.send(scripts.reject(QUEUE, "ann", job, reason, error, now=NOW + 6000))
    assert chosen(State.FAILED) == 2
    assert chosen(State.CANCELLED) == 1
    assert chosen(State.FAILED, reason="rejected") == chosen(State.FAILED, reason="Value") == 1
    assert chosen(State.FAILED, reason="reject") == 0
    assert chosen(State.FAILED, older_than_ms=1) == 0


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_each_job_is_acted_on_once_though_hundreds_died_at_the_same_moment(queue: Queue, limit: int) -> None:
    queue.bury(*(f"p-{n}" for n in range(100)))
    odd = JobFilter(reason="ValueError")
    for n in range(0, 100, 2):
        queue.client.hset(keys.job(f"p-{n}"), "error", "KeyError")
    steps = queue.act_on_matching(Action.REQUEUE, State.FAILED, odd, limit=limit)
    assert (done(steps), sum(step.looked_at for step in steps)) == (50, 100)
    assert all(step.looked_at <= limit for step in steps)
    assert sorted(queue.take()) == sorted(f"p-{n}" for n in range(1, 100, 2))


def test_what_dies_again_meanwhile_is_not_requeued_for_ever(queue: Queue) -> None:
    queue.bury(*(f"p-{n}" for n in range(6)), now=NOW - 10)
    cursor: str | None = None
    total = 0
    for _ in range(10):
        call = steering.act_on_matching(Action.REQUEUE, QUEUE, State.FAILED, JobFilter(), cursor=cursor, limit=2, now=NOW)
        step = queue.send(call)
        total, cursor = total + step.done, step.next
        for job in queue.take(now=NOW + 5):
            queue.send(scripts.reject(QUEUE, "ann", job, "rejected", "again", now=NOW + 5))
        if cursor is None:
            break
    assert (cursor, total) == (None, 6)


def test_other_priorities_for_all_are_given_once_each(queue: Queue) -> None:
    queue.publish("p-1", "p-2", "p-3", "p-4", priority=1)
    queue.publish("p-5", priority=9)
    assert done(queue.act_on_matching(Action.REPRIORITISE, State.WAITING, JobFilter(), 9, limit=1)) == 4
    assert queue.take() == ["p-1", "p-2", "p-3", "p-4", "p-5"]


def test_what_is_too_large_to_be_looked_into_is_left_to_the_caller(queue: Queue) -> None:
    queue.publish("p-1", message=frame(b'[["' + b"x" * 100_000 + b'needle"],{},{}]'))
    queue.publish("p-2")
    (step,) = queue.act_on_matching(Action.DELETE, State.WAITING, JobFilter(text=b"needle"))
    assert (step.done, step.unread) == (0, ("p-1",))
    (step,) = queue.act_on_matching(Action.DELETE, State.WAITING)
    assert (step.done, step.unread) == (2, ())
    read = queue.send(steering.job(QUEUE, "p-1"))
    assert read is None


def test_damaged_jobs_can_be_deleted(queue: Queue) -> None:
    queue.client.zadd(keys.waiting, {"no hash": 1})
    queue.client.set(keys.job("a string"), "x")
    queue.client.zadd(keys.dead, {"a string": float("inf"), "no hash either": 3})
    assert queue.act(Action.REQUEUE, "no hash either") == "refused"
    assert done(queue.act_on_matching(Action.DELETE, State.WAITING)) == 1
    assert queue.act(Action.DELETE, "a string") == "done"
    assert done(queue.act_on_matching(Action.DELETE, State.FAILED)) == 1
    assert not queue.client.exists(keys.dead, keys.waiting, keys.job("a string"))


def test_a_dry_run_changes_nothing(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.bury("p-3")
    before = everything(queue.client)
    for action, state, value in (
        (Action.DELETE, State.WAITING, None),
        (Action.MOVE, State.WAITING, OTHER),
        (Action.EDIT, State.WAITING, b"[[],{},{}]"),
        (Action.REQUEUE, State.FAILED, None),
    ):
        assert done(queue.act_on_matching(action, state, value=value, dry_run=True)) > 0
        assert everything(queue.client) == before
