"""Render: templates, and the filters by which whatever stands in Redis becomes harmless, readable text.

Jinja escapes HTML. Beside that, no expression of a template puts a character out that can't be seen: control characters, escape
sequences of terminals, marks that turn the direction of writing and halves of letters stand as escapes (``schema/text.py``,
``show``). Pure but for reading the templates. Called by ``view.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any
from unicodedata import category
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ...schema.errors import MalformedValue
from ...schema.text import load_json, printable_json, show, to_bytes
from ..duration import largest_units

LONGEST = 2_000
"""Characters of one text that is no payload."""
MOST_SHOWN = 64 << 10
"""Bytes of a payload that a page shows."""
PREVIEW = 160
MOST_PREVIEWED = 16 << 10
"""Bytes of a payload of which a list shows what it means."""
MOST_PARSED = 256 << 10
"""Longer JSON is shown as it is."""

_INVISIBLE = re.compile(r"[^\n\t\x20-\x7e]")


def visible(value: Any) -> Any:
    """A value as an expression puts it out: text without what can't be seen, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Markup | Link):
        return value
    if isinstance(value, bytes | str):
        return show(value, LONGEST)
    return value


def has_invisible(text: str) -> bool:
    """Whether ``several_lines`` would show a character otherwise than as itself."""
    return any(not found[0].isprintable() for found in _INVISIBLE.finditer(text))


class Link(str):
    """A path with a query. All of it is printable ASCII, so it is never cut or escaped again."""

    __slots__ = ()

    def replace(self, *arguments: Any) -> Link:
        """Return the link with another path: Jinja's filter ``replace`` calls this."""
        return Link(super().replace(*arguments))


def exact(value: str) -> Markup:
    """Text for the value of an input, which a form sends back as it is: HTML's own references for characters that can't be seen.

    HTML has no references for control characters and halves of surrogate pairs: those are shown as everywhere else.
    """
    return Markup(_INVISIBLE.sub(lambda found: _reference(found[0]), str(escape(value))))


def _reference(character: str) -> str:
    if character.isprintable():
        return character
    return _escaped(character) if category(character) in ("Cc", "Cs") else f"&#x{ord(character):x};"


def several_lines(text: str) -> Markup:
    """Text of any length with its line ends, for ``<pre>``; all else that can't be seen as escapes."""
    return escape(_INVISIBLE.sub(lambda found: found[0] if found[0].isprintable() else _escaped(found[0]), text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def number(value: float | None) -> str:
    """A count with its thousands apart; a dash for one that is not known."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def moment(ms: int | None) -> Markup:
    """A time in UTC; a number that is no date stays a number."""
    if ms is None:
        return Markup("–")
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return escape(str(ms))
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%S}Z", f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}", f"{at:%Y-%m-%d %H:%M:%S}"
    )


def age(ms: float | None) -> str:
    """A length of time in its two largest units; a dash for one that is not known."""
    if ms is None:
        return "–"
    if ms < 0:
        return "0 s"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 10_000 else " ".join(f"{number} {unit}" for number, unit in largest_units(ms))


def size(number_of_bytes: float | None) -> str:
    """A number of bytes in a unit that leaves few digits."""
    if number_of_bytes is None:
        return "–"
    for unit in ("bytes", "KB", "MB", "GB"):
        if number_of_bytes < 1024 or unit == "GB":
            return f"{number_of_bytes:,.0f} {unit}" if unit == "bytes" else f"{number_of_bytes:,.1f} {unit}"
        number_of_bytes /= 1024
    raise AssertionError


def pretty(raw: bytes) -> str | None:
    """JSON with indentation; None for bytes that are none, or that are too long for it."""
    if len(raw) > MOST_PARSED:
        return None
    try:
        return indented(load_json(raw))
    except (MalformedValue, RecursionError):
        return None


def indented(value: Any) -> str:
    """A value as JSON of several lines. A form that sends it back gives the same value, whatever is in its strings."""
    return printable_json(json.dumps(value, ensure_ascii=False, indent=2))


def preview(raw: bytes | None) -> str:
    """The beginning of a payload in one line: of a Celery message its arguments as in a call, of other JSON what it means."""
    if raw is None:
        return ""
    if len(raw) > MOST_PREVIEWED:
        return as_text(raw, PREVIEW)
    try:
        value = load_json(raw)
    except (MalformedValue, RecursionError):
        return as_text(raw, PREVIEW)
    match value:
        case [list() as args, dict() as kwargs, dict()]:
            words = [_dumped(each) for each in args] + [f"{name}={_dumped(each)}" for name, each in kwargs.items()]
            return ", ".join(words)[:PREVIEW]
    return _dumped(value)[:PREVIEW]


def _dumped(value: Any) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False))


def as_text(raw: bytes, most: int = MOST_SHOWN) -> str:
    """The beginning of any bytes as text; bytes that are no UTF-8 as escapes."""
    return raw[:most].decode("utf-8", "backslashreplace")


def cell(*names: str) -> str:
    """The name of a cell that live numbers go to: letters and digits, whatever the names are."""
    return blake2b("\0".join(names).encode("utf-8", "surrogateescape"), digest_size=9).hexdigest()


def link(path: str, parameters: Mapping[str, Any]) -> Link:
    """A path with a query, in which each name gives back exactly the bytes that it has in Redis. Nothing of what is empty."""
    said = {name: value for name, value in parameters.items() if value is not None and (value != "" or name == "prefix")}
    words = ["=".join(quote(to_bytes(str(each)), safe="") for each in pair) for pair in said.items()]
    return Link(f"{path}?{'&'.join(words)}" if words else path)


@cache
def environment() -> Environment:
    """The templates, compiled when they are first used."""
    found = Environment(
        loader=PackageLoader("ferryman.cli.ui", "templates"),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {each.__name__: each for each in (number, moment, age, size, preview, several_lines, exact)}
    found.globals |= {"cell": cell}
    return found
