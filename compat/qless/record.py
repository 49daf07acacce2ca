"""The job record of qless, both ways: hash, history and places to canonical fields, and canonical fields to a sound record.

``canonical`` reads any bytes and never fails; ``standard`` writes what qless of 2013 to 2024 would have. What ``standard``
would not reproduce of a stored job stands in passthrough.py, so that together they are exact. Called by reader and writer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State, differences, rank_of
from ...schema.memo import cached_property
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..numbers import int64_or_none, parse_int, parse_number
from . import history
from .history import SHORT, Event, Timeline

WORDS = {
    State.WAITING: "waiting",
    State.SCHEDULED: "scheduled",
    State.BLOCKED: "depends",
    State.ACTIVE: "running",
    State.COMPLETED: "complete",
    State.FAILED: "failed",
}
"""The word that a job in each canonical state gets."""

RUNNING = frozenset({"running", "pending"})
"""The words of a job that a worker has."""
STALLED = "stalled"
"""The word of a job that was timed out by hand: it waits, and its worker's set still has it."""

STATES = {
    **{word.encode(): state for state, word in WORDS.items()},
    b"pending": State.ACTIVE,
    STALLED.encode(): State.WAITING,
    b"throttled": State.WAITING,
}
"""Canonical states by the word in the hash."""

STATE_IN_ROLE = {b"waiting": ("scheduled", State.SCHEDULED), b"throttled": ("throttled", State.BLOCKED)}
"""Word -> an index, and the state that it means in this one."""

ROLE_OF_STATE = {
    State.WAITING: "work",
    State.SCHEDULED: "scheduled",
    State.BLOCKED: "depends",
    State.ACTIVE: "locks",
    State.COMPLETED: "completed",
}
"""The role of the zset where a job of each state belongs; failed ones stand in a list."""

NAME = "qless"
"""The name in ``Job.extra``."""

DEFAULT_RETRIES = 5
LARGEST_WHOLE = 10**14 - 1
NEVER_MS = 253_402_300_799_999
"""The end of the year 9999."""
FIRST_POSITION_S = 0.5
"""What stands in a score for the time of a job that runs before those that have a place."""
LAST_POSITION_S = 1e9
"""Places are counted in seconds from 1970 on, up to here (2001): before everything that a live producer puts."""


@frozen(slots=False)
class Record:
    """A job as qless stores it."""

    fields: Mapping[bytes, bytes]
    history: tuple[bytes, ...] | None = None
    """The list; None where there is none."""
    scores: Mapping[str, float] = field(factory=dict)
    """By role, in the zsets of the job's own queue and in that of completed jobs."""
    depends_on: tuple[str, ...] = ()

    @cached_property
    def state(self) -> State:
        """The canonical state."""
        word = self.fields.get(b"state", b"")
        if b"jid" not in self.fields and b"id" not in self.fields:
            return State.UNKNOWN
        if word in STATE_IN_ROLE and STATE_IN_ROLE[word][0] in self.scores:
            return STATE_IN_ROLE[word][1]
        return STATES.get(word) or State.UNKNOWN

    @cached_property
    def timeline(self) -> Timeline:
        """What the history tells, in whatever form it is."""
        if self.history is not None:
            return Timeline.of_list(self.history)
        raw = self.fields.get(b"history")
        return Timeline.of_events(() if raw is None else history.read_field(raw)[0])

    @property
    def events(self) -> tuple[Event, ...]:
        """The history without what is no event."""
        return self.timeline.events

    @cached_property
    def time(self) -> int | None:
        """When qless last put the job or handed it out, Unix ms; None if the field makes no sense."""
        return milliseconds(parse_number(self.fields.get(b"time")))

    @cached_property
    def tags(self) -> tuple[str, ...] | None:
        """The tags as the keys of the tags are named; None if the field makes no sense."""
        return names_of(self.fields.get(b"tags", lua_json.EMPTY))

    @cached_property
    def throttles(self) -> tuple[str, ...] | None:
        """The throttles that the job needs; None if the field makes no sense."""
        return names_of(self.fields.get(b"throttles", lua_json.EMPTY))

    @cached_property
    def failure(self) -> Mapping[str, Any] | None:
        """The last failure, empty if there was none; None if the field makes no sense."""
        return lua_json.as_object(self.fields.get(b"failure", lua_json.EMPTY), loose=True)

    @property
    def group(self) -> str | None:
        """The group under which the last failure is listed."""
        failure = self.failure or {}
        group = failure.get("group", failure.get("type"))
        return group if isinstance(group, str) else None

    @property
    def queue(self) -> str:
        """The queue; of a finished job, which has none any more, the last one it was put into."""
        queue = self.fields.get(b"queue", b"")
        if queue or self.state not in (State.COMPLETED, State.FAILED):
            return to_text(queue)
        return self.timeline.last_queue


def names_of(raw: bytes) -> tuple[str, ...] | None:
    """The names in a JSON array of texts and numbers; None for anything else."""
    return _names_in_short(raw) if len(raw) <= SHORT else _names_in(raw)


def _names_in(raw: bytes) -> tuple[str, ...] | None:
    items = lua_json.as_list(raw, loose=True)
    if items is None or not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
        return None
    return tuple(item if isinstance(item, str) else lua_json.number_name(item) for item in items)


_names_in_short = lru_cache(maxsize=1024)(_names_in)


def milliseconds(seconds: Any) -> int | None:
    """A time of qless in ms; None for what is no time."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not abs(seconds) < history.LATEST:
        return None
    return round(seconds * 1000)


def score_text(score: float) -> bytes:
    """All digits of a score, as Redis gives them to Lua and Lua to Redis."""
    return b"%.17g" % score


def _due_at(seconds: float | None) -> int | None:
    """When a job is due: one due after all calendars is not due at once."""
    ms = milliseconds(seconds)
    return NEVER_MS if ms is None and seconds is not None and seconds > 0 else ms


def canonical(job_id: str, record: Record, extra: Mapping[str, Any] | None = None) -> Job:
    """The job that a record describes. What has no sensible value is None."""
    get = record.fields.get
    state, scores, timeline = record.state, record.scores, record.timeline
    retries, remaining = parse_int(get(b"retries")), parse_int(get(b"remaining"))
    started_at, time = timeline.popped_at, record.time
    if started_at is not None and time is not None and state is State.ACTIVE and started_at <= time < started_at + 1000:
        started_at = time
    failure = record.failure or {}
    worker = to_text(get(b"worker", b""))
    finished_at = due_at = None
    match state:
        case State.COMPLETED:
            finished_at = milliseconds(scores["completed"]) if "completed" in scores else timeline.done_at
        case State.FAILED:
            finished_at = milliseconds(failure.get("when"))
            worker = failure["worker"] if isinstance(failure.get("worker"), str) else worker
        case State.SCHEDULED:
            due_at = _due_at(scores.get("scheduled"))
        case State.BLOCKED:
            due_at = milliseconds(parse_number(get(b"scheduled")))
    return Job(
        id=job_id,
        queue=record.queue,
        name=to_text(get(b"klass", b"")),
        state=state,
        priority=parse_number(get(b"priority")),
        payload=get(b"data"),
        created_at=created_at_of(record),
        updated_at=_later(timeline.latest, time),
        due_at=due_at,
        started_at=started_at,
        finished_at=finished_at,
        attempts=_attempts(state, timeline.pops, retries, remaining),
        max_attempts=None if retries is None else int64_or_none(retries + 1),
        error=_error(record, failure) if failure else None,
        worker=worker or None,
        # A lock at 0 is one that was never given: see ``standard``.
        lease_expires_at=milliseconds(scores.get("locks")) or None if state is State.ACTIVE else None,
        tags=record.tags or (),
        depends_on=record.depends_on if state is State.BLOCKED else (),
        logs=timeline.logs,
        history=timeline.events,
        extra={} if extra is None else extra,
    )


def created_at_of(record: Record) -> int | None:
    """When a job was put for the first time, Unix ms."""
    created_at = record.timeline.put_at
    if created_at is None or record.timeline.pops:
        return created_at
    time = record.time
    return time if time is not None and created_at <= time < created_at + 1000 else created_at


def _later(one: int | None, other: int | None) -> int | None:
    """The later of two moments that may be unknown."""
    return one if other is None else other if one is None else max(one, other)


def _attempts(state: State, popped: int, retries: int | None, remaining: int | None) -> int:
    """How often the job was handed out. The history may have lost entries, and retries come back with every put."""
    if retries is None or remaining is None:
        return popped
    spent = retries - remaining + (state is State.ACTIVE)
    return max(popped, int64_or_none(spent) or 0)


def _error(record: Record, failure: Mapping[str, Any]) -> str | None:
    message = failure.get("message")
    texts = [text for text in (record.group, message) if isinstance(text, str)]
    return ": ".join(texts) if texts else None


def group_and_message(job: Job) -> tuple[str, str]:
    """The group under which a job's error is filed, and the rest: what stands before the first colon, if that is short."""
    group, colon, message = (job.error or "").partition(": ")
    if colon and len(group) <= 100 and "\n" not in group:
        return group, message
    return f"{job.queue}-failed", job.error or ""


# Canonical fields to a record


def standard(job: Job, timeline: Timeline | None = None) -> Record:
    """What qless itself would have written for this job. A state that it has no word for is left out.

    ``timeline``: that of the job's history, where it is known.
    """
    happened, last_queue = _events(job, timeline)
    fields = _standard_fields(job, last_queue)
    depends_on = tuple(sorted(set(job.depends_on))) if job.state is State.BLOCKED else ()
    return Record(fields, tuple(happened), _standard_scores(job), depends_on)


def _standard_fields(job: Job, last_queue: str) -> dict[bytes, bytes]:
    """The hash. ``told``: the last queue that the history tells."""
    state, word = job.state, WORDS.get(job.state)
    active, completed, failing = state is State.ACTIVE, state is State.COMPLETED, state is State.FAILED
    retries = DEFAULT_RETRIES if job.max_attempts is None else max(0, job.max_attempts - 1)
    spent = (job.attempts or 0) - active
    last = job.finished_at if completed else job.started_at
    fields = {
        b"jid": to_bytes(job.id),
        b"klass": to_bytes(job.name),
        b"data": b"null" if job.payload is None else job.payload,
        b"priority": _priority_text(priority_of(job)),
        b"tags": _names(job.tags) if job.tags else lua_json.EMPTY,
        b"worker": to_bytes(job.worker or "") if active else b"",
        b"expires": b"" if failing else b"0",
        # A completed job is in no queue; its history tells the last one.
        b"queue": b"" if completed and last_queue == job.queue else to_bytes(job.queue),
        b"retries": b"%d" % retries,
        b"remaining": b"%d" % (retries if completed or failing else max(-1, retries - max(0, spent))),
    }
    if word is not None:
        fields[b"state"] = word.encode()
    moment = job.created_at if last is None else last
    if moment is not None:
        fields[b"time"] = b"%.20f" % (moment / 1000)
    if active and job.lease_expires_at is not None:
        fields[b"expires"] = score_text(job.lease_expires_at / 1000)
    if job.due_at is not None and state is State.BLOCKED:
        fields[b"scheduled"] = score_text(job.due_at / 1000)
    if completed:
        fields[b"failure"] = lua_json.EMPTY
    elif failing or job.error is not None:
        group, message = group_and_message(job)
        worker = job.worker if failing and job.worker else ""
        when = _seconds(job.finished_at or 0)
        failure = {"group": _plain(group), "message": _plain(message), "when": when, "worker": _plain(worker)}
        fields[b"failure"] = lua_json.dump(failure)
    return fields


def _names(names: tuple[str, ...]) -> bytes:
    """A list of names as JSON; those with a lone surrogate, which can't be a key, are left out."""
    return _short_names(names) if sum(map(len, names)) <= SHORT else _names_text(names)


def _names_text(names: tuple[str, ...]) -> bytes:
    return lua_json.dump([name for name in names if to_text(to_bytes(name)) == name])


_short_names = lru_cache(maxsize=1024)(_names_text)


def _events(job: Job, timeline: Timeline | None) -> tuple[Sequence[bytes], str]:
    """The history, and the last queue that it tells: the job's own where it has one, else the least that its times tell.

    Log lines stand among the events.
    """
    try:
        own = (timeline and timeline.entries) or history.write_list(job.history)
        told = timeline or Timeline.of_events(job.history)
        if own and told.logs == job.logs and (job.queue or not told.last_queue):
            return own, told.last_queue
    except MalformedValue:
        pass
    worker = job.worker or ""
    story: list[dict[str, Any]] = [{"what": "put", "when": _seconds(job.created_at or 0), "q": _plain(job.queue)}]
    if job.started_at is not None:
        story.append({"what": "popped", "when": _seconds(job.started_at), "worker": _plain(worker)})
    if job.finished_at is not None and job.state is State.COMPLETED:
        story.append({"what": "done", "when": _seconds(job.finished_at)})
    elif job.finished_at is not None and job.state is State.FAILED:
        story.append({"what": "failed", "when": _seconds(job.finished_at), "group": _plain(group_and_message(job)[0])})
    latest = max((event["when"] for event in story), default=0)
    lines = (history.logged(to_text(line), latest) for line in job.logs)
    return history.write_list([*story, *lines]), _plain(job.queue)


def _seconds(ms: int) -> int:
    """The whole seconds of a time, within what Lua prints with all digits."""
    return min(max(ms // 1000, -LARGEST_WHOLE), LARGEST_WHOLE)


def _plain(text: str) -> str:
    """Text that has bytes: a lone surrogate stands in its three-byte form."""
    return to_text(to_bytes(text))


def priority_of(job: Job) -> int | float:
    """The priority in qless, where the highest runs first. One that another family counts the other way round is turned."""
    own = job.priority if job.priority is not None and math.isfinite(job.priority) else 0
    if NAME in job.extra or job.rank is None or rank_of(-own) == job.rank:
        return own
    return -job.rank


def _priority_text(priority: int | float) -> bytes:
    # A zero has no sign.
    return b"%d" % priority if isinstance(priority, int) else score_text(priority or 0)


def _standard_scores(job: Job) -> dict[str, float]:
    """Floats, as Redis keeps them: a time that a float can't hold must be seen to be lost."""
    role = ROLE_OF_STATE.get(job.state)
    moment: int | None
    match role:
        case None:
            return {}
        case "work":
            return {"work": work_score(priority_of(job), _position_s(job))}
        case "scheduled":
            moment = job.due_at
        case "depends":
            moment = job.created_at
        case "locks":
            moment = job.lease_expires_at
        case "completed":
            moment = job.finished_at
    return {role: (moment or 0) / 1000}


def work_score(priority: int | float, seconds: float) -> float:
    """The score of a waiting job: the highest runs first, among equals the one with the earliest time."""
    return float(priority) - seconds / 1e10


def _position_s(job: Job) -> float:
    """The time that orders a job among those of its priority: its place at the source. One without a place runs first."""
    return FIRST_POSITION_S if job.position is None else min(1.0 + job.position, LAST_POSITION_S)


def is_position(job: Job, score: float) -> bool:
    """Whether a job's score holds the place that a writer gave it, which follows from the order in which jobs are read."""
    priority = priority_of(job)
    if score == work_score(priority, FIRST_POSITION_S):
        return True
    seconds = (priority - score) * 1e10
    return FIRST_POSITION_S / 2 < seconds < LAST_POSITION_S and score == work_score(priority, round(seconds))


def lost(job: Job, record: Record) -> dict[str, Any]:
    """The canonical fields of ``job`` that reading ``record`` back would not give, with the values that the job has."""
    return differences(job, canonical(job.id, record, job.extra))
