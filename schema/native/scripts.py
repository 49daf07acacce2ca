"""The family's Lua scripts, read from ``lua/`` once each.

One file is one transition. Files that begin with an underscore are pieces that stand before it in every script of their
kind; a script's name tells its kind. Called by ``live.py`` and ``exchange.py``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ..call import Script


@cache
def script(name: str) -> Script:
    """The script of the transition ``lua/<name>.lua`` with the pieces it needs."""
    kind = name.partition("_")[0]
    piece = kind if kind in ("exchange", "fanout") else "queue"
    pieces = [] if name == "look" else [f"_{piece}"]  # which is about several queues
    return Script(f"native.{name}", "\n".join(_read(each) for each in ("_common", *pieces, name)))


def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
