"""The same story, told by kombu's own transport and by ours, leaves the same keyspace, after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from ferryman.schema.errors import Unroutable

from ...support.captures import capture, load
from ...support.servers import Server
from .tellers import Original, Ours, Teller, keyspace

pytestmark = pytest.mark.in_turn

Story = Callable[[Teller], Iterator[Any]]


def acks(teller: Teller) -> Iterator[Any]:
    teller.publish("mail", {"to": "zoë"})
    teller.publish("mail", {"to": "𝔅"})
    yield
    first = teller.take("mail")
    yield
    teller.ack(first)
    yield
    teller.ack(teller.take("mail"))
    yield


def priorities(teller: Teller) -> Iterator[Any]:
    for number, priority in enumerate((9, 0, 3, 5, 6, 2, 99, -1)):
        teller.publish("mail", number, priority)
    yield
    for _ in range(8):
        taken = teller.take("mail")
        yield
        teller.ack(taken)


def rejects(teller: Teller) -> Iterator[Any]:
    for number in range(3):
        teller.publish("mail", number, 3, {"h": [1, {"x": []}]})
    first, second = teller.take("mail"), teller.take("mail")
    teller.reject(first)
    yield
    teller.requeue(second)
    yield
    again = teller.take("mail")
    teller.requeue(again)
    yield
    teller.requeue(teller.take("mail"))
    yield


def names(teller: Teller) -> Iterator[Any]:
    for queue in ("häppy-1", "emails 1", 'a"b\\c', "tab\there", "𝔅", "del\x7f"):
        teller.publish(queue, {"q": queue}, headers={"née": "\u2028"})
        taken = teller.take(queue)
        yield
        teller.requeue(taken)
    yield


def leaving(teller: Teller) -> Iterator[Any]:
    teller.publish("mail", 0)
    teller.take("mail")
    yield
    teller.leave()
    yield


def purging(teller: Teller) -> Iterator[Any]:
    for number in range(5):
        teller.publish("mail", number, number * 2)
    taken = teller.take("mail")
    yield teller.purge("mail")
    teller.ack(taken)
    yield


def routes(teller: Teller) -> Iterator[Any]:
    teller.bind("all", "news", "news.#", "topic")
    teller.bind("sports", "news", "news.sports.*", "topic")
    teller.bind("one", "plain", "k.1", "direct")
    teller.bind("two", "plain", "k.1", "direct")
    yield
    for key in ("news.sports.tennis", "news.sports.tennis.men", "news.", "news.weather", "news.sports."):
        teller.route("news", key, key)
        yield
    teller.route("plain", "k.1", "both")
    yield


STORIES = [acks, priorities, rejects, names, leaving, purging, routes]


@pytest.mark.parametrize("prefix", ["", "app1:"])
@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
def test_the_same_story_leaves_the_same_keyspace(server: Server, client: redis.Redis, story: Story, prefix: str) -> None:
    told = []
    for teller in (Original(server, prefix), Ours(server, prefix)):
        client.flushdb()
        told.append([(said, keyspace(client)) for said in story(teller)])
    assert told[0] == told[1]
    assert told[0]


@pytest.mark.parametrize("name", ["healthy", "custom-prefix"])
def test_what_a_killed_consumer_had_is_restored_as_kombu_restores_it(server: Server, client: redis.Redis, name: str) -> None:
    case = capture("kombu", name)
    swept = []
    for teller in (Original(server, case.prefix), Ours(server, case.prefix)):
        client.flushdb()
        load(case, client)
        teller.sweep()
        swept.append(keyspace(client))
    assert swept[0] == swept[1]
    assert case.prefix + "unacked" not in swept[0]


def test_a_topic_that_leads_nowhere_is_refused_and_kombu_drops_it(server: Server, client: redis.Redis) -> None:
    original, mine = Original(server), Ours(server)
    original.bind("all", "news", "news.#", "topic")
    before = keyspace(client)
    for key in ("sports", "news"):
        original.route("news", key, 1)
        with pytest.raises(Unroutable, match="bind one first"):
            mine.route("news", key, 1)
    assert keyspace(client) == before


def test_each_side_takes_and_ends_what_the_other_has_published_or_given_back(server: Server, client: redis.Redis) -> None:
    original, mine = Original(server), Ours(server)
    tellers: list[Teller] = [original, mine]
    for sender in tellers:
        for taker in tellers:
            sender.publish("mail", {"n": 1}, 3)
            taker.requeue(taker.take("mail"))
            taker.ack(taker.take("mail"))
    assert set(keyspace(client)) == {"_kombu.binding.mail", "_kombu.binding_permanent.mail"}


def test_no_side_key_is_left_when_a_consumer_has_left(server: Server, client: redis.Redis) -> None:
    mine = Ours(server)
    for number in range(4):
        mine.publish("mail", number)
    mine.ack(mine.take("mail"))
    mine.take("mail")
    mine.leave()
    assert not [key for key in client.scan_iter() if key.startswith(b"ferryman:")]
