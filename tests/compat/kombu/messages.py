"""Messages as kombu writes them, and the keys in which they stand: the small keyspaces of these tests."""

from __future__ import annotations

import base64
import json
from typing import Any

from ferryman.compat.kombu import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job
from ferryman.testing.keyspaces import read_keyspace

NOW = 1_800_000_000_000
SEP = b"\x06\x16"
TASK = {"lang": "py", "task": "proj.add", "id": "t-1", "eta": None, "expires": None, "retries": 0, "timelimit": [None, None]}
BODY = b'[[1], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'


def message(
    tag: str = "tag-1",
    queue: str = "celery",
    *,
    exchange: str = "",
    key: str | None = None,
    priority: Any = 0,
    body: bytes = BODY,
    **headers: Any,
) -> dict[str, Any]:
    """What kombu makes of a task that is sent to a queue, or to an exchange with a routing key."""
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {**TASK, **headers},
        "properties": {
            "correlation_id": "t-1",
            "delivery_mode": 2,
            "delivery_info": {"exchange": exchange, "routing_key": queue if key is None else key},
            "priority": priority,
            "body_encoding": "base64",
            "delivery_tag": tag,
        },
    }


def text(value: Any) -> bytes:
    """JSON as kombu writes it."""
    return json.dumps(value).encode()


def queued(*messages: Any, queue: str = "celery", step: int = 0) -> Entry:
    """A bucket of a queue, head first; a bytes value stands there as it is."""
    name = queue.encode() + (SEP + b"%d" % step if step else b"")
    return Entry(name, "list", [each if isinstance(each, bytes) else text(each) for each in messages])


def bound(queue: str = "celery", exchange: str | None = None, key: str | None = None, pattern: str = "") -> Entry:
    """The binding table of an exchange with one queue, as Celery makes it unless told otherwise."""
    member = SEP.join(part.encode() for part in (queue if key is None else key, pattern, queue))
    return Entry(b"_kombu.binding." + (queue if exchange is None else exchange).encode(), "set", [member])


def held(*messages: dict[str, Any], since: float | None = NOW / 1000 - 60) -> list[Entry]:
    """Messages that a consumer has taken; with ``since`` None the index knows nothing of them."""
    tags = [each["properties"]["delivery_tag"].encode() for each in messages]
    infos = [each["properties"]["delivery_info"] for each in messages]
    values = [text([each, info["exchange"], info["routing_key"]]) for each, info in zip(messages, infos, strict=True)]
    entries = [Entry(b"unacked", "hash", dict(zip(tags, values, strict=True)))]
    if since is not None:
        entries.append(Entry(b"unacked_index", "zset", [(tag, since) for tag in tags]))
    return entries


def jobs(*entries: Entry, prefix: str = "", now_ms: int = NOW) -> list[Job]:
    """All jobs of a keyspace, by queue and pop order."""
    seen = read_keyspace(FAMILY, entries, prefix, now_ms)
    found = [FAMILY.read(subject, seen.keyspace) for subject in seen.subjects.values()]
    return sorted((job for job in found if job is not None), key=lambda job: (job.queue, job.position or 0, job.id))


def one(*entries: Entry, prefix: str = "", now_ms: int = NOW) -> Job:
    """The only job of a keyspace."""
    [job] = jobs(*entries, prefix=prefix, now_ms=now_ms)
    return job
