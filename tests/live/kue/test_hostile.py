"""Records and keys that no kue has written: nothing of them stops a consumer, or any job but the one that they are about."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.errors import MalformedValue
from ferryman.schema.live import Failure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.servers import Server
from .keyspace import NOW, World

pytestmark = pytest.mark.in_turn

TEXTS = st.sampled_from(
    ["", "0", "-1", "1.5", "1e400", "nan", "inf", "-inf", "0x10", "abc", "true", "null", "[]", "{}", '{"type":1,"delay":"x"}',
     '{"type":"exponential","delay":1e308}', '{"type":"fixed","delay":-5}', "\x00", "ü", "9" * 400, "[" * 1500, '"\\ud800"'],
) | st.text(max_size=5)  # fmt: skip
FIELDS = (
    *("priority", "ttl", "attempts", "max_attempts", "workerId", "started_at", "backoff", "delay", "removeOnComplete"),
    *("created_at", "promote_at", "failed_at", "data", "ferryman", "state"),
)
records = st.dictionaries(st.sampled_from(FIELDS), st.none() | TEXTS, max_size=5)


def test_no_record_stops_a_consumer(any_server: Server) -> None:
    with any_server.client(db=8) as client:

        @settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(records, records, st.sampled_from(["complete", "fail", "retry", "requeue", "progress", "timers", "lapse"]))
        def check(before: dict[str, Any], after: dict[str, Any], how: str) -> None:
            client.flushdb()
            spoiled_job_is_handled(World(client), before, after, how)

        check()


def spoiled_job_is_handled(world: World, before: dict[str, Any], after: dict[str, Any], how: str) -> None:
    """Job 1 has odd fields before and after it is taken; job 2 is sound, and is taken and done in any case."""
    world.job(1)
    world.job(2)
    spoil(world.client, before)
    taken = [job.id for job in world.take()]
    assert "2" in taken
    spoil(world.client, after)
    live, later = world.live, NOW + 50
    match how:
        case "complete":
            world.send(live.complete("mail", "ann", [("1", b"1")], now=later))
        case "fail":
            world.send(live.fail("mail", "ann", "1", Failure("no"), now=later))
        case "retry":
            world.send(live.retry("mail", "ann", "1", 5, failure=Failure("no"), now=later))
        case "requeue":
            world.send(live.requeue("mail", "ann", ["1"], now=later))
        case "progress":
            world.send(live.progress("mail", "ann", "1", 1, 2, now=later))
        case "lapse":
            world.send(live.release("mail", "ann", None, now=later))
            assert "2" in [job.id for job in world.take(now=later)]
    for call in live.timers(now=later):
        world.send(call)
    assert world.send(live.complete("mail", "ann", [("2", None)], now=later)) == ("completed",)
    world.send(live.jobs(["1", "2"]))
    world.send(live.find("mail", ["q:1"]))
    world.send(live.size("mail", now=later))
    world.send(live.forget("mail", "ann", now=later))
    assert not world.client.exists("ferryman:live:kue:{q}:held:mail", "ferryman:live:kue:{q}:consumers:mail")


def spoil(client: redis.Redis, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if value is None:
            client.hdel("q:job:1", name)
        else:
            client.hset("q:job:1", name, value)


@pytest.mark.parametrize("key", ["q:jobs:mail:inactive", "q:jobs:active", "q:mail:jobs", "q:jobs:delayed"])
def test_a_key_of_a_wrong_type_is_an_error_that_names_it(world: World, key: str) -> None:
    world.job(1)
    world.client.delete(key)
    world.client.set(key, "x")
    with pytest.raises(MalformedValue, match=key):
        world.take()


def test_a_record_of_a_wrong_type_is_no_job(world: World) -> None:
    world.job(1)
    world.job(2)
    world.client.delete("q:job:1")
    world.client.set("q:job:1", "x")
    assert [job.id for job in world.take()] == ["2"]
