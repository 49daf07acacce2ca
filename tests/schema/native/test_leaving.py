"""How jobs leave a queue, or its way: dead, done, removed, purged, deleted, blocked."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, jobs

scripts = QueueScripts()
keys = scripts.keys("q")


def test_a_rejected_job_is_kept_with_its_reason_and_can_be_revived_to_its_place(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 1, LEASE))
    assert send(scripts.reject("q", "ann", "p-1", "rejected", "no such mailbox"))
    assert not send(scripts.reject("q", "ann", "p-1", "rejected"))
    assert client.hmget(keys.job("p-1"), "reason", "error") == [b"rejected", b"no such mailbox"]
    assert send(scripts.revive("q", ["p-1", "p-2"])) == (True, False)
    taken = send(scripts.take("q", "bob", 2, LEASE))
    assert [(job.id, job.deliveries) for job in taken.jobs] == [("p-1", 1), ("p-2", 1)]


def test_done_jobs_are_kept_for_the_declared_retention(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-retention": 1_000}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 2, LEASE, now=1_000))
    send(scripts.ack("q", "ann", ["p-1"], now=1_000))
    assert send(scripts.size("q")).done == 1
    send(scripts.ack("q", "ann", ["p-2"], now=2_000))
    assert client.zrange(keys.done, 0, -1) == [b"p-2"]
    assert not client.exists(keys.job("p-1"))


def test_a_job_is_removed_by_id_unless_it_is_running(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", [*jobs(1, 2, 3), *jobs(4, due_ms=2**50)]))
    send(scripts.take("q", "ann", 2, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    assert [send(scripts.remove("q", f"p-{number}", "dead")) for number in (2, 3, 4)] == ["held", None, None]
    assert [send(scripts.remove("q", f"p-{number}")) for number in range(1, 6)] == ["dead", "held", "waiting", "scheduled", None]
    assert client.keys(keys.job_prefix + b"*") == [keys.job("p-2")]


def message(task: str, **headers: Any) -> bytes:
    """The frame of a Celery task's message."""
    return codec.encode({"headers": {"id": task, **headers}}, b"[]")


@pytest.mark.parametrize("others", [0, 100])
def test_the_jobs_of_a_task_are_found_by_its_id_however_long_the_queue(send: Send, client: redis.Redis, others: int) -> None:
    send(scripts.declare("q", {}))
    waiting = [Publication(f"p-{n}", message(f"task-{n % 20}", parent={"id": "task-7"})) for n in range(50)]
    send(scripts.publish("q", "p", [*waiting, Publication("p-50", message("task-7"), due_ms=2**50)]))
    client.zadd(keys.waiting, {"ghost": 2**50})
    send(scripts.publish("q", "p", [Publication("odd", b'{"headers":"task-7"\n'), Publication("odd-2", b'["task-7"]\n')]))
    send(scripts.publish("q", "p", [Publication("odd-3", b'{"headers":{"id":["task-7"]}}\n'), Publication("odd-4", b"task-7")]))
    seen, found = 0, []
    while True:
        part = send(scripts.find("q", ["task-7", "task-9", *(f"other-{n}" for n in range(others))], seen=seen, limit=10))
        found += [(job.id, job.task) for job in part.jobs]
        seen += 10
        if not part.more:
            break
    sevens, nines = [f"p-{n}" for n in (27, 47, 7)], [f"p-{n}" for n in (29, 49, 9)]
    assert sorted(found) == sorted([*((job, "task-7") for job in sevens), *((job, "task-9") for job in nines)])
    ((job, task, text),) = send(scripts.find("q", ["task-7"], "scheduled")).jobs
    assert (job, task, text) == ("p-50", "task-7", message("task-7"))
    assert send(scripts.find("q", ["task"])).jobs == ()


def test_a_job_of_another_system_is_its_own_task(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    client.hset(keys.job("42"), mapping={"payload": b"{}", "name": "mail"})
    client.zadd(keys.waiting, {"42": 1})
    assert send(scripts.find("q", ["7", "42"])).jobs == (("42", "42", b""),)


def test_dead_jobs_are_shown_page_by_page_as_they_died(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length": 2}))
    send(scripts.publish("q", "p", jobs(*range(5)), now=1_000))
    pages = [send(scripts.dead_letters("q", seen=seen, limit=2)) for seen in (0, 2)]
    assert [[dead_letter.job.id for dead_letter in page] for page in pages] == [["p-0", "p-1"], ["p-2"]]
    assert [(dead_letter.number, dead_letter.died_at) for dead_letter in pages[1]] == [(0, 1_000)]


def test_purging_goes_chunk_by_chunk_and_leaves_held_and_dead(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", [*jobs(*range(10)), *jobs(10, due_ms=2**50)]))
    send(scripts.take("q", "ann", 2, LEASE))
    send(scripts.reject("q", "ann", "p-0", "rejected"))
    chunks = [send(scripts.purge("q", limit=6)), send(scripts.purge("q", limit=6))]
    assert [(chunk.jobs, chunk.more) for chunk in chunks] == [(6, True), (3, False)]
    size = send(scripts.size("q"))
    assert (size.waiting, size.scheduled, size.held, size.dead) == (0, 0, 1, 1)


def test_a_deleted_queue_leaves_no_key(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-retention": 9_999}))
    send(scripts.publish("q", "p", [*jobs(*range(20)), *jobs(20, due_ms=2**50)]))
    send(scripts.take("q", "ann", 4, LEASE))
    send(scripts.take("q", "bob", 4, LEASE))
    send(scripts.reject("q", "ann", "p-0", "rejected"))
    send(scripts.ack("q", "ann", ["p-1"]))
    assert send(scripts.delete("q", if_unused=True)).status == "used"
    send(scripts.forget("q", "ann"))
    assert send(scripts.delete("q", if_empty=True)).status == "filled"
    parts = []
    while not parts or parts[-1].more:
        parts.append(send(scripts.delete("q", limit=8)))
    assert sum(part.jobs for part in parts) == 21
    assert client.keys() == [keys.publisher("p")]
    assert send(scripts.delete("q")).status == "missing"


def test_a_deleted_queue_is_not_brought_back_by_late_words(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1)))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.delete("q"))
    assert send(scripts.ack("q", "ann", ["p-1"])) == ("lost",)
    assert send(scripts.requeue("q", "ann", ["p-1"])) == (False,)
    assert send(scripts.forget("q", "ann")) == 0
    assert client.keys() == [keys.publisher("p")]


# Dependencies, as migrations write them


def block(client: redis.Redis, job: str, *needs: str) -> None:
    """A job that waits for others."""
    client.hset(keys.job(job), mapping={"payload": b"x", "score": 7})
    client.sadd(keys.blocked, job)
    for needed in needs:
        client.sadd(keys.needs(job), needed)
        client.sadd(keys.unblocks(needed), job)


def test_a_blocked_job_waits_once_all_it_needs_is_done(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    block(client, "last", "p-1", "p-2")
    send(scripts.take("q", "ann", 9, LEASE))
    send(scripts.ack("q", "ann", ["p-1"]))
    assert (send(scripts.size("q")).blocked, send(scripts.size("q")).waiting) == (1, 0)
    send(scripts.ack("q", "ann", ["p-2"]))
    taken = send(scripts.take("q", "ann", 9, LEASE))
    assert [(job.id, job.score) for job in taken.jobs] == [("last", 7)]
    send(scripts.ack("q", "ann", ["last"]))
    assert set(client.keys()) == {keys.meta, keys.consumers, keys.publisher("p"), keys.times, keys.history}


def test_blocked_jobs_can_be_removed_and_go_with_their_queue(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    for job in ("one", "two", "three"):
        block(client, job, "p-1", "p-2")
    assert send(scripts.remove("q", "one")) == "blocked"
    assert client.smembers(keys.unblocks("p-1")) == {b"two", b"three"}
    assert send(scripts.delete("q", if_empty=True)).status == "filled"
    assert send(scripts.delete("q")).jobs == 2
    assert client.dbsize() == 0
