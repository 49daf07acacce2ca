"""The family's Lua scripts, read from ``lua/`` once each.

One file is one transition. Files that begin with an underscore are pieces for all scripts of their kind, which a script's name
gives (``schema/lua.py``). Called by ``queue_scripts.py``, ``exchange.py`` and ``../writer.py``.
"""

from __future__ import annotations

from functools import cache

from ... import lua
from ...connection.call import Script

_STANDALONE = ("poll", "publish_one")
"""Scripts with keys of their own: one is about several queues, the other about few keys of one."""

_OF_KIND = {
    "take": ("_acks",),
    "ack": ("_acks",),
    "steer": ("_arrivals", "_steering", "_moving"),
    "publish": ("_arrivals",),
    "revive": ("_arrivals",),
    "receive": ("_arrivals",),
    "room": ("_arrivals",),
}
"""Pieces that only the scripts of a kind need."""


@cache
def script(name: str) -> Script:
    """The script of the transition ``lua/<name>.lua`` with what it needs of the pieces."""
    return Script(f"native.{name}", lua.assemble(_read(name), map(_read, _pieces(name))))


def _pieces(name: str) -> tuple[str, ...]:
    kind = name.partition("_")[0]
    if kind in ("exchange", "fanout"):
        return "_common", f"_{kind}"
    if name in _STANDALONE:
        return "_common", "_leases"
    return ("_common", "_queue", "_history", "_leases", *_OF_KIND.get(kind, ()))


def definitions(piece: str) -> list[str]:
    """A piece's definitions in their order, each with its last line end."""
    return lua.definitions(_read(piece))


def _read(name: str) -> str:
    assert __package__
    return lua.read(__package__, name)
