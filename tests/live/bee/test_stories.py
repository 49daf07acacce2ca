"""The same story, told by bee and by ferryman, leaves the same keyspace and has the same events, in bee's own number formats.

bee is the model in ``tests/models/bee_original.py``. In each story a client puts jobs and two workers run them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import redis

from ...support.bee import events, keyspace, side_keys
from .processes import LEASE, Bee, Ferryman, Process

pytestmark = pytest.mark.in_turn

T = 1_800_000_000_000
"""When all stories begin."""
MINUTE = 60_000

Story = Callable[[Process, Process, Process], None]


def completes(client: Process, ann: Process, _bob: Process) -> None:
    for number, result in enumerate([None, {}, [], 1.5, 10**15, "a/b", {"list": [], "number": 0.1 + 0.2}, [None, True, "日本"]]):
        client.put(T + number, f"job{number}", [number])
        assert ann.take(T + 100 + number) == [f"job{number}"]
        assert ann.done(T + 200 + number, f"job{number}", result)


def takes_its_share(client: Process, ann: Process, bob: Process) -> None:
    assert ann.take(T) == bob.take(T) == []
    for number in range(7):
        client.put(T + number, f"job{number}", [number])
    assert bob.take(T + 10, 5) == ["job0", "job1", "job2", "job3"]
    assert ann.take(T + 11, 1) == ["job4"]
    assert ann.take(T + 40_000, 5) == ["job5", "job6"]


def runs_by_priority(client: Process, ann: Process, _bob: Process) -> None:
    priorities = {"a": 0, "b": 0, "c": 10, "d": 5, "e": -10, "f": 1000, "g": 2.5, "h": 1}
    for number, (jid, priority) in enumerate(priorities.items()):
        client.put(T + 100 * number, jid, [jid], priority=priority)
    order = [ann.take(T + 1000 + number)[0] for number in range(8)]
    assert order == list("acfbdghe")


def writes_numbers_like_lua(client: Process, ann: Process, _bob: Process) -> None:
    values = [12345678901234567, 1e15, 10**14, 0.1 + 0.2, 1e-7, -0.5, 1795264956046, [], {}, {"a/b": [[], {}]}, "x\x7f\x01\n"]
    client.put(T, "numbers", [values], priority=0.1, delay=1, retries=1, retryDelay=1.5, ttl=75_000, tags=[1.5, "1e+15", 10**15])
    assert ann.take(T + 1) == ["numbers"]
    ann.progress(T + 2, "numbers", 100 / 3)
    assert ann.failed(T + 3, "numbers", "a/b: ünïcode")
    assert ann.take(T + 4) == []
    assert ann.take(T + 6) == ["numbers"]
    assert ann.done(T + 7, "numbers", values)


def waits_for_its_time(client: Process, ann: Process, _bob: Process) -> None:
    client.put(T, "b", ["b"], delay=1000)
    client.put(T + 1, "a", ["a"], delay=999)
    client.put(T + 2, "c", ["c"], delay=5000, priority=3)
    client.put(T + 3, "now", ["now"])
    assert ann.take(T + 10) == ["now"]
    assert ann.take(T + 1000, 5) == ["a", "b"]
    assert ann.take(T + 6000, 5) == ["c"]


def fails_until_no_retry_is_left(client: Process, ann: Process, _bob: Process) -> None:
    client.put(T, "fixed", [1], retries=2, retryDelay=1000)
    client.put(T, "growing", [2], retries=2, retryDelay=1000, progressiveDelay=True)
    client.put(T, "once", [3], retries=0)
    client.put(T, "final", [4])
    client.put(T, "later", [5], retries=1)
    now = T
    for _ in range(12):
        now += 1000
        for jid in ann.take(now, 5):
            assert ann.failed(now + 1, jid, f"{jid}: no", retry=jid != "final", delay=1500 if jid == "later" else None)


def releases_those_that_wait(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "first", [1], tags=["batch", 7])
    client.put(T + 1, "second", [2], tags=["batch"])
    client.put(T + 2, "both", [3], dependencies=["first", "second", "unknown"])
    client.put(T + 3, "late", [4], dependencies=["first"], delay=1000, priority=2)
    client.put(T + 4, "tagged", [5], tags=["batch", 7], dependenciesOnTags=True)
    client.put(T + 5, "last", [6], dependencies=["both", "late", "tagged"])
    assert ann.take(T + 10) == ["first"]
    assert ann.done(T + 20, "first")
    assert bob.take(T + 21) == ["second"]
    assert bob.failed(T + 30, "second", "no", retry=False)
    client.put(T + 31, "free", [7], dependencies=["first", "second"])
    for now in (T + 40, T + 41, T + 42, T + 2000, T + 2001):
        for jid in ann.take(now):
            assert ann.done(now, jid)
    client.cancel(T + 3000, "first")


def has_duplicates(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "one", ["same", 1])
    client.put(T + 1, "two", ["same", 1])
    client.put(T + 2, "three", ["same", 1], tags=["x"])
    client.put(T + 3, "other", ["other"], dependencies=["two"])
    assert ann.take(T + 10) == ["one"]
    assert bob.take(T + 11) == ["other"]
    assert ann.done(T + 20, "one", {"kept": True})
    client.put(T + 30, "four", ["same", 1])
    assert bob.take(T + 31) == []
    client.cancel(T + 40, "three")
    client.put(T + 50, "five", ["same", 1])
    assert ann.take(T + 51) == ["five"]
    assert ann.done(T + 52, "five")


def has_no_arguments(client: Process, ann: Process, _bob: Process) -> None:
    client.put(T, "one", [])
    client.put(T + 1, "two", [])
    assert ann.take(T + 2, 2) == ["one"]
    assert ann.done(T + 3, "one", [])


# Children of one parent are cancelled in no certain order: each has one.
def is_cancelled(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "parent", [0], tags=["t"])
    client.put(T + 1, "running", [1], parent="parent")
    client.put(T + 2, "delayed", [2], parent="running", delay=1000)
    client.put(T + 3, "after", [4], dependencies=["parent"])
    client.put(T + 4, "blocked", [3], parent="delayed", dependencies=["after"])
    client.put(T + 5, "done", [5], tags=["t", "u"])
    assert ann.take(T + 10) == ["parent"]
    assert ann.take(T + 11) == ["running"]
    assert bob.take(T + 12) == ["done"]
    assert bob.done(T + 13, "done")
    client.cancel(T + 20, "parent")
    client.cancel(T + 21, "done")
    assert not ann.done(T + 30, "parent", 1)
    assert not ann.failed(T + 31, "running", "no")
    ann.heartbeat(T + 32)
    client.cancel(T + 33, "unknown")


def loses_a_worker(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "lost", [1])
    client.put(T, "spent", [2], retries=0)
    client.put(T, "waiting", [3], dependencies=["spent"])
    assert ann.take(T + 1) == ["lost"]
    assert ann.take(T + 2) == ["spent"]
    now = T + 2
    for _ in range(3):
        now += 45_000
        assert bob.take(now) == []
    assert bob.take(now + 45_000) == ["lost"]
    assert not ann.done(now + 45_001, "lost", "too late")
    assert bob.done(now + 45_002, "lost", "in time")
    assert bob.take(now + 45_003) == ["waiting"]


def is_saved_by_a_heartbeat(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "slow", [1])
    assert ann.take(T + 1) == ["slow"]
    assert bob.take(T + 1) == []
    for number in range(1, 8):
        bob.timers(T + number * 50_000)
        if number % 3 == 0:
            ann.heartbeat(T + number * 50_000 + 1)
    assert ann.done(T + 400_000, "slow")


def expires(client: Process, ann: Process, bob: Process) -> None:
    client.put(T, "parent", [0], ttl=90 * MINUTE)
    client.put(T + 1, "child", [1], parent="parent", tags=["a", 2.5], ttl=10 * MINUTE)
    client.put(T + 2, "copy", [1], parent="parent", tags=["a"])
    client.put(T + 3, "failed", [3], ttl=20 * MINUTE)
    for number, jid in enumerate(["parent", "child", "failed"]):
        assert ann.take(T + 10 + number) == [jid]
    assert ann.done(T + 20, "child", 1)
    assert ann.failed(T + 21, "failed", "no", retry=False)
    ann.heartbeat(T + 19 * MINUTE)
    bob.take(T + 19 * MINUTE)
    client.put(T + 20 * MINUTE, "again", [1])
    ann.heartbeat(T + 21 * MINUTE)
    assert bob.take(T + 21 * MINUTE) == ["again"]
    assert ann.done(T + 21 * MINUTE, "parent")


def prefers_a_host(client: Process, ann: Process, _bob: Process) -> None:
    client.put(T, "here", [1], preferredHostname="web-1")
    client.put(T, "there", [2], preferredHostname="web/2", delay=10)
    assert ann.take(T + 10, 2) == ["here", "there"]


def has_any_names(client: Process, ann: Process, _bob: Process) -> None:
    for number, queue in enumerate(["", "a:b", 'reports.日次 "Q"', "mail:bulk send", "7"]):
        client.put(T + number, f"job{number}", [number], queue=queue, tags=["x:children", "日本"])
        assert ann.take(T + 10 + number, queue=queue) == [f"job{number}"]
        assert ann.done(T + 20 + number, f"job{number}", queue=queue)


STORIES: list[Story] = [
    completes,
    takes_its_share,
    runs_by_priority,
    writes_numbers_like_lua,
    waits_for_its_time,
    fails_until_no_retry_is_left,
    releases_those_that_wait,
    has_duplicates,
    has_no_arguments,
    is_cancelled,
    loses_a_worker,
    is_saved_by_a_heartbeat,
    expires,
    prefers_a_host,
    has_any_names,
]
WITHOUT_HASHES: list[Story] = [writes_numbers_like_lua]
"""The model has no JavaScript to write their arguments; see test_hashes.py."""

KINDS: dict[str, Any] = {"bee": Bee, "ferryman": Ferryman}


def told(redis_client: redis.Redis, story: Story, *kinds: str) -> tuple[dict[bytes, Any], list[Any]]:
    """The keyspace and the events of a story, told by a client and two workers of these kinds."""
    redis_client.flushdb()
    Bee(redis_client, "host:0:connecting")
    hashes = story not in WITHOUT_HASHES
    names = ("app-1:1:client", "web-1:2:ann", "web-2:3:bob")
    with events(redis_client) as published:
        story(*(KINDS[kind](redis_client, name, hashes) for kind, name in zip(kinds, names, strict=True)))
    return keyspace(redis_client), published


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whoever_tells_a_story_it_ends_the_same(client: redis.Redis, story: Story) -> None:
    expected, expected_events = told(client, story, "bee", "bee", "bee")
    assert expected
    for kinds in product(KINDS, repeat=3):
        found, found_events = told(client, story, *kinds)
        assert found == expected, kinds
        assert found_events == expected_events, kinds


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_side_keys_go_with_the_consumers(client: redis.Redis, story: Story) -> None:
    told(client, story, "ferryman", "ferryman", "ferryman")
    ours = Ferryman(client, "web-9:4:eve")
    for number in range(1, 8):
        ours.timers(T + 2 * LEASE + number * 45_000)
    assert side_keys(client) == []
