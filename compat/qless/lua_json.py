"""JSON as qless reads and writes it: through the encoder and decoder inside Redis.

Lua knows no difference between an empty array and an empty object, prints numbers with 14 digits, escapes slashes, and takes
NaN and any bytes inside strings. Never raises anything but MalformedValue. Called by the modules that read or write a field
that holds JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ...schema.errors import MalformedValue
from ...schema.text import json_encoder, load_loose_json, to_bytes, to_text

_encode = json_encoder(ensure_ascii=False)
_DIFFERS = re.compile(r"\[\]|[0-9]\.[0-9]|[0-9][eE]|[0-9]{15}")
"""Where Python's encoder, which is much faster, may write something else than Lua: empty arrays, fractions, large numbers."""

_ESCAPED = re.compile(r'[\x00-\x1f"\\/\x7f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_json(raw: bytes | None) -> bool:
    """Whether qless can parse this text."""
    if raw is None:
        return False
    try:
        load_loose_json(raw)
    except MalformedValue:
        return False
    return True


EMPTY = b"{}"
"""An empty table, array or object, as Lua writes it."""


def load_array(raw: bytes) -> list[Any]:
    """The items of an array; ``{}`` is an empty one. Raises MalformedValue for anything else."""
    if raw == EMPTY:
        return []
    value = load_loose_json(raw)
    if value == {}:
        return []
    if not isinstance(value, list):
        raise MalformedValue("not a JSON array")
    return value


def load_object(raw: bytes) -> dict[str, Any]:
    """The members of an object; ``[]`` is an empty one. Raises MalformedValue for anything else."""
    if raw == EMPTY:
        return {}
    value = load_loose_json(raw)
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise MalformedValue("not a JSON object")
    return value


def dump(value: Any) -> bytes:
    """The text that Lua would write. Raises MalformedValue for a value that JSON has no form for."""
    try:
        text: str | None = _encode(value)
    except (TypeError, ValueError, RecursionError):
        text = None
    if text is None or _DIFFERS.search(text):
        return to_bytes(_text(value))
    # Both can only stand inside of strings.
    return to_bytes(_encodable(text).replace("/", "\\/").replace("\x7f", "\\u007f"))


def number_name(value: int | float) -> str:
    """A number as Lua prints it, as in the name of a key: ``1``, ``2.5``, ``1e+20``."""
    return f"{value:.14g}" if abs(value) < 1e300 else repr(value)


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) < 10**14:
            return str(value)
        case float() if math.isfinite(value):
            return f"{value:.14g}"
        case str():
            return '"' + _ESCAPED.sub(_escape, _encodable(value)) + '"'
        case list() | tuple():
            return "[" + ",".join(map(_text, value)) + "]" if value else "{}"
        case Mapping() if all(isinstance(key, str) for key in value):
            return "{" + ",".join(f"{_text(key)}:{_text(each)}" for key, each in value.items()) + "}"
        case _:
            raise MalformedValue("a value that Lua can't write as JSON")


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _encodable(text: str) -> str:
    """The text, if it comes back the same from its bytes."""
    if text.isascii() or to_text(to_bytes(text)) == text:
        return text
    raise MalformedValue("a text with a lone surrogate")
