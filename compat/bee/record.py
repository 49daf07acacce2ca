"""The record of bee, both ways: hash fields to canonical fields, and canonical fields to what bee itself would write.

``canonical`` reads any bytes and never fails; ``standard`` writes what a sound job of the newest bee looks like. What it would
not reproduce of a record stands in passthrough.py, so that together they are exact. Called by the reader and the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attrs import evolve, field

from ...schema.frozen import frozen
from ...schema.job import Job, State, differences
from ...schema.memo import cached_property
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..numbers import int64_or_none, parse_int, score_to_int
from .history import Event, event_names, events, history_text, times_of
from .keys import DYING, OPTIONS, OPTIONS_TTL, ROLE_OF, STATES_OF, UNFINISHED, WORDS


@frozen(slots=False)
class Record:
    """A job as bee stores it: its hash, and what other keys say of it that its state depends on."""

    fields: Mapping[bytes, bytes]
    scores: Mapping[str, float] = field(factory=dict)
    """By role, of SETS: where it stands in the sets of its own queue."""
    needs: tuple[str, ...] = ()
    """The jobs that it still waits for, sorted."""
    dying: bool = False
    """Whether Redis will remove the record by itself."""
    original: State | None = None
    """For a duplicate: the state that the original gives it; None where that is not known."""

    @cached_property
    def status(self) -> str:
        """The status word, whatever it is; empty if there is none."""
        return to_text(self.fields.get(b"status", b""))

    @cached_property
    def state(self) -> State:
        """The canonical state. The status counts, even where the sets contradict it."""
        match self.status:
            case "new":
                waits = State.BLOCKED if self.needs else State.UNKNOWN
                return State.SCHEDULED if "delayed" in self.scores else waits
            case "retried":
                return State.SCHEDULED if "delayed" in self.scores else State.UNKNOWN
            case "duplicate":
                return self.original or State.UNKNOWN
        return ended_state(self.status, self.history if self.status == "expired" else ())

    @cached_property
    def history(self) -> tuple[Event, ...]:
        return events(self.fields.get(b"history"))

    @property
    def role(self) -> str | None:
        """The role of the sorted set in which the job belongs; a new one that waits for others, and one that dies, in none."""
        if self.dying or self.state in (State.UNKNOWN, State.BLOCKED):
            return None
        return ROLE_OF.get(self.status)


def ended_state(status: str, history: tuple[Event, ...]) -> State:
    """The state behind a status word that means the same wherever the job stands; an expired job is what it was before."""
    if status == "expired":
        ended = next((name for name in reversed(event_names(history)) if name in ("completed", "failed")), None)
        return State(ended) if ended else State.UNKNOWN
    states = STATES_OF.get(status, ())
    return states[0] if len(states) == 1 else State.UNKNOWN


def state_for_duplicates(fields: Mapping[bytes, bytes]) -> State:
    """The state that an original with this record gives its duplicates."""
    status = to_text(fields.get(b"status", b""))
    return State.BLOCKED if status in UNFINISHED else ended_state(status, events(fields.get(b"history")))


def canonical(job_id: str, stored: Record, extra: Mapping[str, Any] | None = None) -> Job:
    """The job that a record describes. What has no sensible value is None."""
    get = stored.fields.get
    queue = to_text(get(b"queue", b""))
    status, state = stored.status, stored.state
    options = lua_json.as_object(get(b"options")) or {}
    times = times_of(stored.history)
    retries = lua_json.plain_number(options.get("retries"))
    error = get(b"failedReason", get(b"failed_reason"))
    unique_key = get(b"hash")
    timeout = lua_json.plain_number(options.get("timeout"))
    depends_on = stored.needs if state is State.BLOCKED else ()
    if state is State.BLOCKED and status == "duplicate":
        # The original holds the key; this one waits for it.
        depends_on, unique_key = (to_text(get(b"duplicate", b"")),), None
    finished = state in (State.COMPLETED, State.FAILED, State.CANCELLED)
    return Job(
        id=job_id,
        queue=queue,
        name=queue,
        state=state,
        priority=lua_json.numeric(options.get("priority", 0)),
        payload=get(b"data"),
        created_at=parse_int(get(b"submitted")),
        updated_at=times.updated_at,
        due_at=score_to_int(stored.scores.get("delayed")) if state is State.SCHEDULED else None,
        started_at=times.started_at,
        finished_at=times.ended_at if finished else None,
        attempts=times.runs if stored.history else _attempts(status, parse_int(get(b"retries", b"0"))),
        max_attempts=None if retries is None else int64_or_none(int(retries) + 1),
        result=get(b"result") if state is State.COMPLETED and status != "duplicate" else None,
        error=to_text(error) if error else None,
        worker=to_text(get(b"worker", b"")) or None,
        lease_expires_at=score_to_int(stored.scores.get("locks")) if state is State.ACTIVE else None,
        tags=tag_names(get(b"tags")),
        depends_on=depends_on,
        unique_key=None if unique_key is None else to_text(unique_key),
        ttl=int64_or_none(int(timeout)) if timeout is not None and timeout > 0 else None,
        history=stored.history,
        extra={} if extra is None else extra,
    )


def _attempts(status: str, retries: int | None) -> int | None:
    """How often a job without a history was handed to a worker."""
    if retries is None:
        return None
    return int64_or_none(retries + 1) if _has_run(status) else retries


def _has_run(status: str) -> bool:
    return status in ("running", "completed", "failed", "duplicate", "expired")


def tag_names(raw: bytes | None) -> tuple[str, ...]:
    """The tags in a list, as the names of their sets have them."""
    return tuple(name for name in map(tag_name, lua_json.as_list(raw) or ()) if name is not None)


def tag_name(tag: Any) -> str | None:
    """A tag as it stands in the name of its set: text, or a number as Lua joins it. None for what can't be a tag."""
    if isinstance(tag, str):
        return tag
    value = lua_json.plain_number(tag)
    return None if value is None else lua_json.number_name(value)


def dependants_of(raw: bytes | None) -> tuple[str, ...]:
    """The jobs that wait, or have waited, for the one with this list, each once."""
    return tuple(dict.fromkeys(each for each in lua_json.as_list(raw) or () if isinstance(each, str)))


def word_for(job: Job, before: str | None) -> str | None:
    """The status word for a job. ``before``: the one that it had in bee, which counts as long as it can mean the state."""
    if before is not None and job.state in STATES_OF.get(before, (State.UNKNOWN,)):
        return before
    return "retried" if job.state is State.SCHEDULED and job.attempts else WORDS.get(job.state)


def standard(job: Job, word: str | None) -> Record:
    """What bee itself would have written for this job with this status word."""
    dying = word in DYING
    needs = tuple(sorted(set(job.depends_on))) if job.state is State.BLOCKED and word == "new" else ()
    original = job.state if word == "duplicate" else None
    return Record(_standard_fields(job, word), _standard_scores(job, word), needs, dying, original)


def _standard_fields(job: Job, word: str | None) -> dict[bytes, bytes]:
    options, allowed = _options(job, word)
    fields = {
        b"jid": to_bytes(job.id),
        b"queue": to_bytes(job.queue),
        b"data": job.payload if job.payload is not None and lua_json.is_json(job.payload) else b"{}",
        b"options": options,
        b"worker": to_bytes(job.worker or ""),
        b"retries": b"%d" % _retries(job, word, allowed),
        b"tags": (lua_json.dump_plain(list(job.tags)) if job.tags else None) or lua_json.EMPTY,
        b"history": history_text(job, word),
    }
    if word is not None:
        fields[b"status"] = to_bytes(word)
    if job.created_at is not None:
        fields[b"submitted"] = b"%d" % job.created_at
    if job.unique_key is not None:
        fields[b"hash"] = to_bytes(job.unique_key)
    if job.result is not None and job.state is State.COMPLETED and word != "duplicate" and lua_json.is_json(job.result):
        fields[b"result"] = job.result
    if job.error and job.state in (State.FAILED, State.CANCELLED):
        fields[b"failedReason"] = to_bytes(job.error)
    return fields


def _options(job: Job, word: str | None) -> tuple[bytes, int]:
    """The options, as JSON; and how often the job may be tried again by them."""
    needs = delay = None
    if job.state is State.BLOCKED and word == "new" and lua_json.dump_plain(list(job.depends_on)):
        needs = tuple(job.depends_on)
    if job.state is State.SCHEDULED and word == "new" and job.due_at is not None and job.created_at is not None:
        delay = max(0, job.due_at - job.created_at)
    ttl = job.ttl if job.ttl is not None and job.ttl > 0 else None
    retries: Any = OPTIONS["retries"] if job.max_attempts is None else max(0, job.max_attempts - 1)
    return _options_text(_priority(job), retries, needs, delay, ttl), retries


@lru_cache(maxsize=1_000, typed=True)
def _options_text(
    priority: int | float, retries: int, needs: tuple[str, ...] | None, delay: int | None, ttl: int | None
) -> bytes:
    """The options of a sound job, as JSON. None: as in all jobs."""
    options: dict[str, Any] = {**OPTIONS, "priority": priority, "retries": retries}
    if needs is not None:
        options["dependencies"] = list(needs) or {}
    if delay is not None:
        options["delay"] = delay
    if ttl is not None:
        options["timeout"] = ttl
    return lua_json.dump_plain(options) or b"{}"


def _priority(job: Job) -> int | float:
    """In bee the highest runs first; of bee's own jobs the rank is always 0, since their place does not follow from it."""
    if job.rank:
        return -job.rank
    return 0 if lua_json.plain_number(job.priority) is None else job.priority or 0


def _retries(job: Job, word: str | None, allowed: int) -> int:
    made = (job.attempts or 0) - _has_run(word or "")
    return max(1 if word == "retried" else 0, min(made, allowed))


def _standard_scores(job: Job, word: str | None) -> dict[str, float]:
    """Where the job's own fields say at which score it stands; the writer knows the rest."""
    if word in ("new", "retried") and job.state is State.SCHEDULED:
        return {"delayed": float(job.due_at if job.due_at is not None else job.created_at or 0)}
    if word == "running" and job.lease_expires_at is not None:
        return {"locks": float(job.lease_expires_at)}
    if word in ("completed", "failed") and job.finished_at is not None:
        return {"expires": float(job.finished_at + OPTIONS_TTL)}
    return {}


def lost(job: Job, stored: Record) -> dict[str, Any]:
    """The canonical fields of ``job`` that reading ``stored`` back would not give, with the values that the job has."""
    return differences(job, canonical(job.id, stored, job.extra))


def is_readable(name: bytes, raw: bytes | None) -> bool:
    """Whether bee's scripts can work with this text of a hash field (None: no such field)."""
    if raw is None:
        return True
    match name:
        case b"data" | b"result":
            return lua_json.is_json(raw)
        case b"options":
            return lua_json.as_object(raw) is not None
        case b"tags" | b"history" | b"dependants":
            return lua_json.as_list(raw) is not None
    return True


def readable(stored: Record) -> Record:
    """The same without the fields that bee's scripts can't decode."""
    if all(is_readable(name, raw) for name, raw in stored.fields.items()):
        return stored
    return evolve(stored, fields={name: raw for name, raw in stored.fields.items() if is_readable(name, raw)})
