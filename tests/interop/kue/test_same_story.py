"""The same story told by kue and by ferryman leaves the same keys, in every field, index, score, log and counter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.live import Failure

from ...support.dumps import dump
from ...support.servers import Server
from .driver import Kue
from .waits import awaited, heard, take

TIMES = ("created_at", "updated_at", "started_at", "failed_at")

STORY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "is done": ({"do": "ok", "result": {"text": "ü", "n": [1, 2.5, None]}}, {}),
    "is done without a result": ({"do": "ok"}, {"priority": -10}),
    "has a result that kue does not keep": ({"do": "ok", "result": 0}, {"attempts": 5}),
    "reports its progress": ({"do": "ok", "progress": [[1, 3, {"at": "ü"}], [2, 3]]}, {"ttl": 60000}),
    "is removed when done": ({"do": "ok"}, {"removeOnComplete": True}),
    "fails for good": ({"do": "fail", "message": 'no "way"\nat all'}, {"priority": 2.5}),
    "fails once": ({"do": "fail", "fails": 1}, {"attempts": 2}),
    "fails once with a delay of its own": ({"do": "fail", "fails": 1}, {"attempts": 2, "delay": 30}),
    "waits after a failure, fixed": ({"do": "fail"}, {"attempts": 3, "backoff": {"type": "fixed", "delay": 90000}}),
    "waits after a failure, exponential": ({"do": "fail"}, {"attempts": 3, "backoff": {"type": "exponential", "delay": 90001}}),
    "waits no longer than it must": (
        {"do": "fail"},
        {"attempts": 9, "backoff": {"type": "exponential", "delay": 500000, "maxDelay": 400000}},
    ),
    "has a backoff without a delay": ({"do": "fail", "fails": 1}, {"attempts": 3, "backoff": True}),
    "has a delay for its backoff": ({"do": "fail"}, {"attempts": 3, "delay": 70, "backoff": {"type": "fixed"}}),
    "runs": ({"do": "hang"}, {"priority": 5}),
    "runs for a limited time": ({"do": "hang"}, {"ttl": 90000}),
    "is still delayed": ({"do": "ok"}, {"delay": 80000, "priority": 7}),
}
"""Jobs, each of a type of its own, with their data and options; see driver.js for what they do."""

LASTING = {
    "waits after a failure, fixed",
    "waits after a failure, exponential",
    "waits no longer than it must",
    "is still delayed",
}


def normal(keys: dict[str, Any]) -> dict[str, Any]:
    """A keyspace with its moments as what they are relative to each other, and without what names processes."""
    found = {}
    for key, value in keys.items():
        if key.startswith("q:job:") and isinstance(value, dict):
            value = _normal_job(value)
        elif key in ("q:jobs:delayed", "q:jobs:active"):
            value = {member: "a time" if score > 1e11 else score for member, score in value.items()}
        elif key == "q:stats:work-time":
            value = "ms"
        if not key.endswith(":lock"):
            found[key] = value
    return found


def _normal_job(fields: dict[str, str]) -> dict[str, Any]:
    is_backing_off = fields["state"] == "delayed" and "failed_at" in fields
    since = int(fields["failed_at" if is_backing_off else "created_at"])
    worker = re.sub(r"^kue:[^:]+:\d+:(.*):\d+$", r"kue:host:pid:\1:n", fields.get("workerId", ""))
    error = "\n".join(line for line in fields.get("error", "").split("\n") if not line.startswith("    at "))
    times = {name: "ms" for name in (*TIMES, "duration") if name in fields}
    promoted = int(fields["promote_at"]) - since if is_backing_off or "backoff" not in fields else "ms"
    return {**fields, **times, "promote_at": promoted, "workerId": worker, "error": error}


@pytest.fixture
def kue(server: Server) -> Iterator[Kue]:
    with Kue.start(server) as process:
        yield process


def is_told(client: redis.Redis) -> bool:
    """Whether all jobs have come where they end or stay."""
    for number, name in enumerate(STORY, 1):
        data, options = STORY[name]
        state, error, attempts = client.hmget(f"q:job:{number}", "state", "error", "attempts")
        if data["do"] == "hang":
            wanted = state == b"active"
        elif "removeOnComplete" in options:
            wanted = state is None and client.get("q:ids") == b"%d" % len(STORY)
        elif name in LASTING:
            wanted = state == b"delayed" and (error is not None or data["do"] == "ok")
        elif data["do"] == "fail" and "fails" not in data:
            wanted = state == b"failed" and attempts == b"%d" % options.get("attempts", 1)
        else:
            wanted = state == b"complete" and attempts is not None
        if not wanted:
            return False
    return True


def are_all_sent(events: dict[Any, list[Any]]) -> bool:
    """Whether each job has had its last event; one that is still delayed has none."""
    return all(
        name == "is still delayed" or any(arguments[0] == last_event(name) for arguments in events.get(number, ()))
        for number, name in enumerate(STORY, 1)
    )


def last_event(name: str) -> str:
    """What kue tells last of a job."""
    data, options = STORY[name]
    if data["do"] == "hang":
        return "start"
    if name in LASTING:
        return "failed attempt"
    if "removeOnComplete" in options:
        return "remove"
    return "failed" if data["do"] == "fail" and "fails" not in data else "complete"


def told_by_kue(kue: Kue) -> None:
    for name, (data, options) in STORY.items():
        kue.call("create", type=name, data=data, options=options)
    for name in STORY:
        kue.call("process", type=name)


def told_here(ours: KueClient) -> None:
    for name, (data, options) in STORY.items():
        wanted = dict(options)
        ours.put(name, data, priority=wanted.pop("priority", None), delay_ms=wanted.pop("delay", 0), **wanted)
    for name, (data, options) in STORY.items():
        if name == "is still delayed":
            continue
        runs = 1 if name in LASTING else options.get("attempts", 1)
        for run in range(1, runs + 1):
            job = take(ours, name)
            for step in data.get("progress", ()):
                ours.progress(job, *step)
            if data["do"] == "fail" and run <= data.get("fails", 99):
                message = data.get("message", "it failed")
                ours.fail(job, Failure(message, f"Error: {message}"))
            elif data["do"] != "hang":
                ours.complete(job, data.get("result"))
                break


def test_the_same_story_leaves_the_same_keys_and_is_told_to_listeners_in_the_same_events(
    kue: Kue, server: Server, client: redis.Redis
) -> None:
    with server.client() as other, other.pubsub() as listener:
        listener.subscribe("q:events")
        told_by_kue(kue)
        their_events = by_job(heard(client, listener, are_all=lambda events: are_all_sent(by_job(events))))
        awaited(lambda: is_told(client))
        awaited(lambda: not client.exists("promotion:lock", "activeJobsTTL:lock"))
        theirs = dump(client)
        kue.kill()
        client.flushall()
        told_here(KueClient(client))
        assert is_told(client)
        mine = {key: value for key, value in dump(client).items() if not key.startswith("ferryman:")}
        assert by_job(heard(client, listener)) == their_events
    assert normal(mine) == normal(theirs)


def by_job(messages: list[bytes]) -> dict[Any, list[Any]]:
    """Events by job."""
    found: dict[Any, list[Any]] = {}
    for event in map(json.loads, messages):
        found.setdefault(event["id"], []).append(_without_stacks(event["args"]))
    return found


def _without_stacks(args: list[Any]) -> list[Any]:
    return [each.split("\n    at ")[0] if isinstance(each, str) else each for each in args]
