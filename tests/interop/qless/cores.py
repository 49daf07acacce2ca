"""The cores of qless themselves, as their packages ship them: one Lua script each, sent with the time that a test says.

qless-py's of 2013 is mended in one word, without which servers since Redis 6.2.7 refuse it: it hung a helper on Lua's own table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import redis
from attrs import frozen
from ferryman.compat.qless.live import Core

from ...support.pypi import folder_of

PACKAGES: Mapping[Core, tuple[str, str]] = {"unified": ("qless-py", "0.11.4"), "reqless": ("reqless", "0.13.3")}
"""The package that brings each core."""
SCRIPTS: Mapping[Core, str] = {"unified": "qless/qless-core/qless.lua", "reqless": "reqless/lua/qless.lua"}


@cache
def script(core: Core) -> str:
    """The text of a core."""
    text = (folder_of(*PACKAGES[core]) / SCRIPTS[core]).read_text("utf-8")
    return mended(text) if core == "unified" else text


def mended(text: str) -> str:
    """qless-py's core, such that Redis takes it."""
    return text.replace("function table.extend(", "local function table_extend(").replace("table.extend(", "table_extend(")


@frozen(eq=False)
class Original:
    """A client of a core, without a clock of its own. Errors are what redis-py raises."""

    server: redis.Redis
    core: Core

    def __call__(self, command: str, now: int, *args: Any) -> Any:
        """Runs a command at a moment, Unix ms."""
        return self.server.register_script(script(self.core))(keys=[], args=[command, repr(now / 1000), *args])

    def json(self, command: str, now: int, *args: Any) -> Any:
        """The same for a command that replies JSON."""
        return json.loads(self(command, now, *args))
