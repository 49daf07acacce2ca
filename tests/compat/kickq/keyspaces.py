"""The smallest kickq keyspaces: one sound job and its entries, to be changed in one place."""

from __future__ import annotations

import json
from typing import Any

from ferryman.compat.kickq import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job
from ferryman.testing.keyspaces import read_keyspace

NOW = 1_800_000_000_000
CREATED = NOW - 60_000
DAY = 86_400_000

SUCCESS: dict[str, Any] = {
    "complete": True,
    "success": True,
    "finishTime": CREATED + 30,
    "totalProcessTime": 20,
    "scheduledFor": CREATED + DAY,
    "item_state": "success",
    "runs": [
        {"count": 1, "startTime": CREATED + 10, "processTime": 20, "processTimeout": 10_000, "state": "success", "error": None}
    ],
}
"""What is different about a job that succeeded."""
FAILED: dict[str, Any] = {
    **SUCCESS,
    "success": False,
    "lastError": "boom",
    "item_state": "fail",
    "runs": [
        {"count": 1, "startTime": CREATED + 10, "processTime": 20, "processTimeout": 10_000, "state": "fail", "error": "boom"}
    ],
}
DELAYED: dict[str, Any] = {"delay": 120_000, "scheduledFor": CREATED + 120_000, "item_state": "delayed"}
RETRY: dict[str, Any] = {
    "retry": True,
    "lastError": "boom",
    "scheduledFor": CREATED + 120_000,
    "item_state": "retry",
    "runs": FAILED["runs"],
}
WORDS = {"success": b"success", "fail": b"fail", "delayed": b"delayed", "retry": b"retry"}


def document(item_state: str = "new", **changes: Any) -> dict[str, Any]:
    """The document of a waiting job, with changes."""
    valid = {
        "id": "1",
        "name": "mail",
        "complete": False,
        "success": False,
        "createTime": CREATED,
        "updateTime": CREATED,
        "finishTime": None,
        "totalProcessTime": None,
        "delay": None,
        "processTimeout": 10_000,
        "retry": False,
        "retryTimes": 3,
        "retryInterval": 1_800_000,
        "hotjob": False,
        "hotjobTimeout": 10_000,
        "ghostRetry": True,
        "ghostTimes": 1,
        "ghostInterval": 1_800_000,
        "data": {"a": 1},
        "lastError": None,
        "scheduledFor": None,
        "state": item_state,
        "runs": [],
        "hotjobPromise": None,
    }
    return valid | changes


def record(
    job_id: bytes = b"1", *, raw: bytes | None = None, state: bytes | None = None, name: bytes = b"mail", **changes: Any
) -> Entry:
    """The hash of one job. ``raw``: another document; ``state``: another word than the one that the document implies."""
    item = document(**{"id": job_id.decode(), **changes})
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode() if raw is None else raw
    word = WORDS.get(item["state"], b"new") if state is None else state
    times = {b"createTime": b"%d" % CREATED, b"updateTime": b"%d" % CREATED}
    return Entry(b"kickq:job:" + job_id, "hash", {b"id": job_id, b"name": name, b"state": word, b"itemData": text, **times})


def one(*entries: Entry) -> Job:
    """Job 1, as the entries describe it."""
    seen = read_keyspace(FAMILY, entries, "kickq", NOW)
    job = FAMILY.read(seen.subjects["", "1"], seen.keyspace)
    assert job is not None
    return job
