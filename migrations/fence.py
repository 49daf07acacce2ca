"""Fence: what must still be true at the moment in which a batch of writes is applied.

A task that its driver gave up may live on and write later: after another attempt, or after the end, when workers have
taken and deleted the very jobs it would bring back. So every batch is one transaction that the server applies only while
the fence holds: WATCH the fence's keys, compare, MULTI … EXEC. In a cluster all keys of both lie in one slot. Called by
store.py.

Either all commands of a transaction are applied or none, but for commands that Redis refuses while it applies them (a key
of another type); those are an error that names the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import redis
from attrs import define, frozen

from ..schema.connection.permission import Forbidden
from ..schema.connection.pipeline import PackedCommands, PipelineConnection, has_errors
from ..schema.connection.slot_map import REDIRECTIONS
from ..schema.errors import ServerError, StaleWriter
from ..schema.family import Command
from ..schema.text import show


@frozen
class Condition:
    """A field of a hash, and the value it must have. None: it must not exist."""

    key: bytes
    field: str
    value: bytes | None


Fence = tuple[Condition, ...]


class PartlyApplied(ServerError):
    """The server refused a command of a transaction while it applied the others."""


MULTI, EXEC = PackedCommands.of([("MULTI",)]), PackedCommands.of([("EXEC",)])


@define
class WatchedFence:
    """The fence that a connection watches since its last transaction, for who sends one after the other: the next under the same
    fence need not ask first. To be used with one client alone."""

    _socket: Any = None
    _fence_check: Sequence[Command] = ()
    _replies: Sequence[Any] = ()

    def note(self, pipe: PipelineConnection, fence_check: Sequence[Command], replies: Sequence[Any]) -> None:
        """Remembers what was replied when the connection last looked."""
        self._socket, self._fence_check, self._replies = pipe.socket, fence_check, replies

    def replies(self, pipe: PipelineConnection, fence_check: Sequence[Command]) -> Sequence[Any] | None:
        """What was replied to the same check, if the connection has watched since then; once."""
        replies = self._replies if self._socket is pipe.socket and self._fence_check == fence_check else None
        self._socket = None
        return replies


def transact(
    pipe: PipelineConnection, fence: Fence, commands: Sequence[PackedCommands], watched: WatchedFence | None = None
) -> list[Any]:
    """Applies all commands at once, if the fence holds, and returns their replies.

    ``watched``: the fence that the last transaction has left watched for this one, and this leaves for the next; without it no
    WATCH is left behind. Raises StaleWriter when the fence has fallen, ServerError naming the key when the server refuses a
    command, and one of REDIRECTIONS when the keys are at another node: nothing is applied then, but for PartlyApplied.
    """
    fence_check = _fence_check(fence)
    following = [] if watched is None else [PackedCommands.of(fence_check)]
    while True:
        _watch(pipe, fence, fence_check, watched)
        replies = pipe.call_packed([MULTI, *commands, EXEC, *following])
        if watched is not None:
            replies, fence_replies = replies[: -len(fence_check)], replies[-len(fence_check) :]
            watched.note(pipe, fence_check, fence_replies)
        results = replies[-1]
        if isinstance(results, list):
            break
        if results is None:  # one of the keys was touched in between: look at the fence again
            continue
        for reply in replies:
            if isinstance(reply, REDIRECTIONS):
                raise reply
        command, reason = _refused(commands, replies[1:-1]) or (None, results)
        raise ServerError(_refusal(command, reason))
    refused = _refused(commands, results)
    if refused is not None:
        raise PartlyApplied(_refusal(*refused))
    return results


def _refused(commands: Sequence[PackedCommands], replies: Sequence[Any]) -> tuple[Command, Exception] | None:
    """The first command to which the reply is an error, and that; None where there is none."""
    if not has_errors(replies):
        return None
    faulty = next(index for index, reply in enumerate(replies) if isinstance(reply, Exception))
    singly = chain.from_iterable(packed.commands() for packed in commands)
    return next(islice(singly, faulty, None)), replies[faulty]


def _fence_check(fence: Fence) -> list[Command]:
    """What watches a fence, and then asks how it stands."""
    watch: Command = ("WATCH", *dict.fromkeys(condition.key for condition in fence))
    return [watch, *(("HGET", condition.key, condition.field) for condition in fence)]


def _watch(pipe: PipelineConnection, fence: Fence, fence_check: Sequence[Command], watched: WatchedFence | None) -> None:
    """WATCHes the fence's keys and compares. Raises StaleWriter, with nothing watched, when the fence has fallen."""
    replies = None if watched is None else watched.replies(pipe, fence_check)
    if replies is None:
        # What was watched for another fence may have been touched, even by this connection.
        _, *replies = pipe.call([("UNWATCH",), *fence_check])
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    for condition, value in zip(fence, replies[1:], strict=True):
        if value != condition.value:
            pipe.ask("UNWATCH")
            raise StaleWriter(
                f"another writer took over, or the migration is finished, or a failover took back what was written "
                f"({show(condition.key)} changed); this one stops"
            )


def _refusal(command: Command | None, reason: Any) -> str:
    if isinstance(reason, redis.exceptions.OutOfMemoryError) or "OOM " in str(reason):
        return "the target's memory is full (maxmemory); make room there, then go on with --resume"
    if isinstance(reason, Forbidden):
        return f"{reason}; when that is mended, go on with --resume"
    text = show(str(reason), 160)
    if command is None:
        what = "a batch"
    else:
        key = command[1] if len(command) > 1 else b""
        what = f"{command[0]!s} {show(key if isinstance(key, bytes | str) else str(key), 120)}"
    return f"the target refuses {what}: {text}; when that is mended, go on with --resume"
