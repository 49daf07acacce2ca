"""Permission: what a server means that refuses something to a user with few rights: which command, which keys, what to grant.

Servers name the command or say that it was some key, each generation in words of its own; whoever has sent it knows the rest.
Called by whatever reads replies (migrations' and the broker's connections) and by ``connect.server_errors``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import redis

from ..text import show, to_text

PAGE = "docs/access.md has the rules"
FEW = 3
"""So many keys are named."""

_IN_SCRIPT = re.compile(r"ACL failure in script|executing the script can't (?:run|access)")
_COMMAND = re.compile(r"'([\w-]+)(?:\|([\w-]+))?' command")
_POSITION_IN_SCRIPT = re.compile(r"\s*script: (?:\w+, )?on @user_script.*|.*@user_script: \d+: ")
_OF_A_CHANNEL = "channel"

_ALL_KEYS = frozenset({"DEL", "UNLINK", "EXISTS", "WATCH"})
_NO_KEY = frozenset(
    {"ACL", "ASKING", "AUTH", "CLIENT", "CLUSTER", "DBSIZE", "EXEC", "HELLO", "INFO", "MULTI", "PING", "PUBLISH", "RANDOMKEY"}
    | {"SCAN", "SCRIPT", "SELECT", "SUBSCRIBE", "TIME", "UNWATCH", "WAIT", "WAITAOF"}
)

Word = bytes | str | int | float


class Forbidden(redis.exceptions.NoPermissionError):
    """The user lacks a right; the text says which, and what to grant."""


class ForbiddenKey(Forbidden):
    """The user may call the command, but not with these keys."""


def is_forbidden(error: BaseException) -> bool:
    """Whether this error, or what it was raised from, says that the user lacks a right."""
    return isinstance(error, redis.exceptions.NoPermissionError) or isinstance(
        error.__cause__, redis.exceptions.NoPermissionError
    )


def explained(error: Any, words: Sequence[Word] = (), script: str | None = None) -> Any:
    """An error reply that says what is missing, if it is about rights; anything else as it is.

    ``words``: the command that was sent, if that is known. ``script``: the name of the Lua script that it runs.
    """
    if not isinstance(error, redis.exceptions.ResponseError) or isinstance(error, Forbidden):
        return error
    text = str(error)
    in_script = _IN_SCRIPT.search(text) is not None
    if not in_script and not isinstance(error, redis.exceptions.NoPermissionError):
        return error
    sent = _text(words[0]).upper() if words else None
    named = _COMMAND.search(text)
    command = "|".join(filter(None, named.groups())) if named else None
    keys = _keys(sent, words)
    caller = f"script {script}" if script and sent in ("EVAL", "EVALSHA") else sent
    said = f"the server says: {show(_POSITION_IN_SCRIPT.sub('', text), 200)}; {PAGE}"
    on_keys = f" on {_listed(keys)}" if keys else ""
    if command is not None:
        by = f" in {caller or 'a script'}" if in_script else ""
        return Forbidden(f"the user may not call {command.upper().replace('|', ' ')}{by}{on_keys}: grant +{command} ({said})")
    if _OF_A_CHANNEL in text and in_script:
        return Forbidden(f"the user may not publish on a channel of {caller or 'a script'}: grant its pattern ({said})")
    if _OF_A_CHANNEL in text and words:
        channel = to_text(_bytes(words[1]))
        return Forbidden(f"the user may not {caller} on channel {show(channel)}: grant &{show(channel)} ({said})")
    if in_script and "access" not in text:
        return Forbidden(f"the user may not call a command of {caller or 'a script'}{on_keys}: grant all that it needs ({said})")
    if not keys:
        return ForbiddenKey(f"the user may not use a key{f' of {caller}' if caller else ''}: grant its pattern ({said})")
    which = f"key {_listed(keys)}" if len(keys) == 1 else f"one of the keys {_listed(keys)}"
    return ForbiddenKey(
        f"the user may not use {which} with {caller}: grant ~{show(keys[0], 120)} or a pattern that fits it ({said})"
    )


def explained_each(replies: Sequence[Any], commands: Sequence[Sequence[Word]]) -> list[Any]:
    """``explained`` of the reply to each of these commands."""
    return [explained(reply, words) for reply, words in zip(replies, commands, strict=True)]


def _keys(command: str | None, words: Sequence[Word]) -> list[bytes]:
    if command is None or command in _NO_KEY:
        return []
    if command in ("EVAL", "EVALSHA"):
        return [_bytes(word) for word in words[3 : 3 + int(words[2])]]
    if command in _ALL_KEYS:
        return [_bytes(word) for word in words[1:]]
    if command == "BLPOP":
        return [_bytes(word) for word in words[1:-1]]
    if command == "XREAD":
        upper = [_text(word).upper() for word in words]
        streams = words[upper.index("STREAMS") + 1 :]
        return [_bytes(word) for word in streams[: len(streams) // 2]]
    return [_bytes(word) for word in words[2 if command == "OBJECT" else 1 :][:1]]


def _listed(keys: Sequence[bytes]) -> str:
    return ", ".join(show(key, 120) for key in keys[:FEW]) + (" …" if len(keys) > FEW else "")


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")


def _text(word: Word) -> str:
    return to_text(_bytes(word))
