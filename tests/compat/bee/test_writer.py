"""The bee writer on real servers: what is written reads back, can be written again, and is what bee itself would have written."""

from __future__ import annotations

import json

import pytest
import redis
from attrs import evolve
from ferryman.compat.bee import FAMILY
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump
from hypothesis import assume, given
from hypothesis import strategies as st

from ...support.captures import Capture, capture, captures
from ...support.roundtrip import Roundtrip, on_a_server
from . import strategies

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000
at = Roundtrip(FAMILY, "bee", NOW)


# Reading back


@on_a_server
@given(strategies.jobs(), st.sampled_from(["new", "queued", "completed", "failed", "canceled"]))
def test_a_job_read_from_bee_that_went_on_elsewhere_is_written_as_what_it_is_now(
    client: redis.Redis, job: Job, status: str
) -> None:
    """Texts kept from bee hold only as long as they are true."""
    client.flushdb()
    fields = {"status": status.encode(), "history": b'[{"event":"submitted","timestamp":1}]', "options": b'{"priority":77}'}
    bee_extra = {"state": "running", "scores": {"queue": 5.0}, "fields": fields}
    assume(job.state is not State.ACTIVE)
    job = evolve(job, extra={**job.extra, "bee": bee_extra})
    at.store(client, [job])
    [back] = at.standing(client).values()
    assert back == job


# Captures


@pytest.mark.parametrize("case", [case for case in captures("bee") if case.name != "crashed"], ids=str)
def test_a_healthy_keyspace_written_back_is_the_same_key_for_key(client: redis.Redis, case: Capture) -> None:
    jobs = at.of(case).read(case.entries())
    at.of(case).store(client, jobs.values())
    written, original = dump(client), {entry.key: entry for entry in case.entries()}
    # Not reproduced: what belongs to running processes, and the entry that 0.0.5 put under a wrong name.
    for key in list(original):
        if key == b"bee:scripts" or key.startswith((b"bee:ss:bees:", b"bee:h:jobs:bee:")):
            del original[key]
    assert written.keys() == original.keys()
    for key, entry in original.items():
        value = sorted(entry.value) if entry.redis_type == "set" else entry.value
        assert (written[key].redis_type, written[key].value) == (entry.redis_type, value), key
        assert (written[key].ttl_ms is None) == (entry.ttl_ms is None), key


def test_a_crashed_keyspace_written_back_keeps_every_job_and_loses_its_dangling_members(client: redis.Redis) -> None:
    case = capture("bee", "crashed")
    jobs = at.of(case).read(case.entries())
    at.of(case).store(client, jobs.values())
    assert at.of(case).standing(client) == jobs
    rules = {finding.rule for finding in at.of(case).findings(client)}
    assert rules.isdisjoint(
        {"BEE-5", "BEE-8", "BEE-9", "BEE-11", "BEE-12", "BEE-14", "BEE-15", "BEE-18", "BEE-23", "BEE-25", "BEE-26"}
    )


# What bee can't express

VALID = Job(id="7", queue="mail", name="mail", state=State.WAITING, payload=b"[]")


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (evolve(VALID, id=""), "BEE-W1"),
        (evolve(VALID, id="\udcff"), "BEE-W1"),
        (evolve(VALID, queue="\udcff", name="\udcff"), "BEE-W2"),
        (evolve(VALID, state=State.UNKNOWN), "BEE-W3"),
        (evolve(VALID, payload=None), "BEE-W4"),
        (evolve(VALID, payload=b"undefined"), "BEE-W4"),
        (evolve(VALID, state=State.SCHEDULED), "BEE-W5"),
        (evolve(VALID, name="other"), "BEE-W6"),
        (evolve(VALID, logs=(b"x",)), "BEE-W6"),
        (evolve(VALID, depends_on=("1",)), "BEE-W6"),
        (evolve(VALID, extra={"bee": {"fields": {"a": 1}}}), "BEE-W7"),
        (evolve(VALID, extra={"bee": {"scores": {"queue": "x"}}}), "BEE-W7"),
        (evolve(VALID, extra={"bee": {"fields": {"dependants": b"["}}}), "BEE-W8"),
        (evolve(VALID, state=State.ACTIVE), "BEE-W9"),
        (evolve(VALID, state=State.BLOCKED), "BEE-W10"),
    ],
)
def test_what_bee_can_not_do_is_said(job: Job, rule: str) -> None:
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == [rule]


def test_nothing_is_said_of_a_job_that_bee_can_do() -> None:
    assert list(FAMILY.incompatibilities(VALID)) == []


# Places


def test_waiting_jobs_keep_their_order_and_come_after_those_that_a_worker_had(client: redis.Redis) -> None:
    waiting = [evolve(VALID, id=f"w{number}", position=number) for number in (2, 0, 1, 300)]
    at.store(client, [*waiting, evolve(VALID, id="requeued")])
    stand = client.zrange("bee:ss:queue:mail", 0, -1, withscores=True)
    assert [member for member, _ in stand] == [b"requeued", b"w0", b"w1", b"w2", b"w300"]
    assert all(NOW - 2000 < score <= NOW for _, score in stand)


def test_who_waits_is_told_to_whom_it_waits_for(client: redis.Redis) -> None:
    needed = [evolve(VALID, id="a"), evolve(VALID, id="b", state=State.COMPLETED)]
    blocked = evolve(VALID, id="c", state=State.BLOCKED, depends_on=("a", "b", "gone"))
    for _ in range(2):
        at.store(client, [blocked, *needed])
        assert json.loads(client.hget("bee:h:jobs:a", "dependants")) == ["c"]
    assert not client.hexists("bee:h:jobs:b", "dependants")
    assert not client.exists("bee:h:jobs:gone")
    assert client.smembers("bee:s:dependencies:c") == {b"a", b"b", b"gone"}


def test_a_job_learns_of_a_second_one_that_waits_without_forgetting_the_first(client: redis.Redis) -> None:
    needed = evolve(VALID, id="a", extra={"bee": {"fields": {"dependants": b'["first"]'}}})
    blocked = evolve(VALID, id="c", state=State.BLOCKED, depends_on=("a",))
    at.store(client, [needed, blocked])
    assert json.loads(client.hget("bee:h:jobs:a", "dependants")) == ["first", "c"]


def test_the_original_heads_the_list_of_its_duplicates_in_whatever_order_they_come(client: redis.Redis) -> None:
    original = evolve(VALID, id="o", state=State.COMPLETED, finished_at=NOW, unique_key="k")
    bee_extra = {"state": "duplicate", "fields": {"duplicate": b"o"}}
    copies = [evolve(VALID, id=name, state=State.COMPLETED, unique_key="k", extra={"bee": bee_extra}) for name in ("x", "y")]
    at.store(client, [copies[0], original, copies[1]])
    assert client.lrange("bee:l:hashes:mail:k", 0, -1) == [b"o", b"x", b"y"]


def test_a_canceled_job_dies_and_nothing_names_it(client: redis.Redis) -> None:
    job = evolve(VALID, state=State.CANCELLED, tags=("t",), unique_key="k", finished_at=NOW)
    at.store(client, [job])
    assert set(client.scan_iter()) == {b"bee:h:jobs:7", b"bee:str:hive:options"}
    assert 0 < client.pttl("bee:h:jobs:7") <= 1_800_000


def test_a_job_that_ended_long_ago_stays_for_its_time_from_now(client: redis.Redis) -> None:
    at.store(client, [evolve(VALID, state=State.FAILED, error="E", finished_at=NOW - 10**9)])
    assert client.zscore("bee:ss:expires:mail", "7") == NOW + 1_800_000


def test_options_of_hives_that_exist_are_left_as_they_are(client: redis.Redis) -> None:
    client.set("bee:str:hive:options", '{"log":true}')
    at.store(client, [VALID])
    assert client.get("bee:str:hive:options") == b'{"log":true}'


def test_idle_workers_are_woken(client: redis.Redis) -> None:
    listening = client.pubsub()
    listening.subscribe("bee:ch:q:mail")
    assert listening.get_message(timeout=60)["type"] == "subscribe"  # type: ignore[index]
    at.store(client, [VALID])
    message = listening.get_message(timeout=60)
    assert message is not None
    assert json.loads(message["data"]) == {"queue": "mail", "jid": "7", "type": "new"}
    listening.close()
