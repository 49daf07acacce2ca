"""The message frame: how a broker message stands in one hash field.

A JSON head, a newline, the raw body. JSON text never contains a raw newline, so the first one splits; the body needs no
base64, and ``redis-cli HGET … message`` stays readable. This is the only place that knows which JSON library is used. It
never decodes a body. Called by the transport, the family's reader and the writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..errors import MalformedValue, UsageError
from ..text import UNREAD, load_at_once, show

Default = Callable[[Any], Any]
"""Gives the JSON form of a value that JSON has none for; raises TypeError where there is none either."""


def encode(head: Mapping[str, Any], body: bytes, default: Default | None = None) -> bytes:
    """The frame of a message. ``head`` holds ``content-type``, ``content-encoding``, ``headers`` and ``properties``.

    Raises UsageError if the head has a value that JSON can't express, and ``default`` neither.
    """
    try:
        return _dump(head, default) + b"\n" + body
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a message head must be plain JSON data: {error}") from error


def decode(message: bytes, revive: Callable[[dict[str, Any]], Any] | None = None) -> tuple[dict[str, Any], bytes]:
    """Head and body of a frame; ``revive`` makes values of objects, the inverse of ``default``.

    Raises MalformedValue, and nothing else, for any bytes that are no frame.
    """
    text, newline, body = message.partition(b"\n")
    if not newline:
        raise MalformedValue("a message has no newline after its head")
    try:
        head = UNREAD if revive is not None else load_at_once(text)
        if head is UNREAD:
            head = json.loads(text.decode("utf-8"), object_hook=revive)
    except (ValueError, RecursionError) as error:
        raise MalformedValue(f"a message's head is no JSON: {show(str(error))}") from error
    if not isinstance(head, dict):
        raise MalformedValue(f"a message's head is a JSON {type(head).__name__}, not an object")
    return head, body


@lru_cache(maxsize=16)
def _encoder(default: Default | None, ensure_ascii: bool = False) -> Callable[[Any], str]:
    """``json.dumps`` makes one anew for each message."""
    return json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), default=default).encode


def _dump(head: Mapping[str, Any], default: Default | None) -> bytes:
    try:
        return _encoder(default)(head).encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but JSON can escape it.
        return _encoder(default, ensure_ascii=True)(head).encode("ascii")
