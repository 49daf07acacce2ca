"""Jobs moved to another queue, by way of a client or by the script that finds all that match: what arrives, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.errors import MalformedValue, UsageError
from ferryman.schema.job import State
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.steering import Action, BulkStep, JobFilter

from ...support.steered_queue import ANY, LATER, NOW, OTHER, QUEUE, Queue, done, everything, frame, scripts, steering

here, there = scripts.keys(QUEUE), scripts.keys(OTHER)


@pytest.fixture
def queue(client: redis.Redis) -> Queue:
    """A queue, and one to move to."""
    return Queue.made(client)


def move(queue: Queue, state: State = State.WAITING, chosen: JobFilter = ANY, **said: Any) -> list[BulkStep]:
    return queue.act_on_matching(Action.MOVE, state, chosen, OTHER, **{"one_server": True, **said})


def moving(steps: list[BulkStep]) -> int:
    return sum(step.moving for step in steps)


def of_all_kinds(queue: Queue) -> None:
    """Jobs of many histories, in three states."""
    queue.publish("dead-1", "dead-2", ttl_ms=50_000, priority=3)
    for job in queue.take():
        queue.send(scripts.reject(QUEUE, "ann", job, "rejected", "ValueError", now=NOW + 1))
    queue.publish("again-1", priority=2)
    queue.take(consumer="bob")
    queue.send(scripts.requeue(QUEUE, "bob", ["again-1"], now=NOW + 1))
    queue.publish("low-1", "low-2", priority=9)
    queue.publish("high-1", priority=-4, ttl_ms=90_000)
    queue.publish("plain-1", message=frame(task="check", note='\\u00fc "routing_key": "mail"'))
    queue.publish("exchange-1", message=frame().replace(b'"exchange":""', b'"exchange":"shop"'))
    queue.publish("late-1", due=LATER, priority=1, ttl_ms=10_000)
    queue.publish("late-2", due=LATER - 5)
    queue.client.hset(here.job("record"), mapping={"payload": b"[1]", "name": b"send", "published_at": NOW})
    queue.client.zadd(here.waiting, {"record": 2**45 + 7})
    queue.client.hset(here.job("extra"), mapping={"payload": b"[1]", "name": b"send", "published_at": NOW, "kue": b"{}"})
    queue.client.zadd(here.waiting, {"extra": 2**45 + 8})
    queue.client.zadd(here.waiting, {"nothing left": 2**45 + 9})


def content(queue: Queue) -> Any:
    """The jobs of the other queue as its consumers find them, in their order, and what is left of the first one."""
    found = {}
    for place in (there.waiting, there.scheduled):
        for job, score in queue.client.zrange(place, 0, -1, withscores=True):
            fields = queue.client.hgetall(there.job(job.decode()))
            if b"message" in fields:
                fields[b"message"] = codec.decode(fields[b"message"])
            at = score // 2**45 if place == there.waiting else (score, int(fields.pop(b"score")) // 2**45)
            found[job] = (place, at, fields)
    left = {
        key: value
        for key, value in everything(queue.client).items()
        if key.startswith((here.job_prefix, here.waiting, here.dead))
    }
    counters = {name: (run(queue.client, scripts.counters(name))) for name in (QUEUE, OTHER)}
    return list(found), found, left, counters


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_a_job_arrives_as_by_way_of_a_client(client: redis.Redis, order: Any) -> None:
    arrived = []
    for one_server in (False, True):
        client.flushdb()
        queue = Queue(client)
        queue.send(scripts.declare(QUEUE, {"x-dead-letter-exchange": "graves"}, now=NOW))
        queue.send(scripts.declare(OTHER, {}, order, now=NOW))
        of_all_kinds(queue)
        for state in (State.WAITING, State.SCHEDULED, State.FAILED):
            steps = move(queue, state, one_server=one_server, now=NOW + 2)
            on_the_way = {State.WAITING: 1, State.SCHEDULED: 0, State.FAILED: 0}[state] if one_server else done(steps)
            assert moving(steps) == on_the_way
            assert sum(step.left for step in steps) == (state is State.WAITING)
            queue.settle()
        arrived.append(content(queue))
    by_client, at_once = arrived
    assert at_once[1:] == by_client[1:]
    assert len(at_once[0]) == 12
    assert at_once[0][-2:] == by_client[0][-2:], "by their due times"
    assert client.zcard(here.outbox) == 0


def test_after_each_step_every_job_is_in_one_of_the_two_queues(queue: Queue) -> None:
    queue.publish(*(f"p-{n}" for n in range(25)))
    cursor: str | None = ""
    seen = 0
    while cursor is not None:
        call = steering.act_on_matching(
            Action.MOVE, QUEUE, State.WAITING, JobFilter(), OTHER, cursor=cursor, limit=7, one_server=True, now=NOW + 1
        )
        step = queue.send(call)
        seen, cursor = seen + step.done, step.next
        assert (queue.client.zcard(here.waiting), queue.client.zcard(there.waiting)) == (25 - seen, seen)
        assert not queue.client.exists(here.moves, here.dead)
    assert queue.take(queue=OTHER) == [f"p-{n}" for n in range(25)]
    assert not list(queue.client.scan_iter(here.job_prefix + b"*"))


def test_what_comes_there_wakes_a_consumer_and_is_counted_in_both(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.publish("p-3", due=LATER)
    move(queue, State.SCHEDULED)
    assert queue.client.llen(there.wake) == 1, "the next due time is another one now"
    queue.client.delete(there.wake)
    move(queue)
    assert queue.client.llen(there.wake) == 1
    assert queue.send(scripts.counters(QUEUE))["moved"] == queue.send(scripts.counters(OTHER))["published"] == 3
    assert queue.client.exists(there.history)


def test_a_paused_queue_gets_jobs_and_wakes_nobody(queue: Queue) -> None:
    queue.publish("p-1")
    queue.send(steering.pause(OTHER, now=NOW))
    move(queue)
    assert (queue.client.zcard(there.waiting), queue.client.llen(there.wake)) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        ({"x-max-length": 100}, "long"),
        ({"x-max-length-bytes": 10_000}, "long"),
        ({"x-expires": 60_000}, "long"),
        ({"x-max-priority": 9, "x-message-ttl": 1000, "x-dead-letter-exchange": "graves"}, "short"),
        (None, "long"),
    ],
    ids=str,
)
def test_what_goes_to_a_queue_with_limits_goes_by_way_of_a_client(queue: Queue, arguments: Any, way: str) -> None:
    if arguments is None:
        queue.send(scripts.delete(OTHER, now=NOW))
    else:
        queue.send(scripts.declare(OTHER, arguments, now=NOW))
    queue.publish("p-1", "p-2", priority=200)
    steps = move(queue, now=NOW)
    assert (done(steps), moving(steps)) == (2, 2 if way == "long" else 0)
    queue.settle()
    assert queue.client.zrange(there.waiting, 0, -1) == [b"p-1", b"p-2"]
    if way == "short":
        assert queue.client.zscore(there.waiting, "p-1") // 2**45 == 9


def test_jobs_with_dedup_keys_and_large_ones_go_by_way_of_a_client(queue: Queue) -> None:
    queue.publish("p-1", unique="k")
    queue.publish("p-2", message=frame(b'[["' + b"x" * 100_000 + b'"],{},{}]'))
    queue.publish("p-3")
    steps = move(queue)
    assert (done(steps), moving(steps)) == (3, 2)
    assert queue.client.zrange(there.waiting, 0, -1) == [b"p-3"]
    queue.settle()
    assert queue.client.get(there.unique("k")) == b"p-1"
    assert queue.client.zcard(there.waiting) == 3


def test_a_twin_under_the_same_id_is_kept_beside_it(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.send(scripts.publish(OTHER, "p", [Publication("p-1", frame(b"[[2],{},{}]"))], now=NOW))
    steps = move(queue)
    assert (done(steps), moving(steps)) == (2, 1)
    queue.settle()
    bodies = [codec.decode(job.fields[b"message"])[1] for job in queue.send(scripts.take(OTHER, "b", 9, 1000, now=NOW)).jobs]
    assert sorted(bodies) == [b'[["ann"],{},{}]', b'[["ann"],{},{}]', b"[[2],{},{}]"]


@pytest.mark.parametrize(("state", "key"), [(State.WAITING, there.waiting), (State.SCHEDULED, there.scheduled)])
def test_a_damaged_queue_takes_nothing_and_nothing_is_lost(queue: Queue, state: State, key: bytes) -> None:
    queue.publish("p-1", "p-2", due=LATER if state is State.SCHEDULED else None)
    queue.client.set(key, "no index")
    before = everything(queue.client)
    with pytest.raises(MalformedValue):
        move(queue, state)
    after = everything(queue.client)
    assert {name: value for name, value in after.items() if name.startswith(here.base)} == {
        name: value for name, value in before.items() if name.startswith(here.base)
    }


def test_jobs_of_a_temporary_queue_last_in_one_that_lasts(queue: Queue) -> None:
    name = "temporary"
    queue.send(scripts.declare(name, {"x-expires": 60_000}, now=NOW))
    queue.send(scripts.publish(name, "p", [Publication("p-1", frame())], now=NOW))
    call = steering.act_on_matching(Action.MOVE, name, State.WAITING, JobFilter(), OTHER, one_server=True, now=NOW)
    assert queue.send(call).done == 1
    assert queue.client.pttl(there.job("p-1")) == -1


@pytest.mark.parametrize("name", ['quo"ted', "m\u00fcll", "back\\slash", "by\udcfftes"])
def test_names_that_json_writes_otherwise(queue: Queue, name: str) -> None:
    queue.publish("p-1")
    queue.send(scripts.declare(name, {}, now=NOW))
    queue.act_on_matching(Action.MOVE, State.WAITING, value=name, one_server=True)
    queue.settle()
    (job,) = queue.send(scripts.take(name, "b", 9, 1000, now=NOW)).jobs
    assert codec.decode(job.fields[b"message"])[0]["properties"]["delivery_info"]["routing_key"] == name


def test_the_bytes_that_wait_are_given_free(queue: Queue) -> None:
    queue.send(scripts.declare(QUEUE, {"x-max-length-bytes": 1000}, now=NOW))
    queue.publish("p-1", message=frame(b"[[1],{},{}]"))
    queue.publish("p-2", message=frame(b"[[1],{},{}]", task="other"))
    assert done(move(queue, chosen=JobFilter(task="send"))) == 1
    assert int(queue.client.hget(here.meta, "bytes")) == 11


# By way of a client


def test_a_moved_job_keeps_its_payload_priority_due_time_and_age(queue: Queue) -> None:
    queue.send(scripts.delete(OTHER, now=NOW))
    queue.send(scripts.declare(OTHER, {}, "descending", now=NOW))
    queue.publish("p-1", priority=7)
    queue.publish("p-2", due=LATER, priority=2, ttl_ms=10_000)
    for job in ("p-1", "p-2"):
        assert queue.act(Action.MOVE, job, OTHER) == "done"
        assert queue.act(Action.DELETE, job) == "refused"
        assert queue.send(scripts.revive(QUEUE, [job], now=NOW)) == (False,)
    assert queue.settle() == {"p-1": "done", "p-2": "done"}
    one, two = queue.send(scripts.take(OTHER, "bob", 10, 1000, now=LATER)).jobs
    assert (one.id, one.priority, two.id, two.priority) == ("p-1", 7, "p-2", 2)
    assert two.fields[b"published_at"] == str(NOW).encode()
    assert two.fields[b"expires_at"] == str(LATER + 10_000).encode()
    assert set(two.fields) == {b"message", b"published_at", b"due_at", b"expires_at", b"score"}
    head, body = codec.decode(one.fields[b"message"])
    assert (head["properties"]["delivery_info"], body) == ({"exchange": "", "routing_key": OTHER}, b'[["ann"],{},{}]')
    left = {key for key in queue.client.scan_iter(here.base + b"*") if b":history" not in key and not key.endswith(b":times")}
    assert left <= {here.meta, here.wake, here.publisher("p"), here.consumers}


def test_a_move_that_was_cut_off_is_ended_by_the_next_and_nothing_comes_twice(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.act(Action.MOVE, "p-1", OTHER)
    mover = steering.settle(QUEUE)
    hashes = mover.send([queue.send(call) for call in next(mover)])
    receive = mover.send([queue.send(call) for call in hashes])
    assert [queue.send(call) for call in receive] == [1]
    # The mover dies here. A worker is faster than who ends its work.
    assert queue.take(queue=OTHER) == ["p-1"]
    queue.send(scripts.ack(OTHER, "ann", ["p-1"], now=NOW))
    assert queue.act(Action.MOVE, "p-2", OTHER) == "done"
    assert queue.settle() == {"p-1": "done", "p-2": "done"}
    assert queue.take(queue=OTHER) == ["p-2"]


def test_two_who_move_at_the_same_time_move_each_job_once(queue: Queue) -> None:
    queue.publish("p-1", "p-2")
    queue.act(Action.MOVE, "p-1", OTHER)
    movers = [steering.settle(QUEUE) for _ in range(2)]
    calls: list[Any] = [next(mover) for mover in movers]
    for _ in range(2):
        calls = [mover.send([queue.send(each) for each in some]) for mover, some in zip(movers, calls, strict=True)]
    first, second = calls
    assert [queue.send(call) for call in first] == [1]
    assert queue.take(queue=OTHER) == ["p-1"]
    queue.act(Action.MOVE, "p-2", OTHER)
    queue.settle()
    assert [queue.send(call) for call in second] == [1]
    assert queue.take(queue=OTHER) == ["p-2"]
    assert queue.client.zcard(scripts.keys(OTHER).waiting) == 0


def test_what_a_full_queue_refuses_stays_on_the_way_until_there_is_room(queue: Queue) -> None:
    queue.send(scripts.declare(OTHER, {"x-max-length": 1, "x-overflow": "reject-publish"}, now=NOW))
    queue.publish("p-1", "p-2")
    for job in ("p-1", "p-2"):
        queue.act(Action.MOVE, job, OTHER)
        queue.settle()
    with pytest.raises(UsageError, match="at its greatest length"):
        queue.send(steering.check(Action.MOVE, QUEUE, OTHER))
    assert queue.settle() == {"p-2": "refused"}
    assert queue.take(queue=OTHER) == ["p-1"]
    assert queue.settle() == {"p-2": "done"}
    assert queue.take(queue=OTHER) == ["p-2"]


@pytest.mark.parametrize(
    "limit",
    [{"x-max-length": 50}, {"x-max-length-bytes": 500}, {"x-max-length": 100, "x-max-length-bytes": 505}],
    ids=str,
)
def test_of_many_jobs_those_arrive_for_which_there_is_room_and_the_others_keep_their_order(
    queue: Queue, limit: dict[str, int]
) -> None:
    queue.send(scripts.declare(OTHER, {**limit, "x-overflow": "reject-publish"}, now=NOW))
    jobs = [f"p-{n:03}" for n in range(120)]
    queue.publish(*jobs, message=frame(b"[[],{},{}]"))
    assert moving(move(queue, limit=1000)) == 120
    outcomes = queue.settle()
    assert [job for job in jobs if outcomes[job] == "done"] == jobs[:50]
    assert [job for job in jobs if outcomes[job] == "refused"] == jobs[50:]
    assert queue.take(20, queue=OTHER) == jobs[:20]
    assert queue.settle() == {job: "done" if job in jobs[50:70] else "refused" for job in jobs[50:]}
    assert queue.take(queue=OTHER) == jobs[20:70]
    queue.send(scripts.declare(OTHER, {"x-max-length": 1000, "x-overflow": "reject-publish"}, now=NOW))
    assert set(queue.settle().values()) == {"done"}
    assert queue.take(queue=OTHER) == jobs[70:]
    assert queue.client.zcard(here.moves) == queue.client.zcard(here.dead) == 0


def test_a_small_job_does_not_overtake_a_large_one_for_which_there_is_no_room(queue: Queue) -> None:
    queue.send(scripts.declare(OTHER, {"x-max-length-bytes": 100, "x-overflow": "reject-publish"}, now=NOW))
    for job, length in (("p-1", 10), ("p-2", 200), ("p-3", 10)):
        queue.publish(job, message=frame(b"x" * length))
    move(queue)
    assert queue.settle() == {"p-1": "done", "p-2": "refused", "p-3": "refused"}
    assert queue.take(queue=OTHER) == ["p-1"]


def test_what_was_stored_before_its_mover_died_takes_no_room_a_second_time(queue: Queue) -> None:
    queue.send(scripts.declare(OTHER, {"x-max-length": 3, "x-overflow": "reject-publish"}, now=NOW))
    queue.publish(*(f"p-{n}" for n in range(5)))
    move(queue, limit=1000)
    mover = steering.settle(QUEUE)
    hashes = mover.send([queue.send(call) for call in next(mover)])
    receive = mover.send([queue.send(call) for call in hashes])
    assert [queue.send(call) for call in receive] == [3]
    assert list(queue.settle().values()) == ["done"] * 3 + ["refused"] * 2
    assert queue.take(queue=OTHER) == ["p-0", "p-1", "p-2"]


def test_twins_under_one_id_are_both_kept(queue: Queue) -> None:
    queue.publish("p-1")
    queue.send(scripts.publish(OTHER, "p", [Publication("p-1", frame(b"[[2],{},{}]"))], now=NOW))
    queue.act(Action.MOVE, "p-1", OTHER)
    assert queue.settle() == {"p-1": "done"}
    bodies = [codec.decode(job.fields[b"message"])[1] for job in queue.send(scripts.take(OTHER, "b", 9, 1000, now=NOW)).jobs]
    assert sorted(bodies) == [b'[["ann"],{},{}]', b"[[2],{},{}]"]


def test_a_dead_job_begins_anew_in_another_queue(queue: Queue) -> None:
    queue.send(scripts.declare(QUEUE, {"x-dead-letter-exchange": "graves"}, now=NOW))
    queue.bury("p-1")
    assert queue.act(Action.MOVE, "p-1", OTHER) == "done"
    assert queue.client.zcard(here.outbox) == 0
    queue.settle()
    (job,) = queue.send(scripts.take(OTHER, "bob", 1, 1000, now=NOW)).jobs
    assert (job.deliveries, set(job.fields)) == (1, {b"message", b"published_at"})


def test_every_key_of_a_temporary_queue_keeps_a_ttl_when_jobs_move_in_and_out(queue: Queue) -> None:
    for name in (QUEUE, OTHER):
        queue.send(scripts.declare(name, {"x-expires": 60_000}))
    queue.send(scripts.publish(QUEUE, "p", [Publication(f"p-{n}", frame(), unique=str(n)) for n in range(3)]))
    for job in ("p-0", "p-1"):
        queue.send(steering.act(Action.MOVE, QUEUE, job, OTHER))
    assert all(queue.client.pttl(key) > 0 for key in queue.client.scan_iter())
    queue.settle()
    assert all(queue.client.pttl(key) > 0 for key in queue.client.scan_iter())
    queue.send(steering.pause(OTHER))
    assert all(queue.client.pttl(key) > 0 for key in queue.client.scan_iter())
