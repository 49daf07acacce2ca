"""Wakeups: waiting until one of several quiet queues may have something.

On one server it is a blocking pop of the queues' wake tokens. A token carries no job: losing one costs time, never a message.
The pop also waits on a key that is private to this connection: pushing to it ends the wait at once, when queues are added. On a
cluster the nodes announce tokens (``tracking.py``), and nothing is popped. Called by the poller.
"""

from __future__ import annotations

from typing import Protocol
from uuid import uuid4

import redis

from ...schema.connection.call import Command
from ...schema.native import keys
from ..connection.blocking_connection import BLOCK, BlockingConnection
from ..session import Session
from .tracking import Tracker


class Wakeups(Protocol):
    """What tells the poller when to poll a quiet queue."""

    poll_interval: float
    """Seconds after which a quiet queue should be polled even though nothing has woken it."""
    polls_together: bool
    """Whether several queues can be polled in one call."""

    def wait(self, wanted: frozenset[str], seconds: float) -> None:
        """Waits for these queues, or goes on waiting for them, for about so many seconds. Raises connection errors."""

    def woken(self) -> list[str]:
        """The queues that may have something now. Raises connection errors."""

    def pass_on(self, queue: str) -> None:
        """A queue was woken here and can't be served: it is to wake somebody else."""

    def sockets(self) -> list[int]:
        """The file descriptors that become readable when a queue has woken."""

    def on_readable(self) -> None:
        """For event loops: one of the sockets is readable, and the next tick will call ``woken``."""

    def close(self) -> None:
        """Ends every wait."""


class TokenWakeups:
    """One server: a blocking pop of tokens."""

    poll_interval = 30.0
    polls_together = True

    def __init__(self, session: Session, blocking: BlockingConnection) -> None:
        self._scripts = session.scripts
        self._link = session.link
        self._blocking = blocking
        self._private = keys.wake(session.settings.prefix, uuid4().hex)
        self._waiting_for: frozenset[str] = frozenset()
        self._interrupted = False

    def wait(self, wanted: frozenset[str], seconds: float) -> None:
        if self._blocking.waiting and not wanted <= self._waiting_for and not self._interrupted:
            self._interrupt()
        if wanted and not self._blocking.waiting:
            timeout = max(0.001, min(BLOCK, seconds))
            tokens = (self._scripts.keys(queue).wake for queue in sorted(wanted))
            self._blocking.wait(timeout, "BLPOP", self._private, *tokens, timeout)
            self._waiting_for = wanted

    def _interrupt(self) -> None:
        """Ends the wait under way, which is for too few queues."""
        push = Command(("RPUSH", self._private, "1"), int)
        expire = Command(("PEXPIRE", self._private, round(BLOCK * 2000)), bool)
        try:
            self._link.run_all([push, expire])
        except redis.exceptions.OutOfMemoryError:
            self._blocking.close()  # a full server takes no wake-up, but it must be drained
        else:
            self._interrupted = True

    def woken(self) -> list[str]:
        if not self._blocking.readable():
            return []
        self._interrupted = False
        popped = self._blocking.receive()
        return [queue for queue in self._waiting_for if popped is not None and self._scripts.keys(queue).wake == popped[0]]

    def pass_on(self, queue: str) -> None:
        """Whoever pops a token must take, or put it back by taking nothing."""
        self._link.run(self._scripts.advance(queue))

    def sockets(self) -> list[int]:
        return self._blocking.sockets()

    def on_readable(self) -> None:
        self._blocking.close_if_idle()

    def close(self) -> None:
        self._blocking.close()


class ClusterWakeups:
    """A cluster: its nodes announce changed keys."""

    poll_interval = 5.0
    """Less than on one server: a slot that has moved to another node is noticed by polling."""
    polls_together = False

    def __init__(self, session: Session, tracker: Tracker) -> None:
        self._scripts = session.scripts
        self._tracker = tracker
        self._queues: dict[bytes, str] = {}
        """Queue by its token."""

    def wait(self, wanted: frozenset[str], seconds: float) -> None:
        self._queues |= {self._scripts.keys(queue).wake: queue for queue in wanted}
        self._tracker.track(self._queues)

    def woken(self) -> list[str]:
        return [self._queues[token] for token in self._tracker.changed(self._queues)]

    def pass_on(self, queue: str) -> None:
        """Every consumer has heard of it; nobody else has to be woken."""

    def sockets(self) -> list[int]:
        return self._tracker.sockets()

    def on_readable(self) -> None:
        """A closed socket is an error at the next tick, which reads from every connection."""

    def close(self) -> None:
        self._tracker.close()
