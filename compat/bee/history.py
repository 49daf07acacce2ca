"""History: the list of events in a bee record, which rules compare with its status, and which a writer must complete.

A job that comes from elsewhere gets the story that bee would have told of it; bee's own story goes on where it ended. Called
by the record and the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...schema.job import Job, State
from .. import lua_json
from ..numbers import int64_or_none
from .keys import EVENTS

Event = Mapping[str, Any]

KNOWN = frozenset(
    {
        *("submitted", "queued", "delayed", "dependancyWaiting", "dependancy_waiting"),
        *("popped", "completed", "exception", "failed", "duplicate", "canceled", "expiredLock"),
    }
)
"""All events, in bee's own spelling; that with the underscore is of 0.0.2 and 0.0.3."""

MOST_RUNS = 50
"""A story with more runs than this is cut short: every script that touches the job decodes all of it."""


def events(raw: bytes | None) -> tuple[Event, ...]:
    """The entries of a history, oldest first; whatever is no object is left out."""
    return tuple(entry for entry in lua_json.as_list(raw) or () if isinstance(entry, dict))


def event_names(history: Iterable[Event]) -> list[str]:
    """What happened, in order."""
    return [entry["event"] for entry in history if isinstance(entry.get("event"), str)]


def event_time(event: Event) -> int | None:
    """When an event happened, ms."""
    value = event.get("timestamp")
    # Lua may have written a whole number as 1.79e+12.
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return int64_or_none(value) if type(value) is int else None


class Times(NamedTuple):
    """When the last events of a history happened, ms."""

    updated_at: int | None
    """Any event."""
    started_at: int | None
    """That a worker took the job."""
    ended_at: int | None
    """One of EVENTS."""
    runs: int
    """How often workers took it."""


def times_of(history: Iterable[Event]) -> Times:
    """See Times."""
    updated_at = started_at = ended_at = None
    runs = 0
    for event in history:
        name, updated_at = event.get("event"), event_time(event)
        if name == "popped":
            started_at = updated_at
            runs += 1
        elif name in EVENTS:
            ended_at = updated_at
    return Times(updated_at, started_at, ended_at, runs)


def fitting(word: str | None, state: State) -> tuple[str, ...]:
    """The events with which the history of a sound job of this status may end; none for a word that is not bee's."""
    match word:
        case "queued" | "completed" | "failed" | "canceled" | "duplicate":
            return (word,)
        case "running":
            return ("popped",)
        case "retried":
            return ("delayed",)
        case "expired":
            return ("completed", "failed")
        case "new":
            return ("dependancyWaiting", "dependancy_waiting") if state is State.BLOCKED else ("delayed",)
    return ()


def history_text(job: Job, word: str | None) -> bytes:
    """The events for a record with this status word, as JSON."""
    own = _own_text(job.history)
    story = _story(job) if own is None else list(job.history)
    wanted = fitting(word, job.state)
    if own is not None and (not wanted or story[-1]["event"] in wanted):
        return own
    if wanted and story[-1]["event"] not in wanted:
        _close(story, job, wanted)
    return lua_json.dump_plain(story) or b"{}"


def _own_text(history: Sequence[Event]) -> bytes | None:
    """The same as JSON, if all this can stand in a record of bee."""
    known = all(isinstance(event.get("event"), str) and event["event"] in KNOWN for event in history)
    return lua_json.dump_plain(list(history)) if history and known else None


def _story(job: Job) -> list[Event]:
    """What happened before the last event, as far as the job knows."""
    story: list[Event] = [_event("submitted", job.created_at)]
    ended = job.state in (State.ACTIVE, State.COMPLETED, State.FAILED)
    # The run of an active or finished job stands in it whatever the attempts say: nothing ends that never began.
    for _ in range(max(ended, min(job.attempts or 0, MOST_RUNS))):
        story += (_event("queued", job.created_at), _event("popped", job.started_at))
    return story


def _close(story: list[Event], job: Job, wanted: Sequence[str]) -> None:
    """Adds what leads to the state in which the job is."""
    last = story[-1]["event"] if story else None
    name = str(job.state) if str(job.state) in wanted else wanted[0]
    if name in ("completed", "failed") and last == "queued":
        story.append(_event("popped", job.started_at))
    ended = job.state in (State.COMPLETED, State.FAILED, State.CANCELLED) and job.finished_at is not None
    when = job.finished_at if ended else job.started_at if name == "popped" else job.updated_at
    more: dict[str, Any] = {"till": job.due_at} if name == "delayed" else {}
    if name == "failed" and job.error is not None and lua_json.dump_plain(job.error):
        more = {"message": job.error}
    story.append(_event(name, when, more))


def _event(name: str, when: int | None, more: Mapping[str, Any] | None = None) -> Event:
    event: dict[str, Any] = {"event": name, "hive": "ferryman", **(more or {})}
    if when is not None:
        event["timestamp"] = when
    return event
