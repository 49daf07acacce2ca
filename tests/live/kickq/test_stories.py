"""The same story, told by kickq's own commands and by ferryman's calls, leaves equal keyspaces and is heard alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from ferryman.compat.members import stringify

from .tellers import Listener, OriginalTeller, OurTeller, Teller, keys_of, side_keys

pytestmark = pytest.mark.in_turn

T0 = 1_800_000_000_000
SECOND, MINUTE = 1000, 60_000
DAY = 86_400_000

AWKWARD_NAMES = ("send emails", "billing:invoice:eu", "naïve ☃ 队列", 'line\nbreak "q"', "", "a:queue:b", "kickq:job:1", "*?[x]")
AWKWARD_DATA: tuple[Any, ...] = (
    None,
    0,
    "",
    [],
    {},
    'a/b \\ "c" \u2028 \x7f \x00 \ud800 end',
    {"é ☃ 😀": [1, -0.5, 12345678901234567890, {"runs": [], "state": "fail", "a}": ']"'}]},
    [[[[{"deep": [None, True, False]}]]]],
    '"state":"fail","errorMessage":',
    {"a": 1, "lastError": {"b": "}"}, "runs": [1]},
    [{"x": 1, "lastError": {"y": '}"', "z": [number]}} for number in range(2000)],
    {"pad": "x" * 20_000, "lastError": 1},
    {"pad": ',"lastError":null}' * 2000, "x": '\\",'},
)


def waits(teller: Teller) -> None:
    for number, queue in enumerate(AWKWARD_NAMES):
        teller.put(queue, {"n": number}, T0 + number)
    for number, data in enumerate(AWKWARD_DATA):
        teller.put("data", data, T0 + number)


def has_options(teller: Teller) -> None:
    teller.put("mail", 1, T0, retry=True, retryTimes=7, retryInterval=1, processTimeout=5)
    teller.put("mail", 1, T0, ghostRetry=False, ghostTimes=0, ghostInterval=2, hotjob=True, hotjobTimeout=3)
    teller.put("mail", 1, T0, delay=5000, retry=True)


def succeeds(teller: Teller) -> None:
    for data in AWKWARD_DATA:
        teller.put("mail", data, T0)
    for number in range(len(AWKWARD_DATA)):
        teller.succeed(teller.take("mail", T0 + 10 * number), T0 + 10 * number + 7)


def runs_with_awkward_names(teller: Teller) -> None:
    for queue in AWKWARD_NAMES:
        teller.put(queue, queue, T0)
        teller.succeed(teller.take(queue, T0), T0)
        teller.put(queue, queue, T0, retry=True)
        teller.fail(teller.take(queue, T0), queue, T0)


def is_being_run(teller: Teller) -> None:
    teller.put("mail", 1, T0)
    teller.put("mail", 2, T0)
    assert teller.take("mail", T0 + 1)


def comes_in_order(teller: Teller) -> None:
    for number in range(5):
        teller.put("mail", number, T0, **({"delay": 100} if number == 1 else {}))
    teller.run_timers(T0 + 100)
    for number in range(5):
        teller.succeed(teller.take("mail", T0 + 100 + number), T0 + 200 + number)
    assert teller.take("mail", T0 + 300) is None


def fails(teller: Teller) -> None:
    teller.put("mail", 1, T0)
    teller.fail(teller.take("mail", T0 + 5), 'Error: no\n\tat x ("y")\n \ud83d ☃', T0 + 9)


def is_retried_and_succeeds(teller: Teller) -> None:
    teller.put("mail", 1, T0, retry=True, retryInterval=1000)
    teller.fail(teller.take("mail", T0), "first", T0 + 10)
    teller.run_timers(T0 + 1010)
    teller.succeed(teller.take("mail", T0 + 1020), T0 + 1040)


def is_retried_until_it_has_failed(teller: Teller) -> None:
    teller.put("mail", 1, T0, retry=True, retryTimes=3, retryInterval=1000)
    for number in range(3):
        teller.run_timers(T0 + number * MINUTE)
        teller.fail(teller.take("mail", T0 + number * MINUTE), f"try {number}", T0 + number * MINUTE + 59_000)


def may_run_once(teller: Teller) -> None:
    teller.put("mail", 1, T0, retry=True, retryTimes=1)
    teller.fail(teller.take("mail", T0), "once", T0)


def takes_too_long(teller: Teller) -> None:
    teller.put("mail", 1, T0, processTimeout=120, ghostInterval=800)
    for number in range(2):
        teller.run_timers(T0 + number * SECOND)
        teller.time_out(teller.take("mail", T0 + number * SECOND), T0 + number * SECOND + 121)


def takes_too_long_once(teller: Teller) -> None:
    teller.put("mail", 1, T0, processTimeout=120, ghostRetry=False)
    teller.time_out(teller.take("mail", T0), T0 + 120)


def takes_too_long_and_fails_in_turn(teller: Teller) -> None:
    teller.put("mail", 1, T0, processTimeout=120, ghostTimes=2, retry=True, retryTimes=4, retryInterval=1, ghostInterval=1)
    for number, too_long in enumerate((True, False, True, False)):
        teller.run_timers(T0 + number * SECOND)
        job = teller.take("mail", T0 + number * SECOND)
        if too_long:
            teller.time_out(job, T0 + number * SECOND + 120)
        else:
            teller.fail(job, f"try {number}", T0 + number * SECOND + 3)


def is_promoted(teller: Teller) -> None:
    teller.put("mail", 1, T0, delay=1000)
    teller.put("other", 2, T0, delay=1000)
    teller.put("mail", 3, T0, delay=DAY)
    teller.run_timers(T0 + 1000)


def waits_for_its_time(teller: Teller) -> None:
    teller.put("mail", 1, T0, delay=5000)
    teller.run_timers(T0 + 3000)
    assert teller.take("mail", T0 + 3000) is None


def is_deleted_after_a_day(teller: Teller) -> None:
    teller.put("mail", 1, T0)
    teller.put("mail", 2, T0)
    teller.put("mail", 3, T0)
    teller.succeed(teller.take("mail", T0), T0)
    teller.fail(teller.take("mail", T0), "no", T0 + 100)
    teller.run_timers(T0 + DAY)
    teller.run_timers(T0 + DAY + 100)


STORIES = (
    *(waits, has_options, succeeds, runs_with_awkward_names, is_being_run, comes_in_order, fails, is_retried_and_succeeds),
    *(is_retried_until_it_has_failed, may_run_once, takes_too_long, takes_too_long_once, takes_too_long_and_fails_in_turn),
    *(is_promoted, waits_for_its_time, is_deleted_after_a_day),
)


@pytest.mark.parametrize("renews", [False, True], ids=["says", "renews"])
@pytest.mark.parametrize("story", STORIES)
def test_a_job(client: redis.Redis, story: Callable[[Teller], None], renews: bool) -> None:
    with Listener(client) as listener:
        story(OriginalTeller(client))
        told, heard = keys_of(client), listener.heard()
        client.flushall()
        ours = OurTeller(client, renews=renews)
        story(ours)
        assert keys_of(client) == told
        assert listener.heard() == heard
    if story is not is_being_run:
        ours.kickq.close()
        assert side_keys(client) == []


def test_a_finished_job_that_somebody_has_queued_again_runs_again(client: redis.Redis) -> None:
    def story(teller: Teller) -> None:
        job_id = teller.put("mail", 1, T0)
        teller.succeed(teller.take("mail", T0), T0 + 1)
        client.rpush("kickq:queue:mail", job_id)
        teller.fail(teller.take("mail", T0 + 2), "not again", T0 + 3)

    assert_alike(client, story)


def test_a_record_that_somebody_has_written_with_little_more_than_its_payload_gets_all_members(client: redis.Redis) -> None:
    def story(teller: Teller) -> None:
        item = {"name": "mail", "strange": {"a": [1]}, "data": "x", "createTime": T0, "id": "abc:x", "retry": 1}
        client.hset("kickq:job:abc:x", "itemData", stringify(item))
        client.rpush("kickq:queue:mail", "abc:x")
        teller.fail(teller.take("mail", T0), "no", T0)

    assert_alike(client, story)


@pytest.mark.parametrize("options", [{"retryInterval": -1}, {"retryInterval": 1.7}, {"retryInterval": 2**32 + 5}])
def test_intervals_count_as_kickq_counts_them(client: redis.Redis, options: dict[str, Any]) -> None:
    def story(teller: Teller) -> None:
        item = {"id": "1", "name": "mail", "createTime": T0, "data": 1, "retry": True, **options}
        client.hset("kickq:job:1", mapping={"itemData": stringify(item), "state": "new"})
        client.rpush("kickq:queue:mail", "1")
        teller.fail(teller.take("mail", T0), "no", T0)

    assert_alike(client, story)


def assert_alike(client: redis.Redis, story: Callable[[Teller], None]) -> None:
    story(OriginalTeller(client))
    told = keys_of(client)
    client.flushall()
    story(OurTeller(client))
    assert keys_of(client) == told
