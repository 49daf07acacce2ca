"""Acks: finished deliveries on their way to the server.

Acks that come in quick succession leave in one call, in an event loop at its next turn, in plain ``drain_events`` when what was
taken together has been handed out. If there is a next take to make, it acks what its own queue has pending, and what others have
goes in the same round trip. At any other time an ack is sent before ``basic_ack`` returns. An event loop keeps acks back for
LINGER while its workers have enough to do, so that a few leave together. No ack waits longer than FLUSH_AFTER: the renewer's
thread sends what a slow callback keeps back.

An ack that the connection may have swallowed is sent again over a fresh one. That is safe: acking twice changes nothing, and
an ack that comes after its lease has lapsed takes back the copy that waits for redelivery.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from ...schema.connection.after_fork import renew_in_children
from ...schema.connection.call import Call
from ...schema.native.scripts.results import Taken, Verdict
from ..errors import CONNECTION_ERRORS
from ..live.foreign_queue import ForeignQueue
from ..session import Session
from .dispatcher import Dispatcher

T = TypeVar("T")

Outcome = tuple[Verdict, ...] | Exception
"""What became of the acks to one queue."""

logger = logging.getLogger("ferryman.transport")

LINGER = 0.002
"""Seconds that an ack may wait for others, to leave with them."""
FLUSH_AFTER = 0.02
"""Seconds after which an ack is sent by the renewer's thread, if nobody else has done so."""
BATCH = 100
"""Acks that leave at once even while messages are being handed out."""
BATCH_BYTES = 64 << 20
"""Acks to messages of so many bytes do the same: freeing them takes the server some ten milliseconds."""

LOST = (
    "job %s of queue %r was acked after its lease had lapsed and it was given to another consumer: "
    "it runs, or has run, twice; raise the option 'lease' if this worker was only slow"
)
LOST_BY_OTHERS = "job %s of queue %r was acked, but it was cancelled, failed or given to others meanwhile"


class AckTarget(Protocol):
    """The channel whose deliveries are acked."""

    session: Session
    dispatcher: Dispatcher
    consumer_id: str

    @property
    def closed(self) -> bool:
        """Whether nobody will see to a link of it that has failed."""


class Acks:
    """The acks of one channel. Thread-safe."""

    def __init__(self, channel: AckTarget, wake_renewer: Callable[[], None]) -> None:
        self._channel = channel
        self._session = channel.session
        self._wake_renewer = wake_renewer
        self.lock = threading.RLock()
        """Held while a message is neither unsettled any more nor pending here yet."""
        self._pending: defaultdict[str, list[str]] = defaultdict(list)
        self._count = 0
        self._bytes = 0
        self._since = 0.0
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may hold the lock."""
        self.lock = threading.RLock()

    def __bool__(self) -> bool:
        """Whether any wait to be sent."""
        return bool(self._count)

    @property
    def are_lingering(self) -> bool:
        """Whether there are some, and none has waited for LINGER yet."""
        return 0 < self._count < BATCH and time.monotonic() - self._since < LINGER

    def add(self, queue: str, job_id: str, size: int = 0) -> None:
        """Acks one job, whose message has so many bytes.

        Raises connection errors, after which the job is acked or will be delivered again.
        """
        with self.lock:
            self._pending[queue].append(job_id)
            self._count += 1
            self._bytes += size
            now = time.monotonic()
            if self._count == 1:
                self._since = now
            if (
                self._count >= BATCH
                or self._bytes >= BATCH_BYTES
                or now - self._since > FLUSH_AFTER
                or not self._channel.dispatcher.is_busy
            ):
                self.flush()
            elif self._count == 1:
                self._wake_renewer()

    def flush(self) -> None:
        """Sends what is pending and waits for the answer.

        Raises connection errors if even a fresh connection fails. The acks stay pending then, for the next call.
        """
        with self.lock:
            if not self._count:
                return
            queues = list(self._pending)
            self._clear(queues, self._send(self._calls(queues)))

    def send_with(self, call: Call[T]) -> T:
        """Sends what is pending together with another call, in one round trip, and gives that one's result.

        Raises connection errors. The acks stay pending then, for ``flush``. Raises the call's own errors too.
        """
        with self.lock:
            return self._send_along(list(self._pending), call)

    def take(self, queue: str, call_for: Callable[[Sequence[str]], Call[Taken]]) -> Taken:
        """Takes from a queue, by a call that first acks the jobs whose ids it gets. What other queues have pending goes along.

        Raises what ``send_with`` raises. If it is not a connection error, the acks of this queue alone stay pending.
        """
        with self.lock:
            acked = self._pending.get(queue, ())
            taken = self._send_along([each for each in self._pending if each != queue], call_for(acked))
            if acked:
                self._clear([queue], [taken.verdicts])
            return taken

    def _send_along(self, queues: Sequence[str], call: Call[T]) -> T:
        *verdicts, result = self._session.link.outcomes([*self._calls(queues), call])
        self._clear(queues, verdicts)
        if isinstance(result, Exception):
            raise result
        return cast(T, result)

    def _calls(self, queues: Sequence[str]) -> list[Call[tuple[Verdict, ...]]]:
        family_of, consumer_id = self._session.family_of, self._channel.consumer_id
        return [family_of(queue).ack(queue, consumer_id, self._pending[queue]) for queue in queues]

    def _clear(self, queues: Sequence[str], verdicts: Sequence[Outcome]) -> None:
        """These queues have nothing pending any more: the server has answered."""
        answered = {queue: self._pending.pop(queue) for queue in queues}
        self._count -= sum(map(len, answered.values()))
        if not self._count:
            self._bytes = 0
        self._report(answered, verdicts)

    def _send(self, calls: list[Call[tuple[Verdict, ...]]]) -> list[Outcome]:
        link = self._session.link
        if link.failed:
            return self._send_afresh(calls)
        try:
            return link.outcomes(calls)
        except CONNECTION_ERRORS as error:
            logger.info("connection lost while acking, trying once more: %s", error)
        if self._channel.closed:
            return self._send_afresh(calls)
        # Nobody but us has met the error, so nobody will replace this link: it must not stay failed.
        link.reopen()
        return link.outcomes(calls)

    def _send_afresh(self, calls: list[Call[tuple[Verdict, ...]]]) -> list[Outcome]:
        """Sends over a connection that ends with it, while kombu replaces the channel's."""
        fresh = self._session.settings.links.link()
        try:
            return fresh.outcomes(calls)
        finally:
            fresh.close()

    def _report(self, pending: dict[str, list[str]], verdicts: Sequence[Outcome]) -> None:
        for (queue, ids), results in zip(pending.items(), verdicts, strict=True):
            if isinstance(results, Exception):
                logger.error(
                    "%s acks to queue %r came to nothing, and what they are for runs again: %s", len(ids), queue, results
                )
                continue
            for job_id, verdict in zip(ids, results, strict=True):
                if verdict == "lost":
                    logger.warning(LOST_BY_OTHERS if type(queue) is ForeignQueue else LOST, job_id, queue)
