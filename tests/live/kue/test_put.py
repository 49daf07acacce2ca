"""Putting a job stores what kue creates, key by key; once, however often it is said."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import AddressError, KeyspaceRefused, UsageError
from ferryman.schema.live import NewJob

from ...support.dumps import dump
from .keyspace import NOW, ROOT, World, at

pytestmark = pytest.mark.in_turn

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


@pytest.mark.parametrize(
    ("version", "member", "score", "fields"),
    [
        ("0.6.2", "1", 0.0, {"delay"}),
        ("0.8.12", "1", 0.0, {"delay", "max_attempts"}),
        ("0.10.2", "1", NOW + 50.0, {"delay", "max_attempts", "promote_at"}),
        ("0.10.3", "01|1", NOW + 50.0, {"delay", "max_attempts", "promote_at"}),
    ],
)
def test_the_first_job_of_a_keyspace_is_of_the_version_that_the_url_names(
    client: redis.Redis, version: str, member: str, score: float, fields: set[str]
) -> None:
    address = Address.parse(f"ferryman://localhost/0?family=kue&version={version}")
    assert Address.parse(address.url()) == address
    live = address.key_family.live("q", "ferryman")
    assert live is not None
    run(client, live.look())
    run(client, live.put(NewJob("mail", b"1", delay_ms=50), now=NOW))
    keys = dump(client)
    usual = {"type", "data", "priority", "created_at", "updated_at", "state"}
    assert (keys["q:jobs:delayed"], keys["q:job:1"].keys()) == ({member: score}, usual | fields)
    run(client, live.look())


def test_a_version_that_the_jobs_contradict_is_refused(world: World) -> None:
    world.job(1)
    live = Address.parse("ferryman://localhost/0?family=kue&version=0.9").key_family.live("q", "ferryman")
    assert live is not None
    with pytest.raises(KeyspaceRefused, match=r"0\.10\.3 to 0\.11, and the URL's version says 0\.9"):
        run(world.client, live.look())


@pytest.mark.parametrize("text", ["", "1.0", "0.3.3", "0.12", "9", "x"])
def test_a_version_that_kue_never_had_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="must be a version of kue"):
        Address.parse(f"ferryman://localhost/0?family=kue&version={text}")
