"""A call: what a live family wants said to Redis, without saying it.

Families build calls; the transport, the command line and the tests decide how to send them (now, pipelined, from an
event loop). A call is one Lua script with its keys, its arguments and the function that understands the reply, so a
transition is always one round trip and always atomic. Where one plain command says it all, a Command does, for less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import redis
from attrs import field, frozen

from . import incapable, permission

T = TypeVar("T")

Argument = bytes | str | int | float


@frozen
class Script:
    """One Lua script. ``sha`` is what EVALSHA wants; the text goes over the wire only when the server lacks it."""

    name: str
    text: str = field(repr=False)
    sha: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


@frozen
class Call(Generic[T]):
    """One script run: ``EVALSHA sha len(keys) keys… args…``, and how to read the reply."""

    script: Script
    keys: tuple[bytes, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], T] = field(repr=False)

    @property
    def words(self) -> tuple[Argument, ...]:
        """The command that runs the script if the server knows it already."""
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)

    def eval(self) -> tuple[Argument, ...]:
        """The command that runs the script on any server, and teaches it."""
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)


@frozen
class Command(Generic[T]):
    """One plain command, and how to read the reply. Error replies are the server's own words."""

    words: tuple[Argument, ...]
    parse: Callable[[Any], T] = field(repr=False)


def run(client: redis.Redis, call: Call[T] | Command[T]) -> T:
    """Sends one call over a redis-py client (made with ``decode_responses=False``) and waits for its result.

    Raises what redis-py raises, Incapable for what the server can't do, Forbidden for what the user may not. Family errors are
    raised by ``call.parse``.
    """
    try:
        reply = _reply(client, call)
    except redis.exceptions.ResponseError as error:
        refused = permission.explained(error, call.words, call.script.name if isinstance(call, Call) else None)
        plain = incapable.explained(refused, lambda: incapable.info_text(client))
        if plain is error:
            raise
        raise plain from error
    return call.parse(reply)


def _reply(client: redis.Redis, call: Call[Any] | Command[Any]) -> Any:
    try:
        return client.execute_command(*call.words)
    except redis.exceptions.NoScriptError:
        if isinstance(call, Command):
            raise
        return client.execute_command(*call.eval())
