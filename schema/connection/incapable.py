"""Incapable: what a server can't do that ferryman needs, in one sentence, from the error reply that says it in its own words.

Only what no retry can mend: scripts that it does not run, commands that it does not know, keys that it spreads over slots. Pure
but for the question for the server's version. Called by ``call.run``, ``connect.server_errors`` and the transport's connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import redis

from ..errors import ServerError, UsageError

VERSION = re.compile(r"^(\w+)_version:(\S+)", re.MULTILINE)
BRANDS = {
    "redis": "Redis",
    "valkey": "Valkey",
    "dragonfly": "Dragonfly",
    "kvrocks": "Kvrocks",
    "garnet": "Garnet",
    "keydb": "KeyDB",
}
"""Who says his own version in INFO; most say one of Redis, too."""

_UNKNOWN = re.compile(r"(?:unknown|unsupported) (?:redis )?command:?,? *[`'\"]?(\w*)", re.IGNORECASE)


class Incapable(ServerError, redis.exceptions.ResponseError):
    """The server lacks something that ferryman needs. Nothing was stored."""


def explained(error: Exception, info: Callable[[], Any]) -> Exception:
    """The error itself, or Incapable in its place. ``info``: asks INFO server, and may fail."""
    reason = lacks(str(error)) if isinstance(error, redis.exceptions.ResponseError) else None
    if reason is None or isinstance(error, (Incapable, redis.exceptions.NoScriptError)):
        return error
    return Incapable(f"{_server(info)} {reason}")


def lacks(text: str) -> str | None:
    """What an error reply says the server lacks; None if it says something else."""
    lower = text.lower()
    if "undeclared key" in lower:
        return (
            "lets scripts use no keys but those they name, and ferryman's make keys from names that they find; "
            "start Dragonfly with --default_lua_flags=allow-undeclared-keys, or use Redis or Valkey"
        )
    if "hash to the same slot" in lower or "non local key" in lower:
        return (
            "keeps its keys in slots, as a cluster does: write ferryman+cluster:// (a proxy hides that: go past it to the nodes)"
        )
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        return None
    command = unknown[1].upper()
    if "script" in lower.partition("with args")[0] or "lua" in lower.partition("with args")[0]:
        return "is too old: ferryman's scripts use a command that it does not know; Redis 6.2 or newer, or Valkey, is needed"
    if command in ("EVALSHA", "EVAL"):
        return f"runs no Lua scripts ({command} is unknown to it, or renamed), and ferryman needs them: use Redis or Valkey"
    return f"does not know {command or 'a command'}, or it is renamed, and ferryman needs it"


def info_text(client: redis.Redis) -> str:
    """What INFO says of the server, from a client that has taken it apart."""
    return "\n".join(f"{name}:{value}" for name, value in client.info("server").items())


def _server(info: Callable[[], Any]) -> str:
    """The server by name and version, as far as it says them. INFO may be denied, or unknown too."""
    try:
        reply = info()
    except (redis.exceptions.RedisError, UsageError):  # UsageError: a cluster has no one server to ask
        return "this server"
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    versions = {brand: version for brand, version in VERSION.findall(text) if brand in BRANDS}
    if not versions:
        return "this server"
    brand = next((name for name in versions if name != "redis"), "redis")
    return f"this server ({BRANDS[brand]} {versions[brand].removeprefix('df-').removeprefix('v')})"
