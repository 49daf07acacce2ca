"""DeadLetters: dead jobs on their way to the dead letter exchange of their queue.

A script can't move a job to another queue, which may be in another cluster slot. So a dead job first stands in dead and in the
queue's outbox; any client that meets it publishes it, with RabbitMQ's ``x-death`` header, and then removes it from the outbox.
Who does so at the same time or again publishes under the same number, and the target stores it once. What no queue takes stays
dead.

Who meets dead letters: a consumer that takes from the queue or rejects, a publisher whose message made others leave, and every
connection that consumes anything: it polls all queues with such an exchange, because perhaps nobody consumes a queue in which
messages only wait for their time to be over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import redis

from ..schema.connection.after_fork import renew_in_children
from ..schema.errors import FerrymanError, MalformedValue
from ..schema.native import codec, keys
from ..schema.native.scripts.publication import Publication
from ..schema.native.scripts.results import DeadLetter, DeadLetterOutbox
from ..schema.text import to_bytes, to_text
from .errors import CONNECTION_ERRORS, BrokerFull
from .message import Content, content, encode_kombu_type
from .publish.sender import OutgoingMessage, Sender
from .session import Session

logger = logging.getLogger("ferryman.transport")

FIRST_POLL = 1.0
"""Seconds after which a consuming connection first asks which queues have a dead letter exchange: not every one lives as long."""
POLL_INTERVAL = 10.0
"""Seconds between such questions."""
RETRY_INTERVAL = 5.0
"""Seconds after which dead letters are tried again that could not be forwarded, because something is damaged."""
FULL_INTERVAL = 1.0
"""Seconds after which dead letters are tried again whose target was full."""
BATCH = 100
"""Dead letters forwarded at once."""

Targets = Callable[[str, str, Mapping[str, Any]], Sequence[str]]
"""The queues behind an exchange, for a routing key and headers."""


class DeadLetters:
    """What one connection knows of queues with a dead letter exchange. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sender = Sender(session, self.mark, creates=False, is_ordered=True)
        self._lock = threading.Lock()
        self._next_poll: dict[str, float] = {}
        """Queue -> when to poll its outbox, on the monotonic clock."""
        self._marked = False
        self._discover_at = time.monotonic() + FIRST_POLL
        self.forwarding: set[str] = set()
        """The queues of this connection's consumers that have a dead letter exchange."""
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may hold the lock."""
        self._lock = threading.Lock()

    def mark(self, queue: str) -> None:
        """There are dead letters in this queue, or may soon be: it is polled from now on."""
        self._next_poll[queue] = 0.0
        self._marked = True

    def forward(self) -> None:
        """Forwards the dead letters of marked queues. Raises connection errors."""
        if self._marked:
            self._poll_due()

    def poll(self) -> None:
        """For consuming connections, from time to time: polls every queue whose time has come. Raises connection errors."""
        now = time.monotonic()
        if now >= self._discover_at:
            self._discover_at = now + POLL_INTERVAL
            for queue in self._session.link.command("SMEMBERS", keys.forwarding(self._session.settings.prefix)):
                self._next_poll.setdefault(to_text(queue), 0.0)
        if self.seconds_left == 0:
            self._poll_due()

    @property
    def seconds_left(self) -> float:
        """Seconds until ``poll`` has something to do."""
        return max(0.0, min([self._discover_at, *list(self._next_poll.values())]) - time.monotonic())

    def _poll_due(self) -> None:
        # Only one thread at a time. What another one has just marked, this one may leave to it.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._marked = False
            now = time.monotonic()
            for queue in [queue for queue, at in list(self._next_poll.items()) if at <= now]:
                self._next_poll[queue] = math.inf
                next_poll = time.monotonic() + self._poll_queue(queue)
                # It may have been marked meanwhile.
                self._next_poll[queue] = min(self._next_poll[queue], next_poll)
                if self._next_poll[queue] == math.inf:
                    del self._next_poll[queue]
        finally:
            self._lock.release()

    def _poll_queue(self, queue: str) -> float:
        """Forwards some dead letters of a queue. Gives the seconds until the next poll; infinite where none can come any more."""
        try:
            outbox = self._session.link.run(self._session.scripts.outbox(queue, limit=BATCH))
            if outbox is None:
                return math.inf
            settled = self._forward(queue, outbox)
            self._session.link.run(self._session.scripts.forwarded(queue, settled))
        except CONNECTION_ERRORS:
            self._next_poll[queue] = 0.0
            raise
        except (FerrymanError, redis.exceptions.ResponseError) as error:
            logger.error("the dead letters of queue %r can't be forwarded, trying again: %s", queue, error)
            return RETRY_INTERVAL
        if len(settled) < len(outbox.dead_letters):
            return FULL_INTERVAL
        if len(settled) == BATCH:
            return 0.0
        return max(0, outbox.next_poll_ms - outbox.now) / 1000

    def _forward(self, queue: str, outbox: DeadLetterOutbox) -> list[tuple[DeadLetter, bool]]:
        """Publishes dead letters, up to the first that can't be stored now. For each: whether a queue has taken it."""
        messages = {
            dead_letter.number: dead_letter_message(queue, dead_letter, outbox, self._targets)
            for dead_letter in outbox.dead_letters
        }
        sendable = [message for message in messages.values() if message is not None]
        try:
            unroutable = self._sender.send(sendable)
        except BrokerFull:
            unroutable = []
            for at, message in enumerate(sendable):
                try:
                    unroutable += self._sender.send([message])
                except BrokerFull as error:
                    logger.info("dead letters of queue %r wait until there is room: %s", queue, error)
                    return _settled(outbox.dead_letters, messages, unroutable, sendable[at:])
        return _settled(outbox.dead_letters, messages, unroutable)

    def _targets(self, exchange: str, routing_key: str, headers: Mapping[str, Any]) -> list[str]:
        return self._session.routes.table(exchange).queues(routing_key, headers) if exchange else [routing_key]


def _settled(
    dead_letters: Iterable[DeadLetter],
    messages: Mapping[int, OutgoingMessage | None],
    unroutable: Sequence[OutgoingMessage],
    waiting: Iterable[OutgoingMessage] = (),
) -> list[tuple[DeadLetter, bool]]:
    gone = {message.publication.id for message in unroutable}
    left = {message.publication.id for message in waiting}
    settled = []
    for dead_letter in dead_letters:
        message = messages[dead_letter.number]
        if message is None or message.publication.id not in left:
            settled.append((dead_letter, message is not None and message.publication.id not in gone))
    return settled


def dead_letter_message(
    queue: str, dead_letter: DeadLetter, outbox: DeadLetterOutbox, targets: Targets
) -> OutgoingMessage | None:
    """A dead job as the message that its dead letter exchange gets; None for one that no queue could use.

    Its expiration is left out, or it would expire again at once. One that comes back to a queue in which it has died, and has not
    been rejected since, goes no further, or it would go round for ever.
    """
    job = dead_letter.job
    try:
        found = content(job.id, queue, job.fields)
    except MalformedValue:
        return None
    properties = dict(found.properties)
    info = properties.get("delivery_info") or {}
    exchange, routing_key = info.get("exchange", ""), info.get("routing_key", queue)
    expiration = properties.pop("expiration", None)
    death = {
        "count": 1,
        "reason": to_text(job.fields.get(b"reason", b"")),
        "queue": queue,
        "time": dead_letter.died_at // 1000,
        "exchange": exchange,
        "routing-keys": [routing_key],
    }
    if expiration is not None:
        death["original-expiration"] = expiration
    target = routing_key if outbox.routing_key is None else outbox.routing_key
    headers = with_death(found.headers, death)
    if any(is_cycle(headers["x-death"], each) for each in targets(outbox.exchange, target, found.headers)):
        return None
    job_id = f"dead:{quote(to_bytes(queue), safe='')}-{dead_letter.number}"
    properties |= {"delivery_info": {**info, "exchange": outbox.exchange, "routing_key": target}, "delivery_tag": job_id}
    publication = Publication(job_id, _frame(found, headers, properties), job.priority)
    return OutgoingMessage(publication, outbox.exchange, target, is_repeated=True, headers=found.headers)


def _frame(found: Content, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> bytes:
    head = {
        "content-type": found.content_type,
        "content-encoding": found.content_encoding,
        "headers": headers,
        "properties": properties,
    }
    return codec.encode(head, found.body, encode_kombu_type)


def with_death(headers: Mapping[str, Any], death: Mapping[str, Any]) -> dict[str, Any]:
    """Headers with one death more, as RabbitMQ writes them: the last one first, those of one queue and reason counted."""
    given = headers.get("x-death")
    deaths = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    same = next((each for each in deaths if (each.get("queue"), each.get("reason")) == (death["queue"], death["reason"])), None)
    if same is not None:
        deaths.remove(same)
        number = same.get("count")
        death = {**death, "count": number + 1 if isinstance(number, int) else 1}
    last_death = {name: death[name] for name in ("reason", "queue", "exchange")}
    first = {f"x-first-death-{name}": value for name, value in last_death.items()}
    last = {f"x-last-death-{name}": value for name, value in last_death.items()}
    return {**first, **headers, **last, "x-death": [death, *deaths]}


def is_cycle(deaths: Sequence[Mapping[str, Any]], queue: str) -> bool:
    """Whether a message that goes to this queue now has died there before and has not been rejected since."""
    for death in deaths:
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False
