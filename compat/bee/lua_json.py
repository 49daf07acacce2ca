"""Lua JSON: the JSON inside bee's records, read without trust and written so that bee's scripts can decode it.

bee's scripts decode and encode in Lua, where an empty list and an empty object are the same: both are written ``{}`` and both
are read alike. Never raises for any bytes. Called by the record, the view and the rules.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from ...schema.errors import MalformedValue
from ...schema.text import MAX_JSON_DEPTH, json_encoder, load_json, to_bytes
from ..numbers import int64_or_none, parse_number


@lru_cache(maxsize=32)
def _decoded(raw: bytes) -> tuple[bool, Any]:
    """Whether a text is JSON, and its value. The reader and all rules ask for the same few texts of one job after the other."""
    try:
        return True, load_json(raw)
    except MalformedValue:
        return False, None


def parse(raw: bytes | None) -> Any:
    """The value of a JSON text; None for a missing or malformed one, as for null. Nobody may change the value."""
    return None if raw is None else _decoded(raw)[1]


def is_json(raw: bytes) -> bool:
    """Whether bee's scripts can decode this text."""
    return _decoded(raw)[0]


def as_object(raw: bytes | None) -> dict[str, Any] | None:
    """A JSON object; an empty list is one too. None for everything else."""
    value = parse(raw)
    if value == []:
        return {}
    return value if isinstance(value, dict) else None


def as_list(raw: bytes | None) -> list[Any] | None:
    """A JSON list; an empty object is one too. None for everything else."""
    value = parse(raw)
    if value == {}:
        return []
    return value if isinstance(value, list) else None


def plain_number(value: Any) -> int | float | None:
    """A JSON number that 64 bits hold; None for everything else, true and false included."""
    if type(value) is int:
        return int64_or_none(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def numeric(value: Any) -> int | float | None:
    """The number that Lua's arithmetic makes of a JSON number or a string with one; None for everything else."""
    return parse_number(to_bytes(value).strip()) if isinstance(value, str) else plain_number(value)


def dependants(raw: bytes | None) -> tuple[str, ...]:
    """The jobs that wait, or have waited, for the one with this list, each once."""
    return tuple(dict.fromkeys(each for each in as_list(raw) or () if isinstance(each, str)))


def tag_text(tag: Any) -> str | None:
    """A tag as it stands in the name of its set: text, or a number as Lua joins it. None for what can't be a tag."""
    if isinstance(tag, str):
        return tag
    value = plain_number(tag)
    return None if value is None else f"{value:.14g}"


def dump(value: Any) -> bytes | None:
    """JSON text for ``value``, an empty list as ``{}``; None for what has none that Lua can decode and encode again."""
    try:
        raw = _encode(value if value != [] else {}).encode("utf-8")
    except (ValueError, TypeError, RecursionError):  # lone surrogates are a ValueError too
        return None
    deep = raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH
    return None if deep and not is_json(raw) else raw


_encode = json_encoder(ensure_ascii=False)
