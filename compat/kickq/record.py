"""The record of kickq, both ways: a hash with one JSON document to canonical fields, and those to what kickq itself would write.

``canonical`` reads any bytes and never fails; ``standard_item`` and ``standard`` make a sound job of kickq 1.x. What they would
not reproduce of a record stands in passthrough.py, so that together they are exact. Called by the reader and the writer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State, differences
from ...schema.text import to_bytes, to_text
from ..members import Member, Members, compact, join, split
from ..numbers import int64_or_none, parse_int, score_to_int
from .keys import FINISHED, SCHEDULED_WORDS, WORDS, as_sent

ITEM = b"itemData"
"""The hash field that holds the document."""

PURGE_MS = 86_400_000
"""A finished job is deleted after a day, unless the option ``purgeTimeout`` says otherwise."""

LONGEST_RUN = 2_147_483_647
"""The longest time that a timer of Node.js can take, 24 days. More counts as 1 ms."""

LARGEST = 10**308
"""A number of more digits is infinite to JavaScript, and no Python float holds it."""

DEFAULTS: Mapping[str, Any] = {
    "processTimeout": 10_000,
    "retry": False,
    "retryTimes": 3,
    "retryInterval": 1_800_000,
    "hotjob": False,
    "hotjobTimeout": 10_000,
    "ghostRetry": True,
    "ghostTimes": 1,
    "ghostInterval": 1_800_000,
}
"""What kickq takes for members that the document lacks."""

_DEFAULT_MEMBERS = {name: Member.of(value) for name, value in DEFAULTS.items()}
_NULL, _NO_RUNS = Member.of(None), Member.of([])
_common_text = lru_cache(maxsize=256)(Member.of)
"""For names of queues and states: a few for millions of jobs."""

INTERVALS = {
    "delayed": ("createTime", "delay"),
    "retry": ("updateTime", "retryInterval"),
    "ghost": ("updateTime", "ghostInterval"),
}
"""The members from which the time follows for which a job waits in these states."""

RUN_STATES = {"success": State.COMPLETED, "fail": State.FAILED, "ghost": State.FAILED}
"""How a run can end, and in which final state the job is if it was the last one."""


@frozen
class Record:
    """A job as kickq stores it."""

    fields: Mapping[bytes, bytes]
    """The hash without the document."""
    item: Members
    """The document; empty where it can't be read."""
    scores: Mapping[str, float]
    """By role, of scheduled, purge and time_index; absent where the job does not stand."""
    text: bytes | None = None
    """The document's text, where it is not the usual one for ``item``."""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes], scores: Mapping[str, float]) -> Record:
        """The record that a whole hash makes."""
        rest = {name: value for name, value in fields.items() if name != ITEM}
        raw = fields.get(ITEM, b"")
        item: Members | None = compact(raw)
        if item:
            return cls(rest, item, scores)
        try:
            item = split(raw)
        except MalformedValue:
            item = {}
        return cls(rest, item, scores, None if item and join(item) == raw else raw)

    @classmethod
    def nothing(cls) -> Record:
        """The record of a job that has none."""
        return cls({}, {}, {})

    @property
    def document(self) -> bytes:
        """What stands in the field of the document."""
        return join(self.item) if self.text is None else self.text

    @property
    def hash(self) -> dict[bytes, bytes]:
        """The whole hash."""
        return {**self.fields, ITEM: self.document}

    def value(self, name: str) -> Any:
        """What kickq takes a member of the document for."""
        member = self.item.get(name)
        return DEFAULTS.get(name) if member is None else member.value

    @property
    def word(self) -> str:
        """The state word, whatever it is: that of the hash counts, the one in the document is mostly out of date."""
        return to_text(self.fields.get(b"state", b""))

    @property
    def state(self) -> State:
        return WORDS.get(self.word, State.UNKNOWN)

    @property
    def queue(self) -> str:
        """The queue; the hash knows it even where the document was cut."""
        name = self.value("name")
        return as_sent(name) if isinstance(name, str) else to_text(self.fields.get(b"name", b""))

    @property
    def runs(self) -> list[Any] | None:
        """All finished runs, oldest first; None where the document is unreadable, or holds something else."""
        runs = self.value("runs") if "runs" in self.item or not self.item else []
        return runs if isinstance(runs, list) else None

    def time(self, name: str) -> int | None:
        """A time of the document; that of the hash where the document was cut."""
        found = as_integer(self.value(name))
        return parse_int(self.fields.get(name.encode())) if found is None else found


# Values of the document


def as_integer(value: Any) -> int | None:
    """The whole milliseconds in a JSON value; None for anything but a number that 64 bits hold."""
    number = as_number(value)
    return None if number is None else int64_or_none(int(number))


def as_number(value: Any) -> int | float | None:
    """A number that JavaScript takes for finite; None for anything else, truth values included."""
    if type(value) is int:
        return value if abs(value) < LARGEST else None
    return value if type(value) is float and math.isfinite(value) else None


def truthy(value: Any) -> bool:
    """Whether JavaScript takes a JSON value for true."""
    return value not in (None, "", 0)


def error_text(value: Any) -> str | None:
    """An error as text: kickq stores any JSON value."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def data_member(payload: bytes) -> Member | None:
    """The payload as a member of a document; None for a payload that is not JSON."""
    try:
        found = split(b'{"data":' + payload + b"}")
    except MalformedValue:
        return None
    # A payload such as ``1,"x":2`` must not smuggle members in.
    return found["data"] if found["data"].text == payload.strip(b" \t\n\r") else None


# A record's job


def canonical(job_id: str, record: Record, extra: Mapping[str, Any] | None = None) -> Job:
    """The job that a record describes. What has no sensible value is None."""
    state, runs = record.state, record.runs
    last = runs[-1] if runs and isinstance(runs[-1], dict) else {}
    data = record.item.get("data")
    due_at = started_at = error = None
    if state is State.SCHEDULED:
        due_at = due_of(record)
    if state in FINISHED:
        started_at = as_integer(last.get("startTime"))
    if last.get("state") in ("fail", "ghost"):
        error = error_text(record.value("lastError"))
    queue = record.queue
    return Job(
        id=job_id,
        queue=queue,
        name=queue,
        state=state,
        payload=None if data is None else data.text,
        created_at=record.time("createTime"),
        updated_at=record.time("updateTime"),
        due_at=due_at,
        started_at=started_at,
        finished_at=as_integer(record.value("finishTime")),
        attempts=None if runs is None else len(runs) + (state is State.ACTIVE),
        max_attempts=_max_attempts(record) if record.item else None,
        error=error,
        ttl=_ttl(record) if record.item else None,
        history=tuple(map(_event, runs or ())),
        extra={} if extra is None else extra,
    )


def due_of(record: Record) -> int | None:
    """When a job is due that waits for a time, Unix ms: as the schedule says, or the document; None where neither does."""
    score = record.scores.get("scheduled")
    return as_integer(record.value("scheduledFor")) if score is None else score_to_int(score)


def said_due(record: Record) -> int | float | None:
    """When the document says that such a job would be due: the time itself, or what kickq works it out from."""
    said = as_number(record.value("scheduledFor"))
    if said is not None or record.word not in INTERVALS:
        return said
    since, after = INTERVALS[record.word]
    start, interval = as_number(record.value(since)), as_number(record.value(after))
    return None if start is None or interval is None else start + interval


def _max_attempts(record: Record) -> int | None:
    """All runs that a job can get: the first one, retries, and those granted after a run that took too long."""
    runs = as_integer(record.value("retryTimes")) if truthy(record.value("retry")) else 1
    ghosts = as_integer(record.value("ghostTimes")) if truthy(record.value("ghostRetry")) else 0
    return None if runs is None or ghosts is None else int64_or_none(max(1, runs) + max(0, ghosts))


def _ttl(record: Record) -> int | None:
    limit = as_number(record.value("processTimeout"))
    return int(limit) if limit is not None and 1 <= limit <= LONGEST_RUN else None


def _event(run: Any) -> dict[str, Any]:
    """A run as an entry of a job's history."""
    if not isinstance(run, dict):
        return {}
    state, started_at, took = run.get("state"), as_integer(run.get("startTime")), as_integer(run.get("processTime"))
    return {
        "state": state if isinstance(state, str) else None,
        "started_at": started_at,
        "finished_at": None if started_at is None or took is None else int64_or_none(started_at + took),
        # Up to 0.2.4 the member had another name.
        "error": error_text(run.get("error", run.get("errorMessage"))),
    }


# A job's record


def standard(job: Job, item: Members) -> Record:
    """The record of a job whose document is given: word, fields and scores follow from both. An unknown state has no word."""
    fields = {b"id": to_bytes(job.id), b"name": to_bytes(job.queue)}
    if job.created_at is not None:
        fields[b"createTime"] = b"%d" % job.created_at
    if job.updated_at is not None:
        fields[b"updateTime"] = b"%d" % job.updated_at
    word = word_for(job.state, item)
    if word is not None:
        fields[b"state"] = word.encode()
    scores: dict[str, float] = {}
    if job.created_at is not None:
        scores["time_index"] = float(job.created_at)
    if job.state is State.SCHEDULED and job.due_at is not None:
        scores["scheduled"] = float(job.due_at)
    if job.state in FINISHED and "scheduledFor" in item:
        purge_at = as_number(item["scheduledFor"].value)
        if purge_at is not None:
            scores["purge"] = float(purge_at)
    return Record(fields, item, scores)


def word_for(state: State, item: Members) -> str | None:
    """The state word of a job, given its document: what it was before it was promoted stands there."""
    before = item["state"].value if "state" in item else None
    match state:
        case State.WAITING:
            return "queued" if before in SCHEDULED_WORDS else "new"
        case State.SCHEDULED:
            return str(before) if before in SCHEDULED_WORDS else "delayed"
        case State.ACTIVE:
            return "processing"
        case State.COMPLETED:
            return "success"
        case State.FAILED:
            return "fail"
    return None


def standard_item(job: Job, data: Member | None = None) -> Members:
    """The document that kickq would have written. ``data``: the payload as a member, where it is known to be one."""
    finished, runs = job.state in FINISHED, _runs(job)
    ended = runs[-1]["state"] if runs else None
    before = {"fail": "retry", "ghost": "ghost"}.get(str(ended), "delayed" if job.state is State.SCHEDULED else "new")
    took = [run["processTime"] for run in runs if run["processTime"] is not None]
    delay = moment_due = None
    if finished:
        end = job.finished_at if job.updated_at is None else job.updated_at
        moment_due = None if end is None else end + PURGE_MS
    elif job.state is State.SCHEDULED:
        moment_due = job.due_at
        if before == "delayed" and job.due_at is not None and job.created_at is not None:
            delay = max(0, job.due_at - job.created_at)
    of = Member.of
    item = {"id": of(job.id), "name": _common_text(job.queue)}
    item |= {"complete": of(finished), "success": of(job.state is State.COMPLETED)}
    if job.created_at is not None:
        item["createTime"] = of(job.created_at)
    if job.updated_at is not None:
        item["updateTime"] = of(job.updated_at)
    item["finishTime"] = of(job.finished_at)
    item["totalProcessTime"] = of(sum(took) if finished else None)
    item["delay"] = of(delay)
    item |= _limits(job.max_attempts, job.ttl)
    if job.payload is not None and (data is None or data.text != job.payload):
        data = data_member(job.payload)
    if job.payload is not None and data is not None:
        item["data"] = data
    state = word_for(job.state, {}) if finished else before
    item["lastError"] = of(job.error)
    item["scheduledFor"] = of(moment_due)
    item["state"] = _common_text(state)
    item["runs"] = of(runs) if runs else _NO_RUNS
    item["hotjobPromise"] = _NULL
    return item


@lru_cache(maxsize=1024)
def _limits(max_attempts: int | None, ttl: int | None) -> Members:
    """How long the job may run, and how often. A run that took too long counts as any other: it is not tried once more."""
    allowed = max(1, max_attempts or 1)
    limits: dict[str, Any] = {"processTimeout": LONGEST_RUN if ttl is None else min(max(1, ttl), LONGEST_RUN)}
    limits |= {"retry": allowed > 1, "retryTimes": allowed if allowed > 1 else DEFAULTS["retryTimes"], "ghostRetry": False}
    return _DEFAULT_MEMBERS | {name: Member.of(value) for name, value in limits.items()}


def _runs(job: Job) -> list[dict[str, Any]]:
    """The runs that a job's history tells of; a finished job has at least the run with which it ended."""
    events: Sequence[Mapping[str, Any]] = job.history if all(map(_is_event, job.history)) else ()
    runs = [_run(job, number, event) for number, event in enumerate(events, 1)]
    if job.state in FINISHED and (not runs or RUN_STATES[runs[-1]["state"]] is not job.state):
        state = "success" if job.state is State.COMPLETED else "fail"
        error = job.error if job.state is State.FAILED else None
        times = {"started_at": job.started_at, "finished_at": job.finished_at}
        runs.append(_run(job, len(runs) + 1, {"state": state, "error": error, **times}))
    return runs


def _is_event(event: Mapping[str, Any]) -> bool:
    """Whether ``_event`` could have made an entry of a history from a sound run."""
    match event:
        case {"state": str() as state, "started_at": int() | None, "finished_at": int() | None, "error": str() | None, **rest}:
            return state in RUN_STATES and not rest
    return False


def _run(job: Job, number: int, event: Mapping[str, Any]) -> dict[str, Any]:
    started_at, finished_at = event["started_at"], event["finished_at"]
    return {
        "count": number,
        "startTime": started_at,
        "processTime": None if started_at is None or finished_at is None else finished_at - started_at,
        "processTimeout": DEFAULTS["processTimeout"] if job.ttl is None else job.ttl,
        "state": event["state"],
        "error": event["error"],
        "timeout": None,
    }


def lost(job: Job, record: Record) -> dict[str, Any]:
    """The canonical fields of ``job`` that reading ``record`` back would not give, with the values that the job has."""
    return differences(job, canonical(job.id, Record.of(record.hash, record.scores), job.extra))
