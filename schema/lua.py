"""Assemble Lua scripts from a file and from pieces that several scripts share.

A piece consists of comments and ``local`` definitions. A script gets only the definitions that it uses: each call of a script
runs all of it, and making a function that is not called costs as much as a command or two. Called by
``schema/native/scripts/loader.py`` and ``compat/side.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)
_BEGIN = re.compile(r"^(?=local )", re.MULTILINE)
_NAMES = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")


def read(package: str, name: str) -> str:
    """The text of ``lua/<name>.lua`` in a package, without its comments, which may name what the code does not use.

    Raises FileNotFoundError.
    """
    return _COMMENTS.sub("", files(package).joinpath("lua", f"{name}.lua").read_text("utf-8")).lstrip()


def assemble(text: str, pieces: Iterable[str]) -> str:
    """A script's text, behind those definitions of the pieces, in their order, that it or one of them uses."""
    for definition in reversed([each for piece in pieces for each in definitions(piece)]):
        if any(re.search(rf"\b{defined}\b", text) for defined in names(definition)):
            text = definition + text
    return text


def definitions(piece: str) -> list[str]:
    """The definitions in a piece's text, in their order, each with its last line end."""
    return [text for text in _BEGIN.split(piece) if text]


def names(definition: str) -> list[str]:
    """What a definition defines. Raises ValueError for text that is none."""
    found = _NAMES.match(definition)
    if found is None:
        raise ValueError(f"not a local definition: {definition!r}")
    return found[1].split(", ")
