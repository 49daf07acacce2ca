"""Bytes shown as text: how keys, members and payloads of any content stand in JSON and in messages.

Redis values are bytes and may be anything. Inside the program a name that came from a key is text decoded with
``surrogateescape``, so that encoding it again gives the same key; on the way out it must become valid JSON.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import MalformedValue

try:
    import orjson
except ImportError:  # only faster
    orjson = None  # type: ignore[assignment]

Encoder = Callable[[Any], str]

MAX_JSON_DEPTH = 500
"""Deeper JSON than this is treated as text: Python's own limit differs by version, and nobody's payload is so deep."""

UNREAD = object()
_NOT_ASCII = re.compile(r"[^\n\r\t\x20-\x7e]")
_DIGITS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else ord(" ") for byte in range(256))
_TOO_LONG = b"0" * 19
"""orjson rounds whole numbers that 64 bits don't hold: these have so many digits. (A fraction may have them too.)"""


def to_text(raw: bytes) -> str:
    """Text that ``to_bytes`` turns back into exactly ``raw``, whatever the bytes are."""
    return raw.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """The bytes behind a text made by ``to_text``; a lone surrogate that never was a byte is kept in its 3-byte form."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def show(raw: bytes | str, limit: int = 200) -> str:
    """One short printable line for messages: no control characters, no invalid text, at most ``limit`` characters."""
    text = raw if isinstance(raw, str) else raw[: 4 * limit].decode("utf-8", "backslashreplace")
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text[:limit])
    return line if len(text) <= limit else line + "…"


def parse_flag(value: object) -> bool:
    """True or false, as people write them. Raises ValueError."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError("must be true or false")
    return words[str(value).lower()]


EARLIEST_TIME = 100_000_000_000
"""Unix ms, March 1973. What stands below where a time should is a priority, a count, or nothing."""

_UNITS = ((86_400_000, "days", 2), (3_600_000, "h", 2), (60_000, "min", 2), (1000, "s", 0))


def plural(number: int, noun: str) -> str:
    """The noun for so many, where that takes no more than an s: ``job``, ``jobs``."""
    return noun if number == 1 else f"{noun}s"


def span(ms: float) -> str:
    """A length of time of ``ms`` milliseconds for people, rounded, in one unit: ``90 s``, ``5 h``, ``12 days``."""
    if not math.isfinite(ms):
        return "an endless time"
    unit, name = next((unit, name) for unit, name, least in _UNITS if abs(ms) >= least * unit)
    return f"{ms / unit:.0f} {name}"


def ago(moment: float, now_ms: float) -> str:
    """How long ago a moment was (both Unix ms), for people: ``3 h ago``; or that it is none: ``at 0, which is no time``."""
    return f"{span(now_ms - moment)} ago" if moment >= EARLIEST_TIME else f"at {moment:g}, which is no time"


def load_json(raw: bytes) -> Any:
    """The value of a JSON text.

    Raises MalformedValue for everything that is not strict JSON in UTF-8, NaN and too deep nesting included.
    """
    value = load_at_once(raw)
    return _decoded(raw, lambda: _DECODER.decode(raw.decode("utf-8"))) if value is UNREAD else value


def _decoded(raw: bytes, decode: Callable[[], Any]) -> Any:
    if raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH and _bracket_depth(raw) > MAX_JSON_DEPTH:
        raise MalformedValue(f"JSON nested more than {MAX_JSON_DEPTH} deep")
    try:
        return decode()
    except (ValueError, RecursionError) as error:
        raise MalformedValue(f"not JSON: {show(str(error))}") from None


def load_at_once(raw: bytes) -> Any:
    """The value of most JSON texts, at a quarter of the cost; UNREAD for the others, and for what is no JSON."""
    if orjson is None or raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH or _TOO_LONG in raw.translate(_DIGITS):
        return UNREAD
    try:
        return orjson.loads(raw)
    except ValueError:
        # What it accepts is strict JSON, with the same value; what it refuses may be for limits of its own.
        return UNREAD


def dump_at_once(value: Any) -> bytes:
    """A value of ``load_at_once`` as JSON without spaces; empty where it is nested too deep for that."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""


def is_json(raw: bytes | None) -> bool:
    """Whether ``load_json`` would find a value."""
    if raw is None:
        return False
    try:
        load_json(raw)
    except MalformedValue:
        return False
    return True


def not_json(raws: Sequence[bytes]) -> list[int]:
    """The indexes of the texts that are no JSON, as ``is_json`` has it; all at once is quicker than one by one."""
    if orjson is not None:
        # A text of so few bytes can't be nested too deep.
        short = [raw for raw in raws if len(raw) <= MAX_JSON_DEPTH]
        with contextlib.suppress(ValueError):
            deque(map(orjson.loads, short), maxlen=0)
            return [index for index, raw in enumerate(raws) if len(raw) > MAX_JSON_DEPTH and not is_json(raw)]
    return [index for index, raw in enumerate(raws) if not is_json(raw)]


def load_loose_json(raw: bytes) -> Any:
    """The same for writers that are less strict: NaN and infinity are numbers, and bytes that are no UTF-8 stand as ``to_text``.

    Raises MalformedValue for everything else that is not JSON.
    """
    value = load_at_once(raw)
    return _decoded(raw, lambda: _LOOSE_DECODER.decode(to_text(raw))) if value is UNREAD else value


def jsonable(value: Any) -> Any:
    """``value`` with every byte string and every text that is not valid Unicode in a form that JSON can hold.

    Bytes that are UTF-8 stand as text, other bytes as ``{"b64": …}``.
    """
    match value:
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return {"b64": base64.b64encode(value).decode("ascii")}
        case str():
            return value if is_unicode(value) else jsonable(to_bytes(value))
        case Mapping():
            return {_json_key(key): jsonable(each) for key, each in value.items()}
        case tuple() | list():
            return [jsonable(each) for each in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case _:
            return value


def payload_json(raw: bytes | None) -> Any:
    """A payload for JSON output: JSON text as that value, other UTF-8 text as a string, other bytes as ``{"b64": …}``."""
    if raw is None:
        return None
    try:
        return jsonable(load_json(raw))
    except MalformedValue:
        return jsonable(raw)


def dump_json(value: Any) -> str:
    """One printable line of JSON for ``value`` passed through ``jsonable``."""
    return printable_json(json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def printable_json(text: str) -> str:
    """A JSON text with the same value, in which characters that can't be seen are escapes.

    Control characters, marks that change the direction of writing and line separators could deceive a reader or end a line.
    """
    return text if text.isprintable() else _NOT_ASCII.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    # Only inside strings can such a character be in JSON, but for line ends and tabs, which are not matched.
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def _json_key(key: Any) -> str:
    if isinstance(key, bytes):
        key = to_text(key)
    text = str(key)
    return text if is_unicode(text) else "b64:" + base64.b64encode(to_bytes(text)).decode("ascii")


def is_unicode(text: str) -> bool:
    """Whether a text has a form in UTF-8: one that stands for other bytes (``to_text``) has lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bracket_depth(raw: bytes) -> int:
    """An upper bound of the nesting depth that costs no recursion: brackets inside strings count too."""
    deepest = depth = 0
    for byte in raw.translate(None, delete=_NOT_BRACKETS):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def json_encoder(*, ensure_ascii: bool, default: Callable[[Any], Any] | None = None) -> Encoder:
    """Makes compact JSON of any value, as ``json.dumps`` with these settings and no NaN, but for what that prepares each time.

    It raises ValueError, TypeError or RecursionError for what has no form in JSON.
    """
    plain = json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False, default=default)
    make: Any = vars(json.encoder).get("c_make_encoder")
    if make is None:  # not CPython
        return plain.encode
    quoted = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    chunks = make(None, plain.default, quoted, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


# json.loads would make a new decoder for each text.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_LOOSE_DECODER = json.JSONDecoder(strict=False)
