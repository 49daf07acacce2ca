"""The same story told by a core of qless itself and by our client, step by step: equal keyspaces, messages and answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis
from ferryman.compat.qless.live import Core

from ...support.foreign_keys import seen
from ...support.servers import GENERATIONS, Server, generation
from .cores import PACKAGES, Original
from .stories import Story
from .tellers import OriginalTeller, OurTeller

pytestmark = pytest.mark.in_turn

STEPS = 50


def normal(value: Any) -> Any:
    """A value of Redis in which the order of names in JSON does not show."""
    match value:
        case bytes():
            try:
                return json.dumps(json.loads(value), sort_keys=True) if value[:1] in (b"{", b"[") else value
            except ValueError:
                return value
        case dict():
            return {key: normal(each) for key, each in value.items()}
        case tuple():
            return tuple(map(normal, value))
    return value


@contextmanager
def heard(client: redis.Redis) -> Iterator[redis.client.PubSub]:
    """All that is published under the prefix."""
    with client.pubsub() as pubsub:
        pubsub.psubscribe("ql:*")
        pubsub.get_message(timeout=60)
        yield pubsub


def messages(pubsub: redis.client.PubSub, client: redis.Redis, mark: str) -> Counter[Any]:
    """What was published until now."""
    client.publish("ql:mark", mark)
    found: Counter[Any] = Counter()
    while True:
        message = pubsub.get_message(timeout=60)
        assert message, "the server did not publish"
        if message["channel"] == b"ql:mark":
            return found
        found[message["channel"], normal(message["data"])] += 1


@pytest.mark.parametrize("core", PACKAGES)
@pytest.mark.parametrize("seed", range(12))
def test_a_story_made_up_at_random(server: Server, core: Core, seed: int) -> None:
    tell(server, core, seed)


@pytest.mark.parametrize("generation_name", GENERATIONS)
def test_servers_of_all_generations_have_the_same_story(generation_name: str, tmp_path: Path) -> None:
    kind = generation(generation_name)
    if kind is None:
        pytest.skip(f"{generation_name} is not installed")
    with kind.start(tmp_path) as server:
        for core in PACKAGES:
            for seed in (1000, 1001):
                server.client().flushall()
                tell(server, core, seed)


def tell(server: Server, core: Core, seed: int) -> None:
    """Tells a story twice, and compares after each step."""
    story = Story(core, Random(seed))
    with server.client(0) as theirs, server.client(1) as ours, heard(theirs) as pubsub:
        original, client = OriginalTeller(Original(theirs, core)), OurTeller(ours, core)
        for step in story.beginning():
            assert step(original) == step(client)
            messages(pubsub, theirs, "0")
        for _ in range(STEPS):
            next_step = story.step()
            if next_step is None:
                continue
            try:
                told = next_step(original)
            except redis.ResponseError as error:
                if "perform arithmetic on local 'failed'" not in str(error):
                    raise
                return  # it stops half way, see the last test
            published = messages(pubsub, theirs, "1")
            mine = next_step(client)
            assert mine == told, (story.label, mine, told)
            assert messages(pubsub, theirs, "2") == published, story.label
            there, here = normal(seen(theirs)), normal(seen(ours))
            assert here == there, story.label


@pytest.mark.parametrize("core", PACKAGES)
def test_a_story_told_in_turns_is_that_of_either(server: Server, core: Core) -> None:
    """On one keyspace, each step told by the one or the other."""
    for seed in range(100, 104):
        for number in (0, 1):
            server.client(number).flushdb()
        story, turns = Story(core, Random(seed)), Random(seed)
        with server.client(0) as theirs, server.client(1) as mixed:
            alone = OriginalTeller(Original(theirs, core))
            pair = (OriginalTeller(Original(mixed, core)), OurTeller(mixed, core))
            for step in story.beginning():
                step(alone)
                step(turns.choice(pair))
            for _ in range(STEPS):
                next_step = story.step()
                if next_step is None:
                    continue
                try:
                    told = next_step(alone)
                except redis.ResponseError:
                    break
                assert next_step(turns.choice(pair)) == told, story.label
            assert normal(seen(mixed)) == normal(seen(theirs))


def test_reqless_is_told_from_its_jobs(server: Server) -> None:
    """Without being told the core, beside a reqless that has put one job, our client writes what reqless would."""
    with server.client(0) as theirs, server.client(1) as ours:
        for client in (theirs, ours):
            Original(client, "reqless")("put", 1_795_000_000_000, "w", "mail", "first", "shop.Job", "{}", 0)
        original, client = OriginalTeller(Original(theirs, "reqless")), OurTeller(ours, "")
        for teller in (original, client):
            teller.put(1_795_000_001_000, "mail", "second", {}, tags=["t"])
            assert teller.pop(1_795_000_002_000, "mail", "w", 2) == ["first", "second"]
            teller.complete(1_795_000_003_000, "mail", "w", "first", {})
        assert normal(seen(ours)) == normal(seen(theirs))


def test_what_stops_the_original_half_way_is_cancelled_whole(server: Server) -> None:
    """qless-py counts no job that ran out of attempts, and then fails to take it off the count."""
    with server.client(0) as client:
        original, ours = OriginalTeller(Original(client, "unified")), OurTeller(client, "unified")
        original.put(1_795_000_000_000, "mail", "a", {}, retries=0)
        original.pop(1_795_000_001_000, "mail", "w", 1)
        original.retry(1_795_000_002_000, "mail", "w", "a", 0, None)
        assert ours.cancel(1_795_000_003_000, ["a"]) == "done"
        assert not client.exists("ql:j:a", "ql:j:a-history", "ql:failures")
