"""Putting a job stores what kue creates, key by key; once, however often it is said."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.schema.errors import UsageError
from ferryman.schema.live import NewJob

from ...support.dumps import dump
from .keyspace import NOW, ROOT, World, at

NEW = {
    "type": "mail",
    "data": '{"a":1}',
    "priority": "0",
    "max_attempts": "1",
    "created_at": str(NOW),
    "promote_at": str(NOW),
    "updated_at": str(NOW),
    "state": "inactive",
}


def waiting(score: float = 0.0, /, **fields: str) -> dict[str, Any]:
    return {
        "q:ids": "1",
        "q:job:types": {"mail"},
        "q:job:1": at(NEW, **fields),
        "q:jobs": {"01|1": score},
        "q:jobs:inactive": {"01|1": score},
        "q:jobs:mail:inactive": {"01|1": score},
        "q:mail:jobs": ["1"],
    }


@pytest.mark.parametrize(
    ("job", "keys"),
    [
        (NewJob("mail", b'{"a":1}'), waiting()),
        (NewJob("mail", b'{"a":1}', priority=-2.5), waiting(-2.5, priority="-2.5")),
        (
            NewJob("mail", b'{"a":1}', extra=b'{"task":"t"}', options={"attempts": 3, "ttl": 500, "removeOnComplete": True}),
            waiting(max_attempts="3", ttl="500", removeOnComplete="true", ferryman='{"task":"t"}'),
        ),
        (NewJob("mail", b'{"a":1}', options={"backoff": True}), waiting(backoff="true")),
        (
            NewJob("mail", b'{"a":1}', options={"backoff": {"type": "exponential", "delay": 5.0, "maxDelay": 9}}),
            waiting(backoff='{"type":"exponential","delay":5,"maxDelay":9}'),
        ),
        (
            NewJob("mail", b'{"a":1}', delay_ms=250, priority=7),
            {
                "q:ids": "1",
                "q:job:types": {"mail"},
                "q:job:1": at(NEW, delay="250", promote_at=str(NOW + 250), state="delayed", priority="7"),
                "q:jobs": {"01|1": 7.0},
                "q:jobs:delayed": {"01|1": NOW + 250.0},
                "q:jobs:mail:delayed": {"01|1": 7.0},
            },
        ),
    ],
)
def test_a_job_is_put_as_kue_creates_it(world: World, job: NewJob, keys: dict[str, Any]) -> None:
    assert world.send(world.live.put(job, now=NOW)) == "1"
    assert dump(world.client) == keys


def test_repeating_the_last_publication_makes_no_second_job(world: World) -> None:
    job = NewJob("mail", b"1", publication="p-7")
    assert [world.send(world.live.put(job, now=NOW)) for _ in range(2)] == ["1", "1"]
    assert world.send(world.live.put(NewJob("mail", b"2", publication="p-8"), now=NOW)) == "2"
    assert world.client.zcard("q:jobs") == world.client.llen("q:mail:jobs") == 2
    assert world.client.pttl(ROOT + "publisher:p") > 0


def test_a_counter_that_was_set_back_overwrites_no_job(world: World) -> None:
    world.job(1)
    world.job(2)
    world.client.set("q:ids", 0)
    assert world.send(world.live.put(NewJob("mail", b"1"), now=NOW)) == "3"


@pytest.mark.parametrize(
    "job",
    [
        NewJob("", b"1"),
        NewJob("mail", b"undefined"),
        NewJob("mail", b"1", priority=float("nan")),
        NewJob("mail", b"1", delay_ms=-1),
        NewJob("mail", b"1", options={"retries": 1}),
        NewJob("mail", b"1", options={"attempts": 0}),
        NewJob("mail", b"1", options={"ttl": "5"}),
        NewJob("mail", b"1", options={"backoff": "exponential"}),
        NewJob("mail", b"1", options={"backoff": {"type": "fixed", "delay": "x"}}),
    ],
    ids=lambda job: str(job.options or job),
)
def test_what_kue_could_not_run_is_refused(world: World, job: NewJob) -> None:
    with pytest.raises(UsageError):
        world.live.put(job)
