"""Tagged JSON: plain values of any depth as JSON text that reads back exactly, bytes and odd floats included.

For what a record has no field of its own for. Never pickles; the text is untrusted on the way back.
Called by families that keep an overflow in Redis.
"""

from __future__ import annotations

import base64
import binascii
import threading
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import MalformedValue
from .text import json_encoder, load_json

MARKS = frozenset({"b64", "float", "plain"})
"""Single keys of JSON objects that stand for what JSON has no form for."""


def encode_tagged(values: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """ASCII JSON for texts, numbers, None, bytes, lists, tuples, mappings with text keys. Raises MalformedValue if too deep."""
    try:
        return (_encoded_at_once(values) or _dump(_encode(values))).encode("ascii")
    except RecursionError:
        raise MalformedValue("values nested too deep to be encoded") from None


def _encoded_at_once(values: Any) -> str | None:
    """The text for most values, with no look at each; None for those that have something in them that JSON has no form for,
    but for bytes, or that could be taken for that."""
    encoder = _ENCODER
    encoder.found = 0
    try:
        text = encoder.dump(values)
    except ValueError:
        return None
    # Inside a string a quotation mark has a backslash before it: these are objects.
    unmarked = text.count('{"b64":') == encoder.found and '{"float":' not in text and '{"plain":' not in text
    return text if unmarked else None


class _Encoder(threading.local):
    """An encoder that marks bytes and counts them. Each thread has its own, made once."""

    def __init__(self) -> None:
        self.found = 0
        self.dump = json_encoder(ensure_ascii=True, default=self._marked)

    def _marked(self, value: Any) -> Any:
        if not isinstance(value, bytes):
            return dict(value)
        self.found += 1
        return {"b64": b2a_base64(value, newline=False).decode("ascii")}


_ENCODER = _Encoder()


def _dump(values: Any) -> str:
    return json_encoder(ensure_ascii=True)(values)


def decode_tagged(raw: bytes) -> dict[str, Any]:
    """The values behind ``encode_tagged``; a tuple comes back as a list. Raises MalformedValue for any other text."""
    try:
        values = _decode(load_json(raw))
    except RecursionError:
        raise MalformedValue("encoded values are nested too deep") from None
    if not isinstance(values, dict):
        raise MalformedValue("encoded values are not a JSON object")
    return values


def _encode(value: Any) -> Any:
    match value:
        case bytes():
            return {"b64": b2a_base64(value, newline=False).decode("ascii")}
        case float() if value != value or value in (float("inf"), float("-inf")):
            return {"float": str(value)}
        case Mapping():
            encoded = {key: _encode(each) for key, each in value.items()}
            return {"plain": encoded} if len(encoded) == 1 and not MARKS.isdisjoint(encoded) else encoded
        case list() | tuple():
            return [_encode(each) for each in value]
        case _:
            return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        match value:
            case {"b64": str(text)}:
                try:
                    return base64.b64decode(text, validate=True)
                except (binascii.Error, ValueError):
                    raise MalformedValue("encoded bytes are not base64") from None
            case {"float": ("nan" | "inf" | "-inf") as text}:
                return float(text)
            case {"plain": dict(plain)}:
                return {key: _decode(each) for key, each in plain.items()}
    return {key: _decode(each) for key, each in value.items()}
