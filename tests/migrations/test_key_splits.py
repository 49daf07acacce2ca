"""Keys of very many items in parts: together the same as one serial read, also while others come and go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.migrations import key_splits, long_keys
from ferryman.migrations.key_splits import KeySplit, cut, read_split
from ferryman.migrations.long_keys import Sizes
from ferryman.migrations.reading import read_entries
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from ferryman.schema.fact import Entry

from ..support.servers import Server

KEY = b"key"


def write(client: redis.Redis, redis_type: str, first: int, last: int) -> None:
    """Adds items ``<n>``, n in [first, last): in ascending order, those of a zset by score and, among ten, by member."""
    add = {
        "list": "redis.call('rpush', KEYS[1], string.format('%08d', n))",
        "zset": "redis.call('zadd', KEYS[1], math.floor(n / 10), string.format('%08d', n))",
        "set": "redis.call('sadd', KEYS[1], string.format('%08d', n))",
        "hash": "redis.call('hset', KEYS[1], string.format('%08d', n), n)",
    }[redis_type]
    client.eval(f"for n = ARGV[1], ARGV[2] - 1 do {add} end", 1, KEY, first, last)


def items(entries: Iterator[Entry] | list[Entry]) -> list[Any]:
    """Every item; those of lists and zsets with their index."""
    found: list[Any] = []
    for entry in entries:
        values = entry.value.items() if entry.redis_type == "hash" else entry.value
        found += enumerate(values, entry.offset) if entry.redis_type in ("list", "zset") else values
    return found


def serially(pipe: PipelineConnection) -> list[Any]:
    return items([entry for batch in read_entries(pipe, [KEY]) for entry in batch])


def splits_of(pipe: PipelineConnection, redis_type: str) -> list[KeySplit]:
    """The key's parts, as they come to those who read them."""
    splits = cut(pipe, KEY, redis_type, None, by_cursor=True)
    return [KeySplit.from_json(json.loads(json.dumps(split.to_json()))) for split in splits]


SMALL = Sizes(50, 50)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of a few thousand items are long, and come in SMALL chunks."""
    for module, name, value in [
        (key_splits, "LONG", 2_000),
        (key_splits, "PART", 1_000),
        (key_splits, "PAGE", 200),
        (key_splits, "LIST_CHUNK", 50),
        (long_keys, "LIST_CHUNK", 50),
        (long_keys, "MARGIN", 5),
    ]:
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize(("redis_type", "size"), [("zset", 500_000), ("list", 300_000)])
def test_parts_of_a_long_key_together_are_the_key(any_server: Server, redis_type: str, size: int) -> None:
    if any_server.kind != "valkey":
        pytest.skip("the size makes no difference between kinds of servers")
    with any_server.client() as client:
        client.flushall()
        write(client, redis_type, 0, size)
        with open_pipeline(client) as pipe:
            splits = splits_of(pipe, redis_type)
            assert items(entry for split in splits for entry in read_split(pipe, split)) == serially(pipe)
    assert [split.count for split in splits] == [100_000] * (size // 100_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("redis_type", ["list", "zset", "set", "hash"])
def test_every_item_is_in_one_part(client: redis.Redis, redis_type: str) -> None:
    write(client, redis_type, 0, 5_000)
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, redis_type)
        found = [items(read_split(pipe, split, SMALL)) for split in splits]
        assert Counter(item for split in found for item in split) == Counter(serially(pipe))
    assert len(splits) in (4, 5)
    assert max(map(len, found)) < 1_800


SIZE = 5_000
STABLE = range(2_500, 4_000)
"""The items that stand still; the others go, and more come."""


def churn(client: redis.Redis, redis_type: str, random: Random, state: dict[str, int]) -> None:
    """Takes some items away before and behind the stable ones, and adds some."""
    low, high = state["low"], state["high"]
    gone, come = random.randrange(30), random.randrange(30)
    names = [f"{number:08}" for number in range(low, min(low + gone, STABLE.start))]
    state["low"] += len(names)
    match redis_type:
        case "list":
            client.lpop(KEY, len(names)) if names else None
            client.rpush(KEY, *(f"{number:08}" for number in range(high, high + come + 1)))
        case "zset":
            client.zrem(KEY, "none", *names)
            # Between the stable ones, too.
            client.zadd(KEY, {f"new{high + step}": random.randrange(SIZE // 10) for step in range(come + 1)})
        case "set" | "hash":
            crowd = [f"{number:08}" for number in range(SIZE, 4 * SIZE)]
            if random.random() < 0.3:
                client.sadd(KEY, *crowd) if redis_type == "set" else client.hset(KEY, mapping=dict.fromkeys(crowd, ""))
            elif random.random() < 0.4:
                client.srem(KEY, *crowd) if redis_type == "set" else client.hdel(KEY, *crowd)
    state["high"] += come + 1


def in_turn(readers: list[Iterator[Entry]], between: Callable[[], None]) -> list[Entry]:
    """What all readers say, one entry of each after the other."""
    found = []
    while readers:
        for reader in list(readers):
            entry = next(reader, None)
            if entry is None:
                readers.remove(reader)
            else:
                found.append(entry)
            between()
    return found


def seen(entries: list[Entry]) -> Counter[int]:
    """How often each stable item was seen."""
    names = Counter(
        name for entry in entries for name in (entry.value if entry.redis_type in ("list", "set", "hash") else dict(entry.value))
    )
    return Counter({number: names[b"%08d" % number] for number in STABLE if names[b"%08d" % number]})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("redis_type", ["list", "zset", "set", "hash"])
def test_items_that_stand_still_are_in_one_part_while_others_come_and_go(client: redis.Redis, redis_type: str, seed: int) -> None:
    write(client, redis_type, 0, SIZE)
    random, state = Random(seed), {"low": 0, "high": SIZE}
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, redis_type)
        assert len(splits) in (4, 5)
        found = in_turn([read_split(pipe, split, SMALL) for split in splits], lambda: churn(client, redis_type, random, state))
    assert seen(found) == Counter(STABLE)


@pytest.mark.usefixtures("small")
def test_the_same_by_indexes_alone_misses_items(client: redis.Redis) -> None:
    write(client, "list", 0, SIZE)
    random, state = Random(1), {"low": 0, "high": SIZE}
    with open_pipeline(client) as pipe:
        blind = [evolve(split, after=(), until=()) for split in splits_of(pipe, "list")]
        chunks_of_some = [read_split(pipe, split, SMALL) for split in blind]
        found = in_turn(chunks_of_some, lambda: churn(client, "list", random, state))
    assert seen(found) != Counter(STABLE)


@pytest.mark.usefixtures("small")
def test_a_set_without_its_next_parts_items_told_apart_repeats_some(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    write(client, "set", 0, SIZE)
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, "set")
        assert sum(len(items(read_split(pipe, split, SMALL))) for split in splits) == SIZE
        monkeypatch.setattr(key_splits, "FULL", SIZE)
        assert sum(len(items(read_split(pipe, split, SMALL))) for split in splits) > SIZE


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["head", "tail"])
def test_a_list_of_which_whole_parts_have_been_taken_away_is_read_to_the_last_item(client: redis.Redis, end: str) -> None:
    write(client, "list", 0, SIZE)
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, "list")
        if end == "head":
            client.lpop(KEY, 2_500)
            write(client, "list", SIZE, SIZE + 3_000)
        else:
            client.rpop(KEY, 2_500)
            client.lpush(KEY, *(f"new {number}" for number in range(3_000)))
        found = [[name for entry in read_split(pipe, split, SMALL) for name in entry.value] for split in splits]
    left = range(2_500, SIZE) if end == "head" else range(SIZE - 2_500)
    # The first part has nothing to know its beginning by: it begins with what stands at the head.
    behind = [name for split in found[1:] for name in split]
    assert behind == [b"%08d" % number for number in left][len(left) - len(behind) :]
    assert set(left) <= {int(name) for split in found for name in split if not name.startswith(b"new")}


@pytest.mark.usefixtures("small")
def test_a_list_that_has_lost_items_at_every_border_is_read_once(client: redis.Redis) -> None:
    write(client, "list", 0, SIZE)
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, "list")
        gone = {b"%08d" % (split.offset - back) for split in splits[1:] for back in (1, 3)}
        for name in gone:
            client.lrem(KEY, 1, name.decode())
        found = [name for split in splits for entry in read_split(pipe, split, SMALL) for name in entry.value]
    assert found == sorted({b"%08d" % number for number in range(SIZE)} - gone)


@pytest.mark.usefixtures("small")
def test_a_list_of_tokens_is_as_long_in_parts(client: redis.Redis) -> None:
    client.rpush(KEY, *["1"] * 5_000)
    with open_pipeline(client) as pipe:
        assert items(entry for split in splits_of(pipe, "list") for entry in read_split(pipe, split, SMALL)) == serially(pipe)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("redis_type", ["list", "zset", "set", "hash"])
def test_a_key_that_is_another_by_now_has_no_items_of_the_old_one(client: redis.Redis, redis_type: str) -> None:
    write(client, redis_type, 0, 4_000)
    with open_pipeline(client) as pipe:
        splits = splits_of(pipe, redis_type)
        client.delete(KEY)
        assert items(entry for split in splits for entry in read_split(pipe, split, SMALL)) == []
        client.set(KEY, "text")
        assert items(entry for split in splits for entry in read_split(pipe, split, SMALL)) == []
        client.delete(KEY)
        write(client, redis_type, 0, 5)
        # Where a set of five is a table, there are buckets that belong to several parts.
        assert set(items(entry for split in splits for entry in read_split(pipe, split, SMALL))) == set(serially(pipe))


def test_what_can_not_be_cut_stays_whole(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LONG", 100), ("PART", 10)):
        monkeypatch.setattr(key_splits, name, value)
    client.sadd(KEY, *range(120))
    with open_pipeline(client) as pipe:
        assert cut(pipe, KEY, "set", None, by_cursor=True) == []  # an intset, which has no positions
        client.sadd(KEY, *(f"m{number}" for number in range(500)))
        assert cut(pipe, KEY, "set", None, by_cursor=False) == []
        assert len(cut(pipe, KEY, "set", None, by_cursor=True)) > 1
        assert cut(pipe, KEY, "list", None, by_cursor=True) == []  # the wrong type
