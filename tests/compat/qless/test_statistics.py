"""The statistics of qless as a history: day by day what the original's own API said of captured queues."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.operations.history import Series, history
from ferryman.schema.connection.address import Address
from ferryman.schema.day import DAY_MS, Day
from ferryman.schema.errors import UsageError
from ferryman.schema.histogram import bound_ms

from ...support.captures import capture, load
from ...support.command import ferryman
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def expected(name: str) -> dict[str, dict[str, Any]]:
    """Queue -> day, Unix s -> what the original said."""
    found: dict[str, dict[str, Any]] = capture("qless", name).expected["stats"]
    return found


def loaded(server: Server, client: redis.Redis, name: str) -> Address:
    case = capture("qless", name)
    load(case, client)
    return Address.parse(server.url(family="qless", prefix=case.prefix))


def days(address: Address, queue: str, said: dict[str, Any]) -> Series:
    starts = [int(day) * 1000 for day in said]
    return history(address, queue, min(starts), max(starts) + DAY_MS)


@pytest.mark.parametrize("name", ["healthy", "crashed-reqless", "older-version", "first-core"])
def test_each_day_is_what_the_original_says(server: Server, client: redis.Redis, name: str) -> None:
    address = loaded(server, client, name)
    for queue, said in expected(name).items():
        series = days(address, queue, said)
        found = {str(point.start_ms // 1000): point for point in series.points}
        assert {day for day, point in found.items() if point.counts} <= set(said)
        for day, numbers in said.items():
            point = found[day]
            counts = (point.counts.get("delivered", 0), point.counts.get("acked", 0))
            assert counts == (numbers["wait"]["count"], numbers["run"]["count"])
            assert point.counts.get("dead", 0) == numbers.get("failures", 0)
            assert point.counts.get("reclaimed", 0) == numbers.get("retries", 0)
            for histogram, measure in ((point.wait, numbers["wait"]), (point.run, numbers["run"])):
                assert histogram.count == measure["count"]
                assert histogram.sum_ms == pytest.approx(1000 * measure["mean"] * measure["count"], abs=1)
                for cell, number in measure["histogram"].items():
                    assert any(
                        counted >= number and bound_ms(bucket) > int(cell[1:]) * UNIT_MS[cell[0]]
                        for bucket, counted in enumerate(histogram.counts)
                    )


def test_longer_steps_are_the_sum_of_their_days(server: Server, client: redis.Redis) -> None:
    address, (queue, said) = loaded(server, client, "healthy"), next(iter(expected("healthy").items()))
    starts = [int(day) * 1000 for day in said]
    series = history(address, queue, min(starts), max(starts) + DAY_MS, 7 * DAY_MS)
    assert series.step_ms == 7 * DAY_MS
    assert series.wait.count == sum(numbers["wait"]["count"] for numbers in said.values())
    assert series.total("acked") == sum(numbers["run"]["count"] for numbers in said.values())


def test_the_command_shows_days_and_no_depths_that_it_does_not_know(server: Server, client: redis.Redis) -> None:
    queue = "mail of today"
    client.zadd("ql:queues", {queue: 1})
    day = int(client.time()[0]) // 86_400 * 86_400
    client.hset(f"ql:s:wait:{day}:{queue}", mapping={"total": 3, "mean": 20.5, "vk": 1, "s20": 2, "m1": 1})
    client.hset(f"ql:s:stats:{day}:{queue}", mapping={"retries": 1, "failures": 2, "failed": -1})
    url = server.url(family="qless")
    outcome = ferryman("history", url, queue, "--last", "3d")
    assert outcome.status == 0, outcome.stderr
    assert "3 delivered, 0 acked, 2 dead; waits p50" in outcome.stdout
    assert "waiting" not in outcome.stdout
    assert "by the day" in outcome.stderr
    *_, today = map(json.loads, ferryman("history", url, queue, "--last", "3d", "--format", "json").stdout.splitlines())
    assert (today["counts"], today["depths"], today["partial"]) == ({"delivered": 3, "reclaimed": 1, "dead": 2}, {}, True)
    assert (today["wait_ms"]["count"], today["wait_ms"]["mean"]) == (3, 20_500)


def test_a_queue_without_statistics_is_empty_and_one_that_is_not_there_is_an_error(server: Server, client: redis.Redis) -> None:
    client.zadd("ql:queues", {"new": 1})
    address = Address.parse(server.url(family="qless"))
    assert not any(point.counts for point in history(address, "new", 0, 10 * DAY_MS).points)
    with pytest.raises(UsageError, match="no queue 'nowhere'"):
        history(address, "nowhere", 0, DAY_MS)
    with pytest.raises(UsageError, match="at most 2000 days"):
        history(address, "new", 0, 3000 * DAY_MS, 30 * DAY_MS)


@pytest.mark.parametrize(
    "fields",
    [
        {b"total": b"x", b"mean": b"nan", b"s1": b"1"},
        {b"total": b"-3", b"mean": b"inf", b"s1": b"1", b"s99999999999": b"1", b"x": b"\xff"},
        {b"s1": b"1", b"h": b"2", b"d1e5": b"3", b"s-1": b"4"},
    ],
)
def test_damaged_statistics_are_nothing_and_never_an_error(fields: dict[bytes, bytes]) -> None:
    query = FAMILY.days("ql", "q", [0])
    assert query is not None
    (wait, run, stats) = next(query)
    assert [command[0] for command in (wait, run, stats)] == ["HGETALL"] * 3
    with pytest.raises(StopIteration) as end:
        query.send([fields, None, [b"failures", b"-1", b"retries", b"many"]])
    (day,) = end.value.value
    assert isinstance(day, Day)
    assert (dict(day.counts), day.times.wait.count, day.times.wait.sum_ms, day.times.run.count) == ({}, 1, 0, 0)
