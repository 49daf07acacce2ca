"""What the scripts of pjq reply, as the calls of ``live.py`` give it. Pure."""

from __future__ import annotations

from typing import Any

from ...schema.errors import KeyspaceRefused, UsageError
from ...schema.job import Job
from ...schema.live import ForeignDelivery
from ...schema.text import show, to_text
from .keys import PATTERNS, STATES
from .record import Record, canonical

_FIRST_PROGRAM = frozenset({"job_queue", "leased_queue", "progress_queue", "idle_queue"})
"""Names of containers that only the first JavaScript program has."""


def check(prefix: str, found: Any) -> None:
    """Raises KeyspaceRefused for a keyspace that can't be served."""
    is_replica, found = found
    if is_replica:
        raise KeyspaceRefused("this server is a replica that can't be written to: give the address of its master")
    types: dict[str, dict[str, bytes]] = {}
    for name, kind, key in found:
        types.setdefault(to_text(name), {})[to_text(kind)] = key
    first = next((key for name in _FIRST_PROGRAM for key in types.get(name, {}).values()), None)
    if first is not None:
        both = " beside those of a newer one" if types.keys() - _FIRST_PROGRAM else ""
        raise KeyspaceRefused(
            f"pjq under {prefix!r}: {show(first)!r} is of the first JavaScript program{both}, whose jobs no newer one sees and "
            "which takes no lease back: migrate them (ferryman migrate), then serve the keyspace"
        )
    idle = types.get("workers_idle", {})
    if "zset" in idle and (len(idle) > 1 or types.keys() & {"workers_busy", "workers_last_seen"}):
        raise KeyspaceRefused(
            f"pjq under {prefix!r}: {show(idle['zset'])!r} is of a JavaScript program, others are of a Python one, which dies "
            "at it: remove it when the JavaScript program is gone"
        )
    for pattern in PATTERNS:
        name = pattern.template.removeprefix("<prefix>").partition(":")[0]
        for kind, key in types.get(name, {}).items():
            if kind not in pattern.redis_types and (name, kind) != ("workers_idle", "zset"):
                raise KeyspaceRefused(
                    f"pjq under {prefix!r}: {show(key)!r} is a {kind} where pjq has a {pattern.redis_types[0]}: "
                    "audit the keyspace, move the key away"
                )


def stored(wanted: str, reply: bytes) -> str:
    if not reply:
        raise UsageError(
            f"{wanted!r} is the name of a key already, and so can't be the id of another job: choose one that is new"
        )
    return to_text(reply)


def delivery(
    queue: str, job_id: bytes, payload: bytes, name: bytes, extra: bytes, attempts: int, lapses: int, again: int
) -> ForeignDelivery:
    """A job that a worker has begun."""
    return ForeignDelivery(
        id=to_text(job_id),
        score=0,
        priority=0,
        deliveries=1 + max(attempts + lapses, again),
        fields={},
        queue=queue,
        name=to_text(name) if name else None,
        payload=payload,
        extra=extra or None,
        attempts=attempts,
    )


def job(job_id: str, reply: Any) -> Job | None:
    if reply is None:
        return None
    queue, fields, places = reply
    scores = {to_text(role): float(score) for role, score in _pairs(places).items()}
    role = next((state for state in STATES if state in scores), "finished" if b"finished_at" in fields[::2] else None)
    return canonical(job_id, to_text(queue), Record(role, _pairs(fields), scores))


def queued(queue: str, job_id: bytes, fields: list[bytes]) -> Job:
    return canonical(to_text(job_id), queue, Record("queued", _pairs(fields), {}))


def _pairs(values: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(values[::2], values[1::2], strict=True))
