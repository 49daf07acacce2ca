"""A look at a keyspace before the first write: whether it is bee's, and of a version that can be served.

Served are bee's head, and 0.0.4 and 0.0.5, whose scripts its own get on with. Not those before: their time is their clients',
their errors stand in another field, their locks end otherwise. Called by ``live.py``.
"""

from __future__ import annotations

from typing import Any

from ...schema.errors import KeyspaceRefused
from ...schema.text import show, to_bytes, to_text
from .. import lua_json
from .keys import layout

KEYS_TO_SEE = 500
"""So many keys are looked at, wherever they stand."""


def refuse_others(prefix: str, reply: Any) -> None:
    """Raises KeyspaceRefused for a keyspace that can't be served; ``reply`` is that of ``look.lua``."""
    if reply[0] == b"denied":
        if b"READONLY" in reply[1]:
            raise KeyspaceRefused("this server is a read-only replica: give the address of the master")
        raise KeyspaceRefused(f"nothing can be written beside the keys of bee: {show(reply[1])}")
    options, scripts, *keys = reply
    if options and lua_json.as_object(options) is None:
        raise KeyspaceRefused(
            f"{prefix}:str:hive:options is no JSON object: none of bee's own scripts runs. Delete it, and connect a hive"
        )
    if scripts not in (b"none", b"hash"):
        raise KeyspaceRefused(f"{prefix}:scripts is a {to_text(scripts)}, not bee's table of scripts: this prefix is not bee's")
    for key, redis_type, job_options, has_old_error in keys:
        if layout(prefix).parse(key, to_text(redis_type)) is None:
            raise KeyspaceRefused(
                f"the key {show(key)!r} ({to_text(redis_type)}) is not bee's: another system writes under the prefix {prefix!r}"
            )
        if has_old_error or (key.startswith(to_bytes(f"{prefix}:h:jobs:")) and _is_old(job_options)):
            raise KeyspaceRefused(
                f"the job {show(key)!r} was made by bee 0.0.3 or older, whose workers and clients can't be served: run a newer "
                "bee, or migrate the jobs"
            )


def _is_old(options: bytes) -> bool:
    """Whether these are options of a job of 0.0.3 or older."""
    return b'"timeout"' in options and b'"preferredHostname"' not in options
