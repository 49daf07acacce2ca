"""History: a job's events in all forms in which qless kept them, as one list of what happened when.

    list of texts      ``[when, what]`` or ``[when, what, about]``, since 2013 (``J-history``)
    array of objects   one object a stay in a queue: ``{q, put, popped, worker, done, failed}`` (field ``history``, 2012)
    array of arrays    ``[queue, put, popped, done, worker]`` (field ``history``, the first days)

A canonical event is a mapping with ``what``, ``when`` (seconds, as qless says it) and what the entry says beside. The old
forms become what qless itself makes of them when it converts a job. What is not an event is left out, and is to be kept raw.
Called by ``record.py`` and the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.text import load_loose_json, to_bytes, to_text
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
    return (None if (found := _entry(raw)) is None else found[0] for raw in entries)


class _Kind(NamedTuple):
    """What entries say beside their moment."""

    event: Event
    """The event of one of them."""
    is_own: bool
    """See ``is_own``."""
    is_as_written: bool
    """``write_list`` gives the very text of the entry."""


_MOMENT = re.compile(rb"\[(?:0|[1-9][0-9]{0,13})")
"""The beginning of an entry with whole seconds, which Lua writes with all their digits."""

SHORT = 200
"""Texts of at most so many bytes are remembered: thousands of jobs share a few."""


def _entry(raw: bytes) -> tuple[Event, _Kind] | None:
    moment, _, rest = raw.partition(b",")
    if len(rest) > SHORT or not _MOMENT.fullmatch(moment):
        kind = _kind(raw)
        return None if kind is None else (kind.event, kind)
    kind = _kind_of_rest(rest)
    return None if kind is None else ({**kind.event, "when": int(moment[1:])}, kind)


@lru_cache(maxsize=1024)
def _kind_of_rest(rest: bytes) -> _Kind | None:
    """The kind of all entries that go on like this after their moment: thousands of jobs share a few."""
    return _kind(b"[0," + rest)


def _kind(raw: bytes) -> _Kind | None:
    event = _event(raw)
    if event is None:
        return None
    try:
        is_as_written = lua_json.dump(_fields(event)) == raw
    except MalformedValue:
        is_as_written = False
    return _Kind(event, is_own(event), is_as_written)


def _event(raw: bytes) -> Event | None:
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


@frozen
class Timeline:
    """What a history tells, gone through once. Times are Unix ms, and None where it tells none."""

    events: tuple[Event, ...]
    entries: Sequence[bytes] | None
    """What ``write_list`` gives for the events, where nobody need ask it: the very texts in which they were found."""
    logs: tuple[bytes, ...]
    """What clients logged."""
    put_at: int | None
    """The first put."""
    popped_at: int | None
    """The last pop."""
    pops: int
    done_at: int | None
    """The last end."""
    latest: int | None
    """The latest moment of all."""
    last_queue: str
    """The queue that the job was last put into; empty if it does not say."""

    @classmethod
    def of_list(cls, entries: Sequence[bytes]) -> Timeline:
        """That of a list."""
        found = list(map(_entry, entries))
        return cls._of([each for each in found if each is not None], None if None in found else entries)

    @classmethod
    def of_events(cls, events: Iterable[Event]) -> Timeline:
        """That of canonical events."""
        return cls._of([(event, _Kind(event, is_own(event), is_as_written=False)) for event in events], None)

    @classmethod
    def _of(cls, told: Sequence[tuple[Event, _Kind]], entries: Sequence[bytes] | None) -> Timeline:
        put_at = popped_at = done_at = latest = None
        pops, queue = 0, ""
        logs: list[bytes] = []
        for event, (_, is_qless, is_as_written) in told:
            what, at = event["what"], round(1000 * event["when"])
            if latest is None or at > latest:
                latest = at
            if not is_as_written:
                entries = None
            if not is_qless:
                logs.append(log_line(event))
            elif what == "put":
                put_at = at if put_at is None else put_at
                queue = _queue_of(event) or queue
            elif what == "popped":
                popped_at, pops = at, pops + 1
            elif what == "done":
                done_at = at
        events = tuple([event for event, _ in told])
        return cls(events, entries, tuple(logs), put_at, popped_at, pops, done_at, latest, queue)


def _queue_of(put: Event) -> str:
    """The queue that a put of qless's own names; empty where that is no text."""
    queue = put.get("q", put.get("queue"))
    return queue if isinstance(queue, str) else ""


# At a glance


class Story(NamedTuple):
    """What a history tells in which all entries are events, and whose first put is at a whole second."""

    put: int
    """When the job was first put, in seconds."""
    was_popped: bool
    is_done: bool
    """The last of qless's own events says so."""
    queue: str
    """As in Timeline."""


_TEXT = rb'"[^"\\\x00-\x1f]{0,200}"'
_PLAIN = re.compile(
    rb"\[([1-9][0-9]{0,11}),(?:"
    rb'"put",\{"q(?:ueue)?":(' + _TEXT + rb")\}"
    rb'|("popped"),\{"worker":' + _TEXT + rb"\}"
    rb'|("done")|"timed-out"'
    rb'|"failed",\{(?:"worker":' + _TEXT + rb',)?"group":' + _TEXT + rb"\}"
    rb")\]"
)
"""Nearly all entries of nearly all histories, as qless writes them: the moment, and of a put the queue in quotes."""


def story_of(entries: Sequence[bytes]) -> Story | None:
    """What a list tells; None if an entry is no event, or if there is no first put at a whole second."""
    found = list(map(_PLAIN.fullmatch, entries))
    if not all(found):
        return _story_of_events([event for event in read_list(entries) if event is not None], len(entries))
    happened = [match.groups() for match in found if match is not None]
    puts = [(when, queue[1:-1]) for when, queue, _, _ in happened if queue is not None]
    if not puts:
        return None
    was_popped = any(popped is not None for _, _, popped, _ in happened)
    queue = next((queue for _, queue in reversed(puts) if queue), b"")
    return Story(int(puts[0][0]), was_popped, happened[-1][3] is not None, to_text(queue))


def _story_of_events(events: Sequence[Event], entries: int) -> Story | None:
    own = list(filter(is_own, events))
    put = next((event["when"] for event in named(own, "put")), None)
    if len(events) != entries or type(put) is not int:
        return None
    return Story(put, bool(named(own, "popped")), own[-1]["what"] == "done", Timeline.of_events(events).last_queue)
