"""Scripts: the Lua files that writers send with EVAL, each family's own and those that several share.

A family's stand in its folder ``lua``, shared ones in ``compat/lua``. Called by each family's ``writer.py``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script(package: str, name: str) -> str:
    """The text of ``lua/<name>.lua`` in a family's package, or else of the shared one. Raises FileNotFoundError for neither."""
    own = files(package).joinpath("lua", f"{name}.lua")
    found = own if own.is_file() else files(__package__).joinpath("lua", f"{name}.lua")
    return found.read_text("utf-8")
