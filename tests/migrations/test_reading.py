"""The values of keys: as entries promise, in bounded pieces, whatever happens to the keys meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

import pytest
import redis
from attrs import define, field
from ferryman.migrations.long_keys import CHUNK, LIST_CHUNK
from ferryman.migrations.reading import BATCH, BATCH_BYTES, read_all, read_entries
from ferryman.migrations.throttle import POLITE_SIZES, UNTHROTTLED, Pace, Throttle
from ferryman.schema.connection.pipeline import open_pipeline
from ferryman.schema.fact import Entry

from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def read(client: redis.Redis, *keys: str | bytes) -> list[Entry]:
    with open_pipeline(client) as pipe:
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        return [entry for batch in read_entries(pipe, names) for entry in batch]


def whole(entries: Iterable[Entry]) -> list[Any]:
    """The items of all entries, after a check that their offsets fit together."""
    items: list[Any] = []
    for entry in entries:
        assert entry.offset == len(items)
        items += entry.value
    return items


def test_every_type_is_read_as_entries_promise(client: redis.Redis) -> None:
    client.set("string", b"\xff\x00")
    client.rpush("list", "head", "tail")
    client.sadd("set", "member")
    client.zadd("zset", {"second": 2.5, "first": float("-inf")})
    client.hset("hash", mapping={"field": "value"})
    client.xadd("stream", {"a": "b"})
    assert read(client, "string", "list", "set", "zset", "hash", "stream") == [
        Entry(b"string", "string", b"\xff\x00"),
        Entry(b"list", "list", [b"head", b"tail"]),
        Entry(b"set", "set", [b"member"]),
        Entry(b"zset", "zset", [(b"first", float("-inf")), (b"second", 2.5)]),
        Entry(b"hash", "hash", {b"field": b"value"}),
        Entry(b"stream", "stream", None),
    ]


def test_an_empty_string_is_an_entry_and_a_missing_key_is_none(client: redis.Redis) -> None:
    client.set("empty", "")
    assert read(client, "missing", "empty", "gone") == [Entry(b"empty", "string", b"")]


def test_time_to_live_is_told(client: redis.Redis) -> None:
    client.set("lock", 1, px=60_000)
    (entry,) = read(client, "lock")
    assert entry.ttl_ms is not None
    assert 0 < entry.ttl_ms <= 60_000


def test_a_long_list_comes_in_chunks(client: redis.Redis) -> None:
    items = [str(index).encode() for index in range(2 * LIST_CHUNK + 1)]
    client.rpush("list", *items)
    entries = read(client, "list")
    assert whole(entries) == items
    assert max(len(entry.value) for entry in entries) == LIST_CHUNK


def test_a_large_zset_comes_in_order_and_in_chunks(client: redis.Redis) -> None:
    members = {f"m{index:06}": index // 7 for index in range(2 * CHUNK + 100)}
    client.zadd("zset", members)
    entries = read(client, "zset")
    assert whole(entries) == [(name.encode(), float(score)) for name, score in members.items()]
    assert len(entries) == 3


@pytest.mark.parametrize("redis_type", ["set", "hash"])
def test_large_sets_and_hashes_come_in_chunks(client: redis.Redis, redis_type: str) -> None:
    names = [f"m{index}" for index in range(2 * CHUNK + 100)]
    if redis_type == "set":
        client.sadd("large", *names)
    else:
        client.hset("large", mapping=dict.fromkeys(names, "v"))
    entries = read(client, "large")
    assert sorted(whole(entries)) == sorted(name.encode() for name in names)
    assert len(entries) > 1


@pytest.mark.parametrize("redis_type", ["list", "zset", "set", "hash"])
def test_a_polite_reader_takes_little_of_a_long_key_at_once(client: redis.Redis, redis_type: str) -> None:
    names = [f"m{index:06}" for index in range(5_000)]
    match redis_type:
        case "list":
            client.rpush("key", *names)
        case "zset":
            client.zadd("key", dict.fromkeys(names, 1))
        case "set":
            client.sadd("key", *names)
        case "hash":
            client.hset("key", mapping=dict.fromkeys(names, "v"))
    with open_pipeline(client) as pipe:
        found = [entry for batch in read_all(pipe, [b"key"], Throttle.parse("polite").pace()) for entry in batch]
    items = [item[0] if redis_type == "zset" else item for item in whole(found)]
    assert sorted(items) == [name.encode() for name in names]
    most = POLITE_SIZES.items if redis_type == "list" else POLITE_SIZES.members
    assert max(len(entry.value) for entry in found) < 1.1 * most  # SSCAN and HSCAN end with the bucket that they are at


def test_items_that_stay_are_read_once_in_small_chunks_too(client: redis.Redis) -> None:
    names = [b"%06d" % number for number in range(5_000)]
    client.rpush("key", *names)
    found: list[bytes] = []
    with open_pipeline(client) as pipe:
        for (entry,) in read_entries(pipe, [b"key"], sizes=POLITE_SIZES):
            found += entry.value
            client.lpop("key", 30)
            client.rpush("key", "new")
    old = [name for name in found if name != b"new"]
    assert len(old) == len(set(old))
    assert set(client.lrange("key", 0, -1)) - {b"new"} <= set(old)


def test_members_of_a_zset_that_stay_are_all_read_once_while_those_before_them_go(client: redis.Redis) -> None:
    members = [f"m{index:06}" for index in range(3 * CHUNK)]
    client.zadd("zset", {name: index for index, name in enumerate(members)})
    found: list[bytes] = []
    with open_pipeline(client) as pipe:
        for (entry,) in read_entries(pipe, [b"zset"]):
            found += [member for member, _ in entry.value]
            client.zremrangebyrank("zset", 0, CHUNK // 2 - 1)
    stayed = [name.encode() for name in members[5 * (CHUNK // 2) :]]
    assert found[-len(stayed) :] == stayed
    assert len(found) == len(set(found))


def test_a_zset_of_which_all_that_was_read_goes_away_is_read_to_its_end(client: redis.Redis) -> None:
    members = [f"m{index:06}" for index in range(3 * CHUNK)]
    client.zadd("zset", {name: index for index, name in enumerate(members)})
    found: list[bytes] = []
    with open_pipeline(client) as pipe:
        for (entry,) in read_entries(pipe, [b"zset"]):
            found += [member for member, _ in entry.value]
            client.zrem("zset", *found)
    assert found == [name.encode() for name in members]


def test_a_key_that_changes_its_type_all_the_time_is_read_in_one_of_its_forms(server: Server, client: redis.Redis) -> None:
    done = threading.Event()

    def change() -> None:
        with server.client() as other:
            while not done.is_set():
                other.pipeline().delete("key").hset("key", "field", "value").execute()
                other.pipeline().delete("key").set("key", "text").execute()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        forms = {"string": b"text", "hash": {b"field": b"value"}}
        for _ in range(300):
            for entry in read(client, "key"):
                assert entry.value == forms[entry.redis_type]
    finally:
        done.set()
        thread.join()


@define
class Noting(Pace):
    """Notes how many keys each round trip brings."""

    sizes: list[int] = field(factory=list)

    def end(self, keys: int) -> None:
        self.sizes.append(keys)


@pytest.mark.parametrize("redis_type", ["string", "hash", "list"])
def test_large_values_come_in_smaller_batches(client: redis.Redis, redis_type: str) -> None:
    names = [b"%d" % number for number in range(300)]
    for name in names:
        value = "x" * (200_000 if int(name) < 250 else 10)
        match redis_type:
            case "string":
                client.set(name, value)
            case "hash":
                client.hset(name, mapping={"small": 1, "large": value})
            case "list":
                client.rpush(name, 1, value)
    pace = Noting(UNTHROTTLED)
    with open_pipeline(client) as pipe:
        assert [entry.key for batch in read_all(pipe, names, pace) for entry in batch] == names
    first, *others = pace.sizes
    assert first == BATCH
    assert max(others[:-1]) <= BATCH_BYTES // 200_000 + 1
    assert others[-1] < BATCH


READ = """
import resource, sys, redis
from ferryman.migrations.reading import BATCH, BATCH_BYTES, read_all, read_entries
from ferryman.migrations.throttle import UNTHROTTLED, Pace
from ferryman.schema.connection.pipeline import open_pipeline
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open_pipeline(redis.Redis(port=int(sys.argv[1]), protocol=2)) as pipe:
    size = sum(len(entry.value) for batch in read_entries(pipe, [b"huge"]) for entry in batch)
print(size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_a_value_of_500_mb_takes_no_more_than_its_reply_and_itself(client: redis.Redis, server: Server) -> None:
    """Redis has no command that reads a value in pieces and tells whether it has changed meanwhile."""
    client.execute_command("SETRANGE", "huge", 500_000_000 - 1, "x")
    printed = subprocess.run([sys.executable, "-c", READ, str(server.port)], capture_output=True, text=True, check=True).stdout
    size, memory = map(int, printed.split())
    assert size == 500_000_000
    assert memory < 2.2 * size
