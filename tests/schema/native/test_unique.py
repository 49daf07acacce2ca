"""Dedup keys: while one job of a queue holds a key, no other with the same one is stored."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.errors import UsageError
from ferryman.schema.family import Target
from ferryman.schema.job import Job, State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.totals import Totals

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")


def one(number: int, key: str | None = "k", **fields: int) -> list[Publication]:
    return jobs(number, unique=key, **fields)


def is_stored(send: Send, number: int, now: int | None = None, **fields: int) -> bool:
    (fresh,) = send(scripts.publish("q", "p", one(number, **fields), create=True, now=now)).fresh
    return bool(fresh)


def test_a_second_job_with_the_key_is_dropped_and_counted(send: Send, client: redis.Redis) -> None:
    batch = [*one(1), *one(2), *one(3, "other"), *one(4, None), *one(5, None)]
    assert send(scripts.publish("q", "p", batch, create=True)).fresh == (True, False, True, True, True)
    assert not is_stored(send, 6)
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == ["p-1", "p-3", "p-4", "p-5"]
    assert not is_stored(send, 7), "it is being worked on"
    assert client.hget(keys.meta, "deduplicated") == b"3"
    assert client.get(keys.unique("k")) == b"p-1"
    assert client.pttl(keys.unique("k")) == -1


@pytest.mark.parametrize("end", ["ack", "late ack", "reject", "remove", "purge", "expire", "no_ack", "delivery limit"])
def test_a_key_is_free_again_when_its_job_has_ended(send: Send, client: redis.Redis, end: str) -> None:
    assert is_stored(send, 1, now=1_000, ttl_ms=100)
    match end:
        case "remove":
            send(scripts.remove("q", "p-1"))
        case "purge":
            send(scripts.purge("q"))
        case "expire":
            send(scripts.take("q", "ann", 1, LEASE, now=1_100))
        case "no_ack":
            send(scripts.take("q", "ann", 1, LEASE, no_ack=True, now=1_000))
        case _:
            send(scripts.take("q", "ann", 1, 10, now=1_000))
    match end:
        case "ack":
            send(scripts.ack("q", "ann", ["p-1"], now=1_000))
        case "late ack":
            send(scripts.reclaim("q", now=1_050))
            send(scripts.ack("q", "ann", ["p-1"], now=1_050))
        case "reject":
            send(scripts.reject("q", "ann", "p-1", "rejected", now=1_000))
        case "delivery limit":
            send(scripts.take("q", "bob", 1, 10, delivery_limit=1, now=1_050))
    assert not client.exists(keys.unique("k"))
    assert is_stored(send, 2)


def test_a_job_in_done_holds_no_key(send: Send) -> None:
    send(scripts.declare("q", {"x-retention": 99_999}))
    assert is_stored(send, 1)
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.ack("q", "ann", ["p-1"]))
    assert is_stored(send, 2)


def test_a_key_for_a_time_is_held_for_that_time_whatever_becomes_of_the_job(send: Send, client: redis.Redis) -> None:
    assert is_stored(send, 1, unique_ttl_ms=60_000)
    send(scripts.take("q", "ann", 1, LEASE, no_ack=True))
    assert not is_stored(send, 2, unique_ttl_ms=60_000)
    assert 0 < client.pttl(keys.unique("k")) <= 60_000
    client.pexpire(keys.unique("k"), 0)
    assert is_stored(send, 3, unique_ttl_ms=60_000)


def test_a_publish_that_is_repeated_is_not_a_second_job(send: Send) -> None:
    assert is_stored(send, 1)
    assert not is_stored(send, 1)
    send(scripts.take("q", "ann", 1, LEASE, no_ack=True))
    assert not is_stored(send, 1)


def test_a_revived_job_gets_its_key_back_unless_another_one_has_it(send: Send, client: redis.Redis) -> None:
    assert is_stored(send, 1)
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    send(scripts.revive("q", ["p-1"]))
    assert not is_stored(send, 2)
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    assert is_stored(send, 3)
    send(scripts.revive("q", ["p-1"]))
    send(scripts.remove("q", "p-1"))
    assert client.get(keys.unique("k")) == b"p-3"


def test_a_key_whose_job_has_vanished_is_free(send: Send, client: redis.Redis) -> None:
    assert is_stored(send, 1)
    client.delete(keys.job("p-1"), keys.waiting)
    assert is_stored(send, 2)


def test_keys_go_with_their_queue_and_expire_with_a_temporary_one(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}))
    assert is_stored(send, 1)
    assert client.pttl(keys.unique("k")) > 0
    send(scripts.delete("q"))
    assert client.keys() == [keys.publisher("p")]


def test_imported_jobs_hold_their_keys_and_give_them_back(send: Send, client: redis.Redis) -> None:
    written = Totals()
    target = Target("ferryman", 0)
    for number, state in enumerate((State.WAITING, State.COMPLETED)):
        job = Job(id=f"j{number}", queue="q", state=state, name="t", payload=b"1", unique_key=f"k{number}", finished_at=5)
        FAMILY.tally_written(job, written)
        for command in FAMILY.write(job, target):
            client.execute_command(*command)
    for command in FAMILY.finish(target, written):
        client.execute_command(*command)
    assert send(scripts.publish("q", "p", [*one(1, "k0"), *one(2, "k1")])).fresh == (False, True)
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.ack("q", "ann", ["j0"]))
    assert send(scripts.publish("q", "p", one(3, "k0"))).fresh == (True,)


@pytest.mark.parametrize("fields", [{"unique": ""}, {"unique": "a\nb"}, {"unique": "k", "unique_ttl_ms": 0}])
def test_a_key_that_can_not_be_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        scripts.publish("q", "p", jobs(1, **fields))
