"""Keyspaces that kickq itself has made: their stories told once more by ferryman, and their jobs run by ferryman."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from attrs import frozen
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.kickq.record import DEFAULTS, error_text
from ferryman.schema.fact import Entry
from ferryman.schema.live import Failure, ForeignDelivery
from ferryman.testing.keyspaces import dump

from ...models.kickq_original import OriginalKickq
from ...support.captures import Capture, capture, captures, load
from .tellers import Listener, OriginalTeller, OurTeller, Teller, keys_of, side_keys

pytestmark = pytest.mark.in_turn

OLDER = {
    "older-version": {"error_name": "errorMessage"},
    "older-version-0.0.13": {"error_name": "errorMessage"},
    "older-version-0.0.10": {"error_name": "errorMessage", "has_state_sets": False},
}
"""How the releases differ that made the captures of these names."""

JITTER_MS = 25
"""kickq looks at its clock several times in one transition, and its processes at different moments."""


# The story of a capture, told once more


@frozen(order=True)
class Event:
    """Something that has happened to a job of a capture."""

    time: int
    kind: str
    """``create``, ``take``, ``success``, ``fail`` or ``ghost``; at one moment, in this order or any other."""
    number: int
    detail: Any = None


def _events(number: int, state: str, item: dict[str, Any], end: int) -> Iterator[Event]:
    yield Event(item["createTime"], "create", number, item)
    for run in item["runs"]:
        yield Event(run["startTime"], "take", number, item["name"])
        error = error_text(run.get("error", run.get("errorMessage")))
        yield Event(run["startTime"] + run["processTime"], run["state"], number, error)
    if state == "processing":
        yield Event(end, "take", number, item["name"])


def _documents(keys: dict[bytes, Entry], prefix: str) -> dict[int, tuple[str, dict[str, Any]]]:
    """State and document by the job's number."""
    begin = f"{prefix}:job:".encode()
    found = {key.removeprefix(begin): entry.value for key, entry in keys.items() if key.startswith(begin)}
    return {int(number): (fields[b"state"].decode(), json.loads(fields[b"itemData"])) for number, fields in found.items()}


def _delay(item: dict[str, Any]) -> dict[str, int]:
    """kickq takes a delay of text for none, and all others modulo 2^32; ferryman has none of 0 ms."""
    delay = item["delay"]
    return {"delay": max(1, int(delay) % 2**32)} if isinstance(delay, int | float) else {}


@pytest.mark.parametrize("name", ["healthy", "custom-prefix", "older-version"])
def test_the_story_of_a_capture_leaves_an_equal_keyspace_when_ferryman_tells_it(client: redis.Redis, name: str) -> None:
    case = capture("kickq", name)
    load(case, client)
    captured = dump(client)
    client.flushall()
    documents = _documents(captured, case.prefix)
    end = case.captured_at_ms
    events = [event for number, (state, item) in documents.items() for event in _events(number, state, item, end)]
    kickq = KickqClient(client, case.prefix, consumer="ours", lease_ms=10**12)
    held: dict[int, ForeignDelivery] = {}
    for event in sorted(events, key=lambda event: (event.time, event.kind != "create", event.number)):
        match event.kind:
            case "create":
                item = event.detail
                options = {option: item[option] for option in DEFAULTS}
                delay = _delay(item).get("delay", 0)
                made = kickq.put(item["name"], item["data"], delay_ms=delay, now=event.time, **options)
                assert made == str(event.number)
            case "take":
                _take(kickq, event, held, documents)
            case "success":
                assert kickq.complete(held.pop(event.number), now=event.time) == "completed"
            case "ghost":
                too_long = Failure("", exception="TimeLimitExceeded")
                assert kickq.fail(held.pop(event.number), too_long, now=event.time) in ("scheduled", "failed")
            case "fail":
                kickq.fail(held.pop(event.number), event.detail, now=event.time)
    kickq.run_timers(now=end)
    assert _normal(keys_of(client), captured, case.prefix) == _normal(captured, captured, case.prefix)


def _take(
    kickq: KickqClient, event: Event, held: dict[int, ForeignDelivery], documents: dict[int, tuple[str, dict[str, Any]]]
) -> None:
    """Takes the event's job. No record tells when others were taken that still run, nor when those that wait were promoted."""
    passed = []
    while event.number not in held:
        (job,) = kickq.take(event.detail, now=event.time)
        state, _ = documents[int(job.id)]
        if job.id == str(event.number) or state == "processing":
            held[int(job.id)] = job
        else:
            assert state == "queued"
            passed.append(job)
    for job in reversed(passed):
        assert kickq.requeue(job, now=event.time)


def _normal(keys: dict[bytes, Entry], like: dict[bytes, Entry], prefix: str) -> dict[str, Any]:
    """A keyspace in which times are those of ``like``, if they are nearly that, and errors are texts."""
    told, normal = _documents(like, prefix), {}
    for number, (state, item) in _documents(keys, prefix).items():
        for name in ("updateTime", "finishTime", "scheduledFor"):
            item[name] = _near(item[name], told[number][1][name])
        if not isinstance(told[number][1]["delay"], int) or not 0 < told[number][1]["delay"] < 2**32:
            item["delay"] = None
        item["lastError"] = error_text(item["lastError"])
        runs = [{**run, "error": error_text(run.get("error", run.get("errorMessage"))), "timeout": None} for run in item["runs"]]
        item["runs"] = [{name: value for name, value in run.items() if name != "errorMessage"} for run in runs]
        normal[f"job {number}"] = (state, item)
    for key, entry in keys.items():
        value: Any = entry.value
        if entry.redis_type == "zset":
            scores = dict(like[key].value)
            value = {member: _near(score, scores.get(member)) for member, score in value}
        if entry.redis_type != "hash":
            normal[key.decode()] = value
    return normal


def _near(time: float | None, other: float | None) -> float | None:
    return other if time is not None and other is not None and abs(time - other) <= JITTER_MS else time


# The jobs of a capture, run


@pytest.mark.parametrize("case", [case for case in captures("kickq") if case.name != "crashed"], ids=str)
def test_the_jobs_of_a_capture_end_as_kickqs_own_workers_end_them(client: redis.Redis, case: Capture) -> None:
    def story(teller: Teller) -> None:
        now = case.captured_at_ms + 1000
        for queue in case.expected["by_queue"]:
            for turn in range(1000):
                now += 1
                job = teller.take(queue, now)
                if job is None:
                    break
                now += 1
                if turn % 3 == 0:
                    teller.succeed(job, now)
                elif turn % 3 == 1:
                    teller.fail(job, "boom", now)
                else:
                    teller.time_out(job, now)
            teller.put(queue, {"of": queue}, now)

    with Listener(client) as listener:
        load(case, client)
        story(OriginalTeller(client, OriginalKickq(case.prefix, **OLDER.get(case.name, {}))))  # type: ignore[arg-type]
        told, heard = keys_of(client), listener.heard()
        client.flushall()
        load(case, client)
        ours = OurTeller(client, case.prefix)
        story(ours)
        assert keys_of(client) == told
        assert listener.heard() == heard
    ours.kickq.close()
    assert side_keys(client) == []


@pytest.mark.parametrize("case", captures("kickq"), ids=str)
def test_a_capture_is_given_out_in_the_order_of_kickqs_own_worker_and_given_back_as_it_was(
    client: redis.Redis, case: Capture
) -> None:
    load(case, client)
    before = keys_of(client)
    kickq = KickqClient(client, case.prefix, lease_ms=10**12)
    for queue, ids in case.expected["pop_order"].items():
        taken = [job.id for _ in range(10) for job in kickq.take(queue, 2, now=case.captured_at_ms - 10_000)]
        assert taken == list(dict.fromkeys(ids)), queue  # a job that stands in a list twice waits until its first run is over
    if case.name != "crashed":
        assert keys_of(client) != before
        kickq.close()
        assert keys_of(client) == before
        assert side_keys(client) == []


def test_what_no_worker_can_run_leaves_its_list_and_keeps_its_record(client: redis.Redis) -> None:
    case = capture("kickq", "crashed")
    load(case, client)
    before = keys_of(client)
    kickq = KickqClient(client, case.prefix)
    for queue, ids in case.expected["popped_without_run"].items():
        assert not set(ids) & {job.id for job in kickq.take(queue, 5, now=case.captured_at_ms)}
        assert client.lrange(f"kickq:queue:{queue}", 0, -1) == []
        for job_id in ids:
            assert keys_of(client).get(f"kickq:job:{job_id}".encode()) == before.get(f"kickq:job:{job_id}".encode())
