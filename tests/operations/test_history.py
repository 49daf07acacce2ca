"""Reading a queue's history: equal steps without gaps, whose sums are what happened, from slots of all lengths."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import redis
from ferryman.operations.history import HOUR_MS, MINUTE_MS, Series, history
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.day import DAY_MS
from ferryman.schema.errors import UsageError
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()


def now_ms(client: redis.Redis) -> int:
    return int(client.time()[0]) * 1000


def published(client: redis.Redis, ages_ms: list[int]) -> int:
    """A queue in which one message was published so long ago, each. Gives the time now."""
    now = now_ms(client)
    run(client, scripts.declare("mail", {}, now=now - max(ages_ms)))
    for number, age in enumerate(ages_ms, 1):
        run(client, scripts.publish("mail", "p", [Publication(f"p-{number}", b"{}\n[]")], now=now - age))
    return now


def read(server: Server, since_ms: int, until_ms: int, step: int | None = None) -> Series:
    return history(Address.parse(server.url()), "mail", since_ms, until_ms, step)


def test_what_happens_now_is_there_before_its_minute_is_over(server: Server, client: redis.Redis) -> None:
    now = published(client, [0, 0])
    run(client, scripts.take("mail", "me", 1, 60_000))
    series = read(server, now - HOUR_MS, now + MINUTE_MS)
    assert series.step_ms == MINUTE_MS
    assert (series.total("published"), series.total("delivered"), series.wait.count) == (2, 1, 1)
    last = series.points[-1]
    assert last.partial
    assert last.depths == {"waiting": 1, "scheduled": 0, "held": 1, "dead": 0}


def test_steps_have_no_gaps_and_depths_stand_until_something_happens(server: Server, client: redis.Redis) -> None:
    now = published(client, [50 * MINUTE_MS, 49 * MINUTE_MS, 10 * MINUTE_MS])
    points = read(server, now - HOUR_MS, now).points
    assert {after.start_ms - before.start_ms for before, after in pairwise(points)} == {MINUTE_MS}
    waiting = [point.depths.get("waiting") for point in points]
    known = [number for number in waiting if number is not None]
    assert sorted(set(known)) == [1, 2, 3]
    assert known == sorted(known)
    assert 35 <= known.count(2) <= 41


@pytest.mark.parametrize("last", [2 * HOUR_MS, 12 * HOUR_MS, DAY_MS, 3 * DAY_MS])
def test_nothing_is_counted_twice_or_lost_where_slots_of_all_lengths_meet(server: Server, client: redis.Redis, last: int) -> None:
    ages = list(range(3 * DAY_MS - HOUR_MS, 0, -5 * MINUTE_MS))
    now = published(client, ages)
    series = read(server, now - last, now + MINUTE_MS)
    first = series.points[0].start_ms
    expected = sum(now - age >= first for age in ages)
    assert (
        abs(series.total("published") - expected) <= series.step_ms // (5 * MINUTE_MS)
        if last < 3 * DAY_MS
        else (series.total("published") == len(ages))
    )


def test_one_who_asks_for_finer_steps_than_were_kept_gets_those_that_were(server: Server, client: redis.Redis) -> None:
    now = published(client, list(range(2 * DAY_MS, 0, -5 * MINUTE_MS)))
    assert read(server, now - 2 * DAY_MS, now, 10 * MINUTE_MS).step_ms == HOUR_MS
    assert read(server, now - HOUR_MS, now, 10 * MINUTE_MS).step_ms == 10 * MINUTE_MS


def test_bad_questions_get_a_sentence(server: Server, client: redis.Redis) -> None:
    now = published(client, [0])
    for since, until, step in ((now, now, None), (now - HOUR_MS, now, 1500), (0, now, MINUTE_MS)):
        with pytest.raises(UsageError, match=r"history|steps"):
            read(server, since, until, step)
    with pytest.raises(UsageError, match="no queue 'other'"):
        history(Address.parse(server.url()), "other", 0, now, DAY_MS * 100)


def test_the_command_shows_a_table_and_json(server: Server, client: redis.Redis) -> None:
    published(client, [10 * MINUTE_MS, 0])
    table = ferryman("history", server.url(), "mail")
    assert table.status == 0, table.stderr
    assert "2 published, 0 delivered" in table.stdout
    lines = [json.loads(line) for line in ferryman("history", server.url(), "mail", "--format", "json").stdout.splitlines()]
    assert sum(line["counts"].get("published", 0) for line in lines) == 2
    assert lines[-1]["depths"]["waiting"] == 2
    for words in (["--last", "soon"], ["--step", "1s"], ["--last", "300d", "--step", "1m"]):
        assert ferryman("history", server.url(), "mail", *words).status == 2
    assert ferryman("history", server.url(), "nobody").status == 2


def test_a_queue_that_keeps_none_says_so(server: Server, client: redis.Redis) -> None:
    run(client, scripts.declare("mail", {}, history=False))
    outcome = ferryman("history", server.url(), "mail")
    assert outcome.status == 0
    assert "keeps no history" in outcome.stderr


def test_other_systems_have_none(server: Server) -> None:
    outcome = ferryman("history", server.url(family="kue"), "mail")
    assert outcome.status == 0
    assert "of kue no history is read" in outcome.stderr
