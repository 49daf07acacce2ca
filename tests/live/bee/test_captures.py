"""Keyspaces that bee made itself, served: the order of its pops, its hashes, and what its jobs went through, told once more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.compat.bee.keys import OPTIONS
from ferryman.compat.bee.live import BeeLive
from ferryman.schema.connection.call import run
from ferryman.schema.errors import KeyspaceRefused
from ferryman.schema.live import Failure, NewJob

from ...support.bee import keyspace, record
from ...support.captures import Capture, capture, captures, load
from ...support.servers import Server

HEALTHY = capture("bee", "healthy")
SERVED = [case for case in captures("bee") if case.name != "older-version-0.0.3"]
LIVE = BeeLive(hive="test:1:ferryman")
CONSUMER = "test:2:consumer"


@pytest.mark.parametrize("case", [case for case in SERVED if case.name != "crashed"], ids=str)
def test_jobs_are_taken_in_the_order_of_bees_own_pops(client: redis.Redis, case: Capture) -> None:
    load(case, client)
    run(client, LIVE.look())
    live = evolve(LIVE, hashes=False)
    for queue, expected in case.expected["pop_order"].items():
        taken = []
        while jobs := run(client, live.take(queue, CONSUMER, 1, 30_000, now=case.captured_at_ms)).jobs:
            taken += [job.id for job in jobs]
        assert taken == expected, queue


def test_of_a_crashed_keyspace_every_job_is_taken_that_bee_can_run(client: redis.Redis) -> None:
    case = capture("bee", "crashed")
    load(case, client)
    live = evolve(LIVE, hashes=False)
    for queue, expected in case.expected["pop_order"].items():
        taken = []
        while jobs := run(client, live.take(queue, CONSUMER, 1, 30_000, now=case.captured_at_ms)).jobs:
            taken += [job.id for job in jobs]
        # Where bee makes a record of nothing out of a member that has none, there is nothing to take. A job that a worker ended
        # after it was given up waits still, and bee runs it once more.
        jobs_by_id = case.expected["jobs_by_id"]
        assert taken == [each for each in expected if each is not None and jobs_by_id[each]["status"] != "completed"], queue


def test_what_was_made_before_0_0_4_is_refused_and_left_alone(client: redis.Redis) -> None:
    case = capture("bee", "older-version-0.0.3")
    load(case, client)
    before = keyspace(client)
    with pytest.raises(KeyspaceRefused, match=r"0\.0\.3 or older"):
        run(client, LIVE.look())
    assert keyspace(client) == before


def test_waiting_jobs_get_the_scores_that_bee_gave_them(client: redis.Redis) -> None:
    records = {entry.key: entry.value for entry in HEALTHY.entries() if entry.key.startswith(b"bee:h:jobs:")}
    (captured,) = [entry.value for entry in HEALTHY.entries() if entry.key == b"bee:ss:queue:Image.Resize"]
    waiting = [records[b"bee:h:jobs:" + job_id] for job_id, _ in captured]
    for fields in sorted(waiting, key=lambda fields: (int(fields[b"submitted"]), fields[b"jid"])):
        priority = float(json.loads(fields[b"options"])["priority"])
        job = NewJob("Image.Resize", fields[b"data"], priority=priority, id=fields[b"jid"].decode())
        run(client, LIVE.put(job, now=int(fields[b"submitted"])))
    assert client.zrange("bee:ss:queue:Image.Resize", 0, -1, withscores=True) == captured


# The stories of single jobs

REPLAYED = {"submitted", "queued", "delayed", "popped", "completed", "exception", "failed", "canceled"}


def _jobs() -> Iterator[tuple[str, dict[bytes, bytes], int | None]]:
    """The jobs of the healthy capture whose whole story one client and its workers can tell: id, record, time to live.

    Not those with hashes or options that their worker's own code has made.
    """
    for entry in HEALTHY.entries():
        if entry.key.startswith(b"bee:h:jobs:"):
            history = json.loads(entry.value[b"history"])
            alone = not {b"parent", b"dependants", b"duplicate"}.intersection(entry.value)
            plain = len(entry.value.get(b"hash", b"0" * 40)) == 40 and _has_usual_options(entry.value)
            if alone and plain and {event["event"] for event in history} <= REPLAYED:
                yield entry.key.decode().removeprefix("bee:h:jobs:"), dict(entry.value), entry.ttl_ms


def _has_usual_options(fields: Mapping[bytes, bytes]) -> bool:
    options = json.loads(fields[b"options"])
    return options.keys() == OPTIONS.keys() and not isinstance(options["priority"], str) and options["delay"] >= 0


JOBS = list(_jobs())


def test_most_jobs_of_the_capture_are_told_again() -> None:
    assert len(JOBS) > 60
    words = {fields[b"status"] for _, fields, _ in JOBS}
    assert words == {b"queued", b"new", b"retried", b"running", b"completed", b"failed", b"canceled", b"expired"}


@pytest.mark.parametrize(("job_id", "fields", "ttl_ms"), JOBS, ids=[job_id for job_id, *_ in JOBS])
def test_a_job_that_goes_through_the_same_has_the_same_record_and_place(
    server: Server, client: redis.Redis, job_id: str, fields: dict[bytes, bytes], ttl_ms: int | None
) -> None:
    options, history = json.loads(fields[b"options"]), json.loads(fields[b"history"])
    queue = fields[b"queue"].decode()
    client.set("bee:str:hive:options", '{"log":false}')
    for event, then in zip(history, [*history[1:], None], strict=True):
        _tell(client, job_id, queue, fields, options, event, then)
    if fields[b"status"] == b"expired":
        ended = history[-1]["timestamp"]
        run(client, LIVE.take(queue, CONSUMER, 0, 30_000, now=ended + options["ttl"]))
    found, expected = record(client.hgetall(f"bee:h:jobs:{job_id}")), record(fields)
    if server.kind == "valkey":
        # Lua lists the fields of an object in another order there, and the hash goes by what it lists.
        assert (found.pop(b"hash", None) is None) == (expected.pop(b"hash", None) is None)
    assert found == expected
    assert (client.pttl(f"bee:h:jobs:{job_id}") >= 0) == (ttl_ms is not None)
    places, expected_places = _places(client, job_id), _captured_places(job_id)
    assert places.keys() == expected_places.keys()
    if "locks" not in places and not (places.keys() == {"queue"} and options["priority"]):
        # A lock is renewed with each heartbeat; a priority counts beside the jobs that wait.
        assert places == expected_places


def _tell(
    client: redis.Redis,
    job_id: str,
    queue: str,
    fields: dict[bytes, bytes],
    options: dict[str, Any],
    event: dict[str, Any],
    then: dict[str, Any] | None,
) -> None:
    """Does what this event tells of; ``then`` is the one that follows."""
    now, live = event["timestamp"], evolve(LIVE, hive=event["hive"], hashes=b"hash" in fields)
    match event["event"]:
        case "submitted":
            tags = json.loads(fields[b"tags"]) or ()
            names = (
                "retries",
                "retryDelay",
                "progressiveDelay",
                "ttl",
                "dependencies",
                "dependenciesOnTags",
                "preferredHostname",
            )
            more = {name: options[name] for name in names} | {"tags": tags, "dependencies": list(options["dependencies"])}
            job = NewJob(queue, fields[b"data"], None, None, options["priority"], options["delay"], job_id, options=more)
            run(client, live.put(job, now=now))
        case "popped":
            (job,) = run(client, live.take(queue, event["hive"], 1, 30_000, now=now)).jobs
            assert job.id == job_id
        case "completed":
            assert run(client, live.complete(queue, event["hive"], [(job_id, fields[b"result"])], now=now)) == ("completed",)
        case "exception":
            is_final = then is not None and then["event"] == "failed" and then["message"] == event["message"]
            failure = Failure(event["message"], is_final=is_final)
            if then is not None and then["event"] == "delayed":
                run(client, live.retry(queue, event["hive"], job_id, then["till"] - then["timestamp"], failure=failure, now=now))
            else:
                run(client, live.fail(queue, event["hive"], job_id, failure, now=now))
        case "canceled":
            run(client, live.cancel(job_id, now=now))


def _places(client: redis.Redis, job_id: str) -> dict[str, float]:
    """The sorted sets in which a job stands, by kind, with its scores."""
    found = {}
    for key in client.scan_iter("bee:ss:*"):
        score = client.zscore(key, job_id)
        if score is not None:
            found[key.decode().split(":")[2]] = score
    return found


def _captured_places(job_id: str) -> dict[str, float]:
    found = {}
    for entry in HEALTHY.entries():
        if entry.redis_type == "zset":
            for member, score in entry.value:
                if member == job_id.encode():
                    found[entry.key.decode().split(":")[2]] = score
    return found
