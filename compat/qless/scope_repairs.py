"""Repairs of what is no job in qless keyspaces: failure groups, tags, recurring jobs, workers, statistics, queues, lives of keys.

For each rule the commands for one finding, as in ``repairs.py``, which calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...schema.fact import Subject
from ...schema.family import Command, Keyspace
from ...schema.rule import Finding
from ...schema.text import to_bytes
from ..numbers import parse_int
from .keys import layout
from .record import score_text
from .rules.scopes import CELL, first, size


def _group(_finding: Finding, subject: Subject, keyspace: Keyspace) -> Iterator[Command]:
    listed = layout(keyspace.prefix).key("failed", group=subject.job_id)
    yield ("LLEN", listed)
    known = first(subject, "group_list") is not None
    yield ("SADD" if known else "SREM", layout(keyspace.prefix).key("groups"), to_bytes(subject.job_id))


def _tag(_finding: Finding, subject: Subject, keyspace: Keyspace) -> Iterator[Command]:
    jobs, counters = size(subject, "tag_jobs"), layout(keyspace.prefix).key("tags")
    yield ("ZCARD", layout(keyspace.prefix).key("tagged", tag=subject.job_id))
    tag = to_bytes(subject.job_id)
    yield ("ZADD", counters, jobs, tag) if jobs else ("ZREM", counters, tag)


def _recurring(finding: Finding, subject: Subject, keyspace: Keyspace) -> Iterator[Command]:
    if first(subject, "template") is None:
        yield ("EXISTS", layout(keyspace.prefix).key("template", id=subject.job_id))
        yield ("ZREM", to_bytes(finding.key), to_bytes(subject.job_id))


def _worker(_finding: Finding, subject: Subject, keyspace: Keyspace) -> Iterator[Command]:
    worker = to_bytes(subject.job_id)
    yield ("ZADD", layout(keyspace.prefix).key("workers"), "NX", score_text(keyspace.now_ms / 1000), worker)


def _statistics(_finding: Finding, subject: Subject, _keyspace: Keyspace) -> Iterator[Command]:
    for fact in subject.in_role("statistics"):
        fields = fact.fields
        if fact.label == "stats":
            failed, failures = (parse_int(fields.get(name, b"0")) for name in (b"failed", b"failures"))
            failed_count = max(0, failed or 0)
            yield ("HSET", fact.key, "failed", failed_count, "failures", max(failed_count, failures or 0))
        elif all(b"-" not in name for name in fields):
            seen = sum(parse_int(raw) or 0 for name, raw in fields.items() if CELL.fullmatch(name))
            if parse_int(fields.get(b"total", b"0")) != seen:
                yield ("HSET", fact.key, "total", seen)


OF_SCOPES: Mapping[str, Callable[[Finding, Subject, Keyspace], Iterator[Command]]] = {
    "QLESS-16": _group,
    "QLESS-20": _tag,
    "QLESS-23": _recurring,
    "QLESS-27": _worker,
    "QLESS-29": _statistics,
}


# About the keyspace


def _queue(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    queues, now = layout(keyspace.prefix).key("queues"), score_text(keyspace.now_ms / 1000)
    yield ("ZADD", queues, "NX", now, to_bytes(finding.queue or ""))


def _lasting(finding: Finding, _keyspace: Keyspace) -> Iterator[Command]:
    yield ("PERSIST", to_bytes(finding.key))


OF_KEYSPACE: Mapping[str, Callable[[Finding, Keyspace], Iterator[Command]]] = {
    "QLESS-26": _queue,
    "QLESS-30": _lasting,
}
