"""The payload of pjq: the JSON text that is a whole job, read as leniently as the Python program does, and made for it.

The program stores what a producer sent and hands it to the worker, so the text is the payload. It needs members of its own in
there (``uuid``, ``queue_name``). Those are put behind the members of a foreign payload, where they count also if the payload
has some of the same name, and where they can be cut off again. Nothing here is ever evaluated. Called by ``record.py``, the
view and the rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.text import is_json, load_json, load_loose_json

Members = Mapping[str, Any]

_WRAP = b'{"payload":'


def load(raw: bytes) -> Members:
    """The members of a stored job. Raises MalformedValue for a text at which the program would die, and names the reason."""
    try:
        value = load_json(raw)
    except MalformedValue:
        value = _load_as_python(raw)
    if not isinstance(value, dict):
        raise MalformedValue(f"a JSON {type(value).__name__} instead of an object")
    return value


def _load_as_python(raw: bytes) -> Any:
    """What Python's own parser makes of it: NaN and infinity are numbers. Too deep nesting is refused before it can hurt."""
    load_loose_json(raw)
    try:
        return json.loads(raw.decode("utf-8"))
    except ValueError:
        raise MalformedValue("not JSON in UTF-8") from None


@lru_cache(maxsize=4)
def parsed(raw: bytes) -> tuple[Members | None, str | None]:
    """The members of a stored job, or why there are none. Remembered for all that ask in a row; nobody may change them."""
    try:
        return load(raw), None
    except MalformedValue as error:
        return None, str(error)


def members_of(raw: bytes | None) -> Members | None:
    """The members of a stored job; None without a text that the program can read."""
    return None if raw is None else parsed(raw)[0]


def key_texts(members: Members, name: str) -> set[str]:
    """What the programs make of a member that they use as a key: text as it is, all else as Python or JavaScript shows it."""
    if name not in members:
        return {"undefined"}
    value = members[name]
    if isinstance(value, str):
        return {value}
    shown = json.dumps(value) if value is None or isinstance(value, bool) else None
    return {str(value)} | ({shown} if shown else set())


def has_failed(members: Members) -> bool:
    """Whether a finished job says of itself that it went wrong. An exit code is the only word for it."""
    code = members.get("exitcode")
    return not (code is None or (isinstance(code, int | float) and code == 0))


def output(members: Members, name: str) -> str | None:
    """What a worker reported as ``stdout`` or ``stderr``: a text, or anything else as JSON."""
    value = members.get(name)
    return value if value is None or isinstance(value, str) else json.dumps(value)


# Making one


@frozen
class Text:
    """A stored job, made of a payload."""

    raw: bytes
    added: int = 0
    """How many bytes at its end are not the payload's own."""
    wrapped: bool = False
    """The payload is no object, and stands in a member of its own."""


def compose(payload: bytes | None, more: Members) -> Text:
    """The payload with more members; without any, the payload itself where it is an object."""
    members = members_of(payload)
    if payload is not None and members is not None:
        if not more:
            return Text(payload)
        tail = _tail(more, comma=bool(members))
        return Text(payload.rstrip(b" \t\r\n")[:-1] + tail, len(tail))
    if is_json(payload):
        tail = _tail(more, comma=bool(more))
        return Text(_WRAP + (payload or b"") + tail, len(tail), wrapped=True)
    return Text(b"{" + _tail(more, comma=False))


def payload_in(text: Text) -> bytes | None:
    """The payload of which ``compose`` made the text; None where that is not so."""
    if not 0 < text.added < len(text.raw):
        return None
    rest = text.raw[: -text.added]
    if text.wrapped:
        return rest.removeprefix(_WRAP) if rest.startswith(_WRAP) else None
    return rest + b"}"


def _tail(more: Members, *, comma: bool) -> bytes:
    """The members as the program writes them, up to the closing brace."""
    return (b"," if comma else b"") + json.dumps(more, separators=(",", ":")).encode("ascii")[1:]
