"""Bulk: sends many commands in few, one batch ahead of the replies, into a keyspace that nobody else uses yet.

Commands that add to the same key go out as one, so that a batch has hardly more commands than jobs; while the server works at
one batch, the next is made. Nothing is fenced here: that is ``partition_writer.py``. Called by ``generate.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..schema.connection.pipeline import PipelineConnection
from ..schema.errors import ServerError
from ..schema.family import Command
from ..schema.text import show

Word = bytes | str | int | float

BATCH_COMMANDS = 2000
"""A batch is sent when it has this many commands, before they are joined."""

ADDING = frozenset({"HSET", "LPUSH", "RPUSH", "SADD", "ZADD"})
"""Commands of which two for one key are one with the words of both."""

OPTIONS = frozenset({"NX", "XX", "GT", "LT", "CH"})
"""What may stand in a ZADD before the first score."""

OF_MANY_KEYS = frozenset({"DEL", "EVAL"})
"""Commands that concern more than the key after their name."""


class Bulk:
    """What is written over one connection. Nothing is sure before ``finish`` has returned."""

    def __init__(self, pipe: PipelineConnection) -> None:
        self._pipe = pipe
        self._waiting: list[Command] = []
        self._sent: Sequence[Command] = ()

    def put(self, commands: Iterable[Command]) -> bool:
        """Sends the commands sooner or later; True if that was now. Raises ServerError if the server refused an earlier one."""
        self._waiting += commands
        if len(self._waiting) < BATCH_COMMANDS:
            return False
        self._send()
        return True

    def finish(self) -> None:
        """Sends the rest, and returns when the server has done everything. Raises ServerError if it refuses a command."""
        self._send()
        self._check()

    def _send(self) -> None:
        batch = joined(self._waiting)
        self._waiting.clear()
        self._pipe.send(batch)
        self._check()
        self._sent = batch

    def _check(self) -> None:
        """Reads the replies to the batch before."""
        sent, self._sent = self._sent, ()
        for command, reply in zip(sent, self._pipe.replies(len(sent)), strict=True):
            if isinstance(reply, Exception):
                raise ServerError(f"the server refuses {command[0]!s} {show(str(command[1]), 80)}: {show(str(reply), 160)}")


def joined(commands: Iterable[Command]) -> list[Command]:
    """Commands with the same effect, as few as can be. Those for one key stay in their order."""
    result: list[list[Word]] = []
    latest: dict[Word, tuple[Command, list[Word]]] = {}  # by key: what a command must begin with to join the last one
    for command in commands:
        name, key = command[0], command[1]
        if name in ADDING:
            end = 2
            while name == "ZADD" and command[end] in OPTIONS:  # these count for all its members
                end += 1
            head = command[:end]
            before = latest.get(key)
            if before is not None and before[0] == head:
                before[1].extend(command[end:])
            else:
                words = list(command)
                latest[key] = (head, words)
                result.append(words)
        else:
            if name in OF_MANY_KEYS:
                latest.clear()
            else:
                latest.pop(key, None)
            result.append(list(command))
    return [tuple(words) for words in result]
