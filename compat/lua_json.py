"""JSON as scripts of bee and qless read and write it: through the encoder and decoder inside Redis.

Lua knows no difference between an empty array and an empty object, which are written ``{}``. It prints numbers with 14 digits,
escapes slashes, and takes NaN and any bytes inside strings (``loose``). Texts are untrusted: nothing but ``dump`` ever raises.
Called by the modules of both families that read or write a field that holds JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..schema.errors import MalformedValue
from ..schema.text import MAX_JSON_DEPTH, json_encoder, load_json, load_loose_json, to_bytes, to_text
from .numbers import int64_or_none, parse_number

EMPTY = b"{}"
"""An empty table, array or object, as Lua writes it."""

_encode = json_encoder(ensure_ascii=False)
_DIFFERS = re.compile(r"\[\]|[0-9]\.[0-9]|[0-9][eE]|[0-9]{15}")
"""Where Python's encoder, which is much faster, may write something else than Lua: empty arrays, fractions, large numbers."""
_ESCAPED = re.compile(r'[\x00-\x1f"\\/\x7f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@lru_cache(maxsize=32)
def _decoded(raw: bytes, loose: bool) -> tuple[bool, Any]:
    """Whether a text is JSON, and its value. The reader and all rules ask for the same few texts of one job after the other."""
    try:
        return True, load_loose_json(raw) if loose else load_json(raw)
    except MalformedValue:
        return False, None


def is_json(raw: bytes | None, *, loose: bool = False) -> bool:
    """Whether scripts can decode this text."""
    return raw is not None and _decoded(raw, loose)[0]


def as_object(raw: bytes | None, *, loose: bool = False) -> dict[str, Any] | None:
    """A JSON object, which nobody may change; an empty list is one too. None for everything else."""
    value = _value(raw, loose)
    if value == []:
        return {}
    return value if isinstance(value, dict) else None


def as_list(raw: bytes | None, *, loose: bool = False) -> list[Any] | None:
    """A JSON list, which nobody may change; an empty object is one too. None for everything else."""
    value = _value(raw, loose)
    if value == {}:
        return []
    return value if isinstance(value, list) else None


def _value(raw: bytes | None, loose: bool) -> Any:
    if raw == EMPTY:
        return {}
    return None if raw is None else _decoded(raw, loose)[1]


def plain_number(value: Any) -> int | float | None:
    """A JSON number that 64 bits hold; None for everything else, true and false included."""
    if type(value) is int:
        return int64_or_none(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def numeric(value: Any) -> int | float | None:
    """The number that Lua's arithmetic makes of a JSON number or a string with one; None for everything else."""
    return parse_number(to_bytes(value).strip()) if isinstance(value, str) else plain_number(value)


def number_name(value: int | float) -> str:
    """A number as Lua prints it, as in the name of a key: ``1``, ``2.5``, ``1e+20``."""
    return f"{value:.14g}" if isinstance(value, float) or abs(value) < 1e300 else repr(value)


def dump_plain(value: Any) -> bytes | None:
    """The text as other programs would write it, an empty list as ``{}``; None for what Lua can't decode and encode again."""
    try:
        raw = _encode(value if value != [] else {}).encode("utf-8")
    except (ValueError, TypeError, RecursionError):  # lone surrogates are a ValueError too
        return None
    deep = raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH
    return None if deep and not is_json(raw) else raw


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


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) < 10**14:
            return str(value)
        case float() if math.isfinite(value):
            return number_name(value)
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
