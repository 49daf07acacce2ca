"""What kue's jobs in captured keyspaces have been through, jobs of ours go through as well, and end as those did."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.live import Failure

from ...support.captures import Capture, capture, load
from ...support.dumps import dump

pytestmark = pytest.mark.in_turn

NAMES = ("healthy", "custom-prefix", "hash-tag", "older-0.9.6", "older-0.8.12", "older-version")
TIMES = ("created_at", "updated_at", "started_at", "failed_at", "duration")
NOW = 1_900_000_000_000
"""After everything in the captures."""


def retold(ours: KueClient, fields: dict[str, str], queue: str) -> str:
    """Puts a job like this one of kue's into a queue of its own, and does with it what was done. Gives its id."""
    data = json.loads(fields["data"])
    options: dict[str, Any] = {}
    has_own_backoff = fields.get("backoff", "true") != "true"
    if "max_attempts" in fields and (fields["max_attempts"] != "1" or "promote_at" in fields):
        options["attempts"] = int(fields["max_attempts"])
    if "ttl" in fields:
        options["ttl"] = int(fields["ttl"])
    if "backoff" in fields:
        options["backoff"] = json.loads(fields["backoff"])
    if "removeOnComplete" in fields:
        options["removeOnComplete"] = True
    if "delay" in fields and not (has_own_backoff and "error" in fields):
        options["delay_ms"] = int(fields["delay"])
    job_id = ours.put(queue, data, priority=float(fields["priority"]), now=NOW, **options)
    if not isinstance(data, dict):
        return job_id
    match fields["state"]:
        case "complete":
            runs = 1 + fields.get("error", "").count("first try failed")
        case "failed":
            runs = int(fields["attempts"])
        case "inactive":
            runs = 0
        case "delayed":
            runs = int("error" in fields)
        case _:
            runs = 1
    for run in range(1, runs + 1):
        (job,) = ours.take(queue, now=NOW + run * 1000)
        for step in data.get("progress", ()):
            ours.progress(job, *step, now=NOW + run * 1000)
        if fields["state"] == "complete" and run == runs:
            ours.complete(job, data.get("result"), now=NOW + run * 1000 + 7)
        elif fields["state"] != "active":
            ours.fail(job, Failure("no", fields["error"]), now=NOW + run * 1000 + 7)
    return job_id


def seen(keys: dict[str, Any], prefix: str, job_id: str) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """A job's record, the lines of failures in its log, and its indexes with its scores, as far as two runs can be alike."""
    fields: dict[str, Any] = dict(keys[f"{prefix}:job:{job_id}"])
    queue, error = fields["type"], fields.get("error", "")
    data = json.loads(fields["data"])
    set_by_hand = {name for name, *_ in data.get("set", ())} if isinstance(data, dict) else set()
    if "promote_at" in fields:
        is_backing_off = fields["state"] == "delayed" and "failed_at" in fields
        since = int(fields["failed_at" if is_backing_off else "created_at"])
        fields["promote_at"] = int(fields["promote_at"]) - since if is_backing_off or "backoff" not in fields else "ms"
    fields |= {name: "ms" for name in TIMES if name in fields}
    if "promote_at" not in fields:
        set_by_hand |= {"started_at", "workerId"}  # by us, as long as it runs: versions before 0.9 say nowhere who runs a job
    if "workerId" in fields:
        fields["workerId"] = re.sub(r"^kue:[^:]+:\d+:.*:\d+$", "kue:host:pid:type:n", fields["workerId"])
    places = {
        key.replace(queue, "T"): "a time" if abs(value[member]) > 1e11 else value[member]
        for key, value in keys.items()
        for member in (job_id, f"{len(job_id):02d}|{job_id}")
        if isinstance(value, dict) and key.startswith(f"{prefix}:jobs") and member in value
    }
    lines = [line for line in keys.get(f"{prefix}:job:{job_id}:log", ()) if line == error.split("\n")[0]]
    return {name: value for name, value in fields.items() if name not in {"type", *set_by_hand}}, lines, places


def is_retold(fields: dict[str, str]) -> bool:
    """Whether it is told of the job's data what was done with it, and all of that can be done here."""
    data = json.loads(fields["data"])
    has_json = not fields.get("backoff", "").startswith("function")
    if isinstance(data, dict) and "do" in data:
        return (
            has_json
            and data["do"] in ("ok", "fail", "failonce", "hold")
            and (data["do"] == "hold" or fields["state"] != "inactive")
        )
    return has_json and fields["state"] in ("inactive", "delayed")


@pytest.mark.parametrize("case", [capture("kue", name) for name in NAMES], ids=str)
def test_a_job_of_ours_ends_as_kues_own_did(case: Capture, client: redis.Redis) -> None:
    load(case, client)
    keys = dump(client)
    ours = KueClient(client, case.prefix)
    pattern = re.compile(re.escape(case.prefix) + r":job:(\d+)")
    told = 0
    for key, fields in keys.items():
        found = pattern.fullmatch(key)
        if found and is_retold(fields):
            job_id = retold(ours, fields, f"again {told}")
            fields_here, lines, places = seen(dump(client), case.prefix, job_id)
            assert (fields_here, lines, places) == seen(keys, case.prefix, found[1]), key
            told += 1
    assert told > 30
