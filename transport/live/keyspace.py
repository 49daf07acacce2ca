"""ForeignKeyspace: the keyspace of another system that carries one connection's tasks, beside ferryman's own.

Tasks stand in the other system's queues, so that its producers and workers take part. Everything else is ferryman's own: remote
control, events, replies, broadcasts, bindings, whatever is published that is no task, and temporary queues. This class knows
which queue is where, and makes calls of the family from messages; rules of a family are nowhere in the transport. Called by the
session's users: channels, publishers, revocation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...schema.connection.call import Call, Command
from ...schema.live import ForeignDelivery, ForeignFamily
from ...schema.native.scripts.publication import Publication
from ...schema.native.scripts.queue_scripts import QueueScripts
from ..connection.link import ServerLink
from ..message import Content, content
from ..settings import Settings
from .foreign_queue import ForeignQueue
from .mapping import IDENTITY
from .messages import JobMessages

PIDBOX, EVENTS = ".pidbox", "celeryev"
"""Ends and begins the names of queues that Celery keeps for itself."""

ROUTED = ("direct", "topic")
"""The types of exchanges whose bindings other systems can have as well."""


class ForeignKeyspace:
    """One connection's view of it. Thread-safe."""

    def __init__(self, family: ForeignFamily, settings: Settings, link: ServerLink, scripts: QueueScripts) -> None:
        self.family = family
        self._mapping = settings.mapping or IDENTITY
        self.messages = JobMessages(family, self._mapping, settings.priority_order)
        self._link = link
        self._scripts = scripts
        self._lasting: dict[str, bool] = {}
        self._known: dict[str, tuple[Collection[str] | None, Collection[str] | None]] = {}
        """Queue -> tasks that a consumer knows, and what it may take; of the last one that has asked."""

    # Which queue is where

    def is_lasting(self, queue: str) -> bool:
        """Whether tasks of this queue are the other system's: temporary queues are ferryman's own. Raises connection errors."""
        known = self._lasting.get(queue)
        if known is None:
            known = not _is_control(queue) and self._link.run(self._asks_lasting(queue))
            self._lasting[queue] = known
        return known

    def _asks_lasting(self, queue: str) -> Command[bool]:
        return Command(("HMGET", self._scripts.keys(queue).meta, "expires", "arguments"), _says_lasting)

    def declared(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """This connection has declared a queue."""
        self._lasting[queue] = not (_is_control(queue) or is_temporary(arguments))

    def target(self, queue: str, headers: Mapping[str, Any]) -> str:
        """The queue to which a message with these headers goes. Raises connection errors."""
        is_carried = self.family.carries_messages or headers.get("task")
        return ForeignQueue(queue) if is_carried and self.is_lasting(queue) else queue

    def sides(self, queue: str) -> list[str]:
        """The queues behind a plain name: ferryman's own, and the other system's if it has tasks. Raises connection errors."""
        return [ForeignQueue(queue), queue] if self.is_lasting(queue) else [queue]

    # Routing by the other system's own tables

    def bind(self, queue: str, exchange: str, routing_key: str, exchange_type: str, life_ms: int | None) -> None:
        """Has the other system's producers reach a queue as ours do, if it knows exchanges. Raises connection errors."""
        if exchange_type in ROUTED and self.is_lasting(queue):
            call = self.family.bind(queue, exchange, routing_key, topic=exchange_type == "topic", expires_ms=life_ms)
            if call is not None:
                self._link.run(call)

    def unbind(self, queue: str, exchange: str, routing_key: str, exchange_type: str) -> None:
        """Takes such a binding away. Raises connection errors."""
        call = self.family.unbind(queue, exchange, routing_key, topic=exchange_type == "topic")
        if call is not None and exchange_type in ROUTED:
            self._link.run(call)

    def queues_bound(self, exchange: str, routing_keys: Collection[str]) -> dict[str, Call[tuple[str, ...]]]:
        """For each routing key, what asks to which queues the other system itself sends it; nothing if it knows no exchanges."""
        calls = {key: self.family.queues_bound(exchange, key) for key in routing_keys}
        return {key: call for key, call in calls.items() if call is not None}

    # Jobs in and out

    def puts(self, queue: str, publications: Sequence[Publication]) -> list[Call[str]]:
        """Stores messages as jobs. Sending them again with the same publications stores none twice. Raises UsageError."""
        calls = []
        for at, publication in enumerate(publications):
            found = content(publication.id, queue, {b"message": publication.message})
            producer, _, number = publication.id.rpartition("-")
            # Each place in a batch is a producer of its own, since only a producer's last publication is remembered.
            job = self.messages.new_job(str(queue), found, publication, f"{producer}.{at}@{queue}-{number}")
            calls.append(self.family.put(job))
        return calls

    def replacement(self, queue: str, publication: Publication) -> tuple[bytes, bytes | None]:
        """Payload and extra of the job that a message would become, for one that is tried again. Raises UsageError."""
        found = content(publication.id, queue, {b"message": publication.message})
        job = self.messages.new_job(queue, found, publication._replace(due_ms=None, delay_ms=None), "")
        return job.payload, job.extra

    def content(self, queue: str, job: ForeignDelivery, consumer: str, tasks: Collection[str] | None) -> Content:
        """The message of a job just taken. Raises MalformedValue."""
        return self.messages.content(str(queue), job, consumer, tasks)

    def known(self, queue: str, tasks: Collection[str] | None) -> Collection[str] | None:
        """What ``take`` may give to a consumer that knows these tasks; None: anything."""
        name = str(queue)
        cached = self._known.get(name)
        if cached is None or cached[0] is not tasks:
            known = self._mapping.of(name).known(tasks, name, has_names=self.family.has_names)
            cached = self._known[name] = (tasks, known)
        return cached[1]


def _is_control(queue: str) -> bool:
    return queue.endswith(PIDBOX) or queue == EVENTS or queue.startswith(f"{EVENTS}.")


def is_temporary(arguments: Mapping[str, Any]) -> bool:
    """Whether a queue with these arguments goes by itself."""
    return bool(arguments.get("x-expires") or arguments.get("auto-delete"))


def _says_lasting(reply: Any) -> bool:
    expires, arguments = reply
    if expires:
        return False
    try:
        declared = json.loads(arguments) if arguments else {}
    except ValueError:
        return True
    return not (isinstance(declared, dict) and is_temporary(declared))
