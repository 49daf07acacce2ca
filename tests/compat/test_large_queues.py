"""The last scripts of a migration: thousands of staged jobs come into their list in several calls, in order, and all at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from ferryman.compat import kickq, kombu
from ferryman.compat.scripts import script

pytestmark = pytest.mark.in_turn

MANY = 2_500


def calls(client: redis.Redis, text: str, keys: list[str], *args: str) -> int:
    """How many calls it takes until the script has nothing left to do."""
    number = 1
    while client.eval(text, len(keys), *keys, *args) == 1:
        number += 1
    return number


def pop_order(client: redis.Redis, key: str, end: str) -> list[str]:
    found: Any = client.lrange(key, 0, -1)
    names = [name.decode() for name in found]
    return names if end == "head" else names[::-1]


@pytest.mark.parametrize("end", ["head", "tail"])
def test_staged_ids_run_in_their_order_before_those_that_stand_in_the_list(client: redis.Redis, end: str) -> None:
    staged, standing = [f"new-{number:05}" for number in range(MANY)], [f"old-{number:05}" for number in range(MANY)]
    client.zadd("staged", {name: at for at, name in enumerate(staged)})
    # An earlier run has left some of the same jobs.
    left = [*standing[:1_000], *staged[:500], *standing[1_000:]]
    client.rpush("list", *(left if end == "head" else left[::-1]))
    text, keys = script(kickq.__name__, "queue_ids"), ["staged", "list", "new"]
    assert client.eval(text, len(keys), *keys, end) == 1
    assert pop_order(client, "list", end) == left
    assert calls(client, text, keys, end) > 3
    assert pop_order(client, "list", end) == [*staged, *standing]
    assert client.keys() == [b"list"]
    assert calls(client, text, keys, end) == 1
    assert pop_order(client, "list", end) == [*staged, *standing]


def message(tag: str, size: int = 10) -> str:
    return json.dumps({"body": "x" * size, "properties": {"delivery_tag": tag}})


@pytest.mark.parametrize("size", [10, 100_000])
def test_staged_messages_run_in_their_order_before_those_that_stand_in_the_list(client: redis.Redis, size: int) -> None:
    number = MANY if size < 1_000 else 100
    staged, standing = ([f"{word}-{at:05}" for at in range(number)] for word in ("new", "old"))
    for at, tag in enumerate(staged):
        client.hset("staged", tag, "3\n" + message(tag, size))
        client.zadd("order", {tag: at})
    client.lpush("list-3", *(message(tag, size) for tag in [*standing, *staged[:50]]))
    client.lpush("list-0", message("other"))
    text, keys = script(kombu.__name__, "queue"), ["staged", "order", "list-0", "new-0", "list-3", "new-3"]
    assert calls(client, text, keys, "0", "3") > 2
    tags = [json.loads(each)["properties"]["delivery_tag"] for each in pop_order(client, "list-3", "tail")]
    assert tags == [*staged, *standing]
    assert pop_order(client, "list-0", "tail") == [message("other")]
    assert set(client.keys()) == {b"list-0", b"list-3"}
