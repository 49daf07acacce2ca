"""The family's Lua scripts, read from ``lua/`` once each.

One file is one transition. Files that begin with an underscore are pieces for all scripts of their kind, which a script's name
gives. A piece consists of nothing but comments and ``local`` definitions, and a script includes only those definitions that it
uses: every call of a script runs through all of it, and making functions that nobody calls costs as much as a command or two.
Called by ``queue_scripts.py``, ``exchange.py`` and ``../writer.py``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ...connection.call import Script

_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)
_BEGIN = re.compile(r"^(?=local )", re.MULTILINE)
_NAMES = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")
_STANDALONE = ("poll", "publish_one")
"""Scripts with keys of their own: one is about several queues, the other about few keys of one."""


@cache
def script(name: str) -> Script:
    """The script of the transition ``lua/<name>.lua`` with what it needs of the pieces."""
    text = _read(name)
    for definition in reversed([each for piece in _pieces(name) for each in definitions(piece)]):
        if any(re.search(rf"\b{defined}\b", text) for defined in names(definition)):
            text = definition + text
    return Script(f"native.{name}", text)


def _pieces(name: str) -> tuple[str, ...]:
    kind = name.partition("_")[0]
    if kind in ("exchange", "fanout"):
        return "_common", f"_{kind}"
    return ("_common", "_leases") if name in _STANDALONE else ("_common", "_queue", "_leases")


def definitions(piece: str) -> list[str]:
    """A piece's definitions in their order, each with its last line end."""
    return [text for text in _BEGIN.split(_read(piece)) if text]


def names(definition: str) -> list[str]:
    """What a definition defines. Raises ValueError for text that is none."""
    found = _NAMES.match(definition)
    if found is None:
        raise ValueError(f"not a local definition: {definition!r}")
    return found[1].split(", ")


def _read(name: str) -> str:
    """A file's Lua without its comments, which may name what the code does not use."""
    return _COMMENTS.sub("", files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")).lstrip()
