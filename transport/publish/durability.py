"""Durability: what a publish waits for beyond the server's own reply, by the option ``durability``.

The server is asked in the same round trip (WAIT, WAITAOF). A publish that could not be confirmed in time is stored nevertheless,
and repeating it, as kombu does after any connection error, stores nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
from attrs import frozen

from ...schema.connection.call import Command
from ...schema.errors import UsageError
from ..connection.link import AnyCall, ServerLink
from ..errors import NotDurable

MARGIN = 1.0
"""Seconds before the socket timeout (at most half of it) at which the server gives up waiting: its answer must come in time."""


@frozen
class Durability:
    """A promise: so many replicas have it, or it is on the server's disk."""

    option: str
    timeout: float
    """Seconds to wait for an answer, ``socket_timeout``."""

    @property
    def needed(self) -> int:
        """How many must say that they have it; 0: nobody is asked."""
        word, _, number = self.option.partition(":")
        return 0 if word == "local" else int(number or 1)

    @property
    def command(self) -> Command[int]:
        """Asks how many have what this connection has written."""
        ms = round(max(self.timeout - MARGIN, self.timeout / 2) * 1000)
        if self.option == "fsync":
            return Command(("WAITAOF", 1, 0, ms), lambda reply: int(reply[0]))
        return Command(("WAIT", self.needed, ms), int)

    def run_all(self, link: ServerLink, calls: Sequence[AnyCall]) -> list[Any]:
        """Sends calls that store something, and waits until enough have it.

        Raises NotDurable if that took too long, UsageError where the server can't promise it, and connection errors.
        """
        if not self.needed:
            return link.run_all(calls)
        try:
            results, reached = link.run_confirmed(calls, self.command)
        except redis.exceptions.ResponseError as error:
            if "WAIT" not in str(error).upper():
                raise
            raise UsageError(
                f"the server can't promise durability={self.option} ({error}): fsync needs Redis 7.2 or Valkey and appendonly yes"
            ) from error
        if reached < self.needed:
            raise NotDurable(
                f"stored, but not confirmed in time: durability={self.option}, and {reached} of {self.needed} have it; "
                "repeating the publish is safe"
            )
        return results
