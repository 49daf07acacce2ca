"""History: a job's events in all forms in which qless kept them, as one list of what happened when.

    list of texts      ``[when, what]`` or ``[when, what, about]``, since 2013 (``J-history``)
    array of objects   one object a stay in a queue: ``{q, put, popped, worker, done, failed}`` (field ``history``, 2012)
    array of arrays    ``[queue, put, popped, done, worker]`` (field ``history``, the first days)

A canonical event is a mapping with ``what``, ``when`` (seconds, as qless says it) and what the entry says beside. The old
forms become what qless itself makes of them when it converts a job. What is not an event is left out, and is to be kept raw.
Called by ``record.py`` and the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...schema.errors import MalformedValue
from ...schema.text import load_loose_json, to_bytes
from .. import lua_json

Event = Mapping[str, Any]

LATEST = 9e15
"""Seconds whose milliseconds 64 bits hold; NaN and infinity are not below it."""

_ABOUT = {
    "put": ("q", "queue"),
    "popped": ("worker",),
    "throttled": ("queue",),
    "failed": ("group",),
    "failed-retries": ("group",),
    "done": (),
    "timed-out": (),
}
"""The events that qless itself writes, and what tells each: one of these names in the object that comes with it."""


def read_list(entries: Iterable[bytes]) -> Iterator[Event | None]:
    """One event for each entry of the list; None for an entry that is none."""
    return (_entry(raw) for raw in entries)


def _entry(raw: bytes) -> Event | None:
    try:
        value = load_loose_json(raw)
    except MalformedValue:
        return None
    match value:
        case [when, str(what)] if _is_time(when):
            return {"what": what, "when": when}
        case [when, str(what), about] if _is_time(when):
            named = isinstance(about, dict) and about and about.keys().isdisjoint(("what", "when", "about"))
            return {"what": what, "when": when, **(about if named else {"about": about})}
    return None


def read_field(raw: bytes) -> tuple[tuple[Event, ...], bool]:
    """The events behind the field ``history``; and whether all of it could be read."""
    stays = lua_json.as_list(raw, loose=True)
    if stays is None:
        return (), False
    events: list[Event] = []
    is_valid = True
    for stay in stays:
        if isinstance(stay, list) and 1 < len(stay) <= 5:
            queue, put, popped, _done, worker = (*stay, None, None, None)[:5]
            stay = {"q": queue, "put": put, "popped": popped, "worker": worker}
        elif not isinstance(stay, dict) or not _is_time(stay.get("put")):
            is_valid = False
            continue
        events += _of_stay(stay)
    return tuple(events), is_valid


def _of_stay(stay: Mapping[str, Any]) -> Iterator[Event]:
    about = {"put": {"q": stay.get("q")}, "popped": {"worker": stay.get("worker")}}
    for what in ("put", "popped", "failed", "done"):
        if _is_time(stay.get(what)):
            yield {"what": what, "when": stay[what], **about.get(what, {})}


def _is_time(value: Any) -> bool:
    """Whether a value may be a moment in seconds: a finite number, whose milliseconds 64 bits hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LATEST


def write_list(events: Iterable[Event]) -> list[bytes]:
    """The entries of the list for canonical events. Raises MalformedValue for an event that ``read_list`` would not give."""
    return [lua_json.dump(_fields(event)) for event in events]


def _fields(event: Event) -> list[Any]:
    about = {name: value for name, value in event.items() if name not in ("what", "when")}
    what, when = event.get("what"), event.get("when")
    if not isinstance(what, str) or not _is_time(when):
        raise MalformedValue("an event without what or when")
    if "about" in about:
        return [when, what, about["about"]]
    return [when, what, about] if about else [when, what]


def is_own(event: Event) -> bool:
    """Whether qless itself writes such an event; every other one is a client's log line."""
    names = _ABOUT.get(event["what"])
    if names is None or "about" in event:
        return False
    # Converted from an old history, a failure comes without its group.
    if not names or event["what"] == "failed":
        return len(event) == 2 or any(name in event for name in names)
    return any(name in event for name in names)


def foreign(events: Iterable[Event]) -> Iterator[Event]:
    """The events that a client logged."""
    return (event for event in events if not is_own(event))


def log_line(event: Event) -> bytes:
    """The text that a client logged."""
    return to_bytes(event["what"])


def logged(line: str, when: int) -> Event:
    """The event of a log line, such that it can't be taken for one of qless's own."""
    event: dict[str, Any] = {"what": line, "when": when}
    return {**event, "about": True} if is_own(event) else event


def named(own: Iterable[Event], what: str) -> list[Event]:
    """Those of qless's own events that are of one kind."""
    return [event for event in own if event["what"] == what]


def put_into(event: Event) -> str | None:
    """The queue that a ``put`` names; None for every other event, and for what only looks like one."""
    if event.get("what") != "put" or not is_own(event):
        return None
    queue = event.get("q", event.get("queue"))
    return queue if isinstance(queue, str) else None
