"""Channel: what kombu's producers and consumers talk to.

Messages go straight to Redis through the native family's calls. A channel keeps its consumers and what they hold; exchanges,
queues and bindings are the business of ``publish/declarations.py``, leases that of ``leases/leases.py``.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import evolve, field, frozen
from kombu.transport import base

from ..schema.connection.listener import ConnectionLost
from ..schema.errors import MalformedValue
from ..schema.native.scripts.queue_scripts import MAX_PER_CALL
from ..schema.native.scripts.results import Delivery, Taken
from .celery.consuming_worker import ConsumingWorker, consuming_worker
from .consume.acks import Acks
from .consume.dispatcher import Dispatcher
from .consume.fanout import Fanout
from .consume.qos import QoS, Unacked
from .dead_letters import DeadLetters
from .errors import CHANNEL_ERRORS, CONNECTION_ERRORS, NoRoute
from .leases.leases import Leases, by_queue
from .leases.renewer import renewer
from .live.foreign_queue import ForeignQueue
from .message import Content, Message, content, drop_past_eta
from .publish.batch import PublishBatch
from .publish.declarations import Declarations
from .publish.publisher import Publisher
from .publish.revocation import PIDBOX, on_broadcast
from .publish.sender import OutgoingMessage
from .session import Session

if TYPE_CHECKING:
    from .live.foreign_takes import ForeignTakes

logger = logging.getLogger("ferryman.transport")


@frozen
class Consumer:
    """One consumer of one queue."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[Message], Any] = field(repr=False)
    worker: ConsumingWorker | None = field(default=None, repr=False)
    """The Celery worker whose tasks the messages are for."""


class Channel(Declarations):
    """One sequential user of a connection. Consuming and declaring from one thread; acking from any."""

    def __init__(
        self,
        connection: base.Transport,
        channel_id: int,
        session: Session,
        dead_letters: DeadLetters,
        dispatcher: Dispatcher,
        fanout: Fanout,
    ) -> None:
        """``connection``: what kombu calls so, the transport. ``channel_id``: a number for kombu's debug output."""
        super().__init__(session, dead_letters, fanout)
        self.connection: base.Transport | None = connection
        self.channel_id = channel_id
        self.dispatcher = dispatcher
        self.consumer_id = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"
        """The name under which this channel holds leases; never used by another channel."""
        self.events: dict[str, set[Callable[..., Any]]] = {"basic_return": set()}
        """kombu's ``Producer(on_return=…)`` adds itself here."""
        self.no_ack_consumers: set[str] | None = None
        self.renewer = renewer()
        self.qos = QoS()
        self.acks = Acks(self, self.renewer.wake)
        self.leases = Leases(self, self.renewer)
        self.worker: ConsumingWorker | None = None
        """The last Celery worker that consumed from this channel."""
        self._publisher = Publisher(session, dead_letters, connection.client)
        self._consumers: dict[str, Consumer] = {}
        self._foreign = self._foreign_takes()
        self._tags = count(1)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.leases.closed

    def _foreign_takes(self) -> ForeignTakes | None:
        """What takes the jobs of another system, if one carries the tasks."""
        if self.session.foreign is None:
            return None
        from .live.foreign_takes import ForeignTakes

        return ForeignTakes(self, self.session.foreign)

    # Publishing

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """kombu's parts of a message in one dict. The properties object stays the same: it marks a repeated publish."""
        properties = {} if properties is None else properties
        if priority is not None:
            properties["priority"] = priority
        return {
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": headers or {},
            "properties": properties,
        }

    def basic_publish(
        self, message: Mapping[str, Any] | str, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Stores a message, once, in every queue it is routed to; returns when the server has it.

        ``message``: what ``prepare_message`` made, or a mere text, as ``celery amqp`` has it. What no queue takes is dropped and
        counted, unless it is a Celery task. ``mandatory``: it goes to the handlers of ``events["basic_return"]`` instead, and
        is an error without any.
        Raises NoRoute, BrokerFull, UsageError for a header or property that can't be, and connection errors. A closed channel is
        one of those: kombu, which closes it when a declaration finds the connection broken, goes on with a new one then.
        """
        if self.closed:
            raise ConnectionLost("the channel is closed")
        if isinstance(message, str):
            message = self.prepare_message(message, content_type="text/plain", content_encoding="utf-8")
        exchange = exchange or ""
        self._publisher.publish(message, exchange, routing_key or "", self._return, is_mandatory=mandatory)
        if exchange.endswith(PIDBOX) and self.session.settings.remove_revoked:
            on_broadcast(self.session, message, self.connection)

    def _return(self, error: NoRoute, message: OutgoingMessage) -> None:
        """AMQP's ``basic.return``."""
        if not self.events["basic_return"]:
            raise error
        found = content(message.publication.id, "", {b"message": message.publication.message})
        returned = Message(self, 0, found)
        for handler in list(self.events["basic_return"]):
            handler(error, message.exchange, message.routing_key, returned)

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """What ``Producer.batch()`` collects its messages in."""
        return PublishBatch(self, self.session, self._publisher, max_size, self._return)

    # Consuming

    def basic_consume(self, queue: str, no_ack: bool, callback: Callable[[Message], Any], consumer_tag: str, **_: Any) -> None:
        """Begins to consume a queue. Messages come with the next ``drain_events`` or turn of the event loop."""
        worker = consuming_worker(callback)
        self.worker = worker or self.worker
        self._consumers[consumer_tag] = Consumer(consumer_tag, queue, no_ack, callback, worker)
        if no_ack:
            self.no_ack_consumers = (self.no_ack_consumers or set()) | {consumer_tag}
        for side in self.session.sides(queue):
            if self.session.foreign is not None and type(side) is ForeignQueue:
                from .live.timers import timers

                timers().add(self.session, self.session.foreign.family)
            self.dispatcher.watch(side)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a consumer. What it holds stays held until it is settled or the channel closes."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        if self.no_ack_consumers:
            self.no_ack_consumers.discard(consumer_tag)
        self.dispatcher.unwatch(consumer.queue)
        if not self.consumers(consumer.queue):
            self._try_to(lambda: self._leave(consumer.queue))
            if self.session.foreign is not None:
                self._try_to(lambda: self._leave(ForeignQueue(consumer.queue)))

    def _leave(self, queue: str) -> None:
        """The queue has a consumer less at once, unless this one still holds something of it.

        AMQP's auto-delete: such a queue goes with its last consumer, whichever process that is in.
        """
        is_auto_delete = self.topology.is_auto_delete(queue)
        if type(queue) is ForeignQueue and not self.leases.has(queue):
            return
        if is_auto_delete or queue not in self.qos.queues():
            self.leases.end(queue)
        if is_auto_delete:
            self.queue_delete(queue, if_unused=True)

    def consumers(self, queue: str) -> list[Consumer]:
        """This channel's consumers of a queue, be it ferryman's own or another system's."""
        name = str(queue)
        return [consumer for consumer in self._consumers.values() if consumer.queue == name]

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limits how many messages may be unsettled on this channel; 0 = no limit."""
        self.qos.prefetch_count = prefetch_count
        self.dispatcher.changed()

    def flow(self, active: bool = True) -> None:
        """Stops deliveries to this channel's consumers, or lets them go on."""
        self.qos.is_flowing = active
        self.dispatcher.changed()

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Message | None:
        """One message now, or None."""
        consumer = Consumer("", queue, no_ack, _no_callback)
        for side in self.session.sides(queue):
            while True:
                taken = self.take(side, 1, consumer)
                if not taken.jobs:
                    break
                message = self.decode(side, taken.jobs[0], consumer, taken.now)
                if message is not None:
                    return message
        self.dead_letters.forward()
        return None

    def room(self, queue: str, consumer: Consumer, pending: Sized) -> int:
        """How many jobs to take for a consumer now. ``pending``: what is taken and not handed out yet."""
        room = self.qos.room(self.session.settings.fetch_limit)
        if room and consumer.worker is not None and self._foreign is not None and type(queue) is ForeignQueue:
            return self._foreign.room(room, consumer.worker, len(pending))
        return room

    def take(self, queue: str, room: int, consumer: Consumer) -> Taken:
        """Takes up to ``room`` jobs. Raises connection errors; what the server gave away then is given back by the renewer."""
        self.leases.confirm([queue])
        at = time.monotonic()
        if self._foreign is not None and type(queue) is ForeignQueue:
            try:
                return self._foreign.take(queue, room, consumer)
            finally:
                self.leases.extend(queue, at)
        settings = self.session.settings
        no_ack = consumer.no_ack
        limit = settings.delivery_limit or None
        take = partial(
            self.session.scripts.take,
            queue,
            self.consumer_id,
            room,
            settings.lease_ms,
            no_ack=no_ack,
            delivery_limit=limit,
            fetch_bytes=settings.fetch_bytes,
        )
        try:
            taken = self.acks.take(queue, lambda ids: take(acked=ids))
            if len(taken.jobs) == 1 and taken.jobs[0].is_left_out:
                taken = evolve(taken, jobs=(self._complete(queue, taken.jobs[0], no_ack),))
        except CONNECTION_ERRORS:
            self.leases.extend(queue, at)
            raise
        if taken.exists:
            self.leases.extend(queue, at, leases=1 if taken.jobs else 2)
        if taken.forwards:
            self.dead_letters.forwarding.add(queue)
            if taken.has_dead_letters:
                self.dead_letters.mark(queue)
        return taken

    def _complete(self, queue: str, job: Delivery, no_ack: bool) -> Delivery:
        """A job with its message, which was too long to come with it."""
        calls: list[Any] = [self.session.scripts.message(queue, job.id)]
        if no_ack:
            calls.append(self.session.scripts.ack(queue, self.consumer_id, [job.id]))
        found, *_ = self.session.link.run_all(calls)
        return evolve(job, fields=job.fields | found)

    def poll(self, queues: Sequence[str]) -> list[float | None]:
        """For each queue in how many seconds to poll it again; None: there is something to take. Raises connection errors."""
        self.leases.confirm(queues)
        at = time.monotonic()
        link, scripts, lease_ms = self.session.link, self.session.scripts, self.session.settings.lease_ms
        some = (queues[first : first + MAX_PER_CALL] for first in range(0, len(queues), MAX_PER_CALL))
        parts = link.run_all([scripts.poll(each, self.consumer_id, lease_ms) for each in some])
        times = list(chain.from_iterable(parts))
        held = self.qos.queues()
        for queue, ms in zip(queues, times, strict=True):
            if ms is not None:
                self.leases.extend(queue, at, leases=1 if queue in held else 2)
        return [None if ms is None else ms / 1000 for ms in times]

    def decode(self, queue: str, delivery: Delivery, consumer: Consumer, now: int) -> Message | None:
        """Return the message of a job just taken; None for one that can't be read, which becomes a dead letter.

        ``now``: when it was taken, by the server's clock, ms.
        """
        try:
            if self._foreign is None:
                found = content(delivery.id, queue, delivery.fields)
            else:
                found = self._foreign.content(queue, delivery, consumer)
        except MalformedValue as error:
            logger.error("job %s of queue %r is no message and goes to the dead letters: %s", delivery.id, queue, error)
            if not consumer.no_ack:
                self._dead_letter(Unacked(queue, delivery.id), "malformed", str(error))
            return None
        if self.session.settings.telemetry is not None:
            self.session.settings.telemetry.taken(queue, found.headers)
        drop_past_eta(found.headers, now)
        if delivery.redelivered:
            found.headers["x-delivery-count"] = delivery.deliveries - 1
        info = {"redelivered": delivery.redelivered, "priority": delivery.priority}
        return self.message(found, queue, None if consumer.no_ack else delivery.id, consumer, **info)

    def message(self, found: Content, queue: str, job_id: str | None, consumer: Consumer, **delivery_info: Any) -> Message:
        """A message for a consumer of this channel; ``job_id`` None: there is nothing to settle."""
        tag = next(self._tags)
        if job_id is not None:
            self.qos.append(tag, Unacked(queue, job_id, len(found.body)))
        message = Message(self, tag, found, queue=str(queue), consumer_tag=consumer.tag, **delivery_info)
        if job_id is not None:
            self.leases.in_use[tag] = message
            if type(queue) is ForeignQueue:
                if consumer.worker is not None:
                    self.leases.lost_jobs.of_workers.add(tag)
                self.leases.taken_foreign(queue, job_id, tag)
        return message

    def message_to_python(self, message: Message) -> Message:
        """kombu's hook for raw messages; ours are complete."""
        return message

    # Settling

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Ends a message, or all up to it. From any thread; also after the channel is closed, as long as its lease holds."""
        tags = [tag for tag in self.qos.unsettled() if tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in tags:
            with self.acks.lock:
                unacked = self.qos.pop(tag)
                if unacked is not None:
                    self.acks.add(*unacked)
            if unacked is not None:
                self.dispatcher.changed()

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Gives a message back to its old place, or up: then it is a dead letter, and nothing is lost."""
        unacked = self.qos.get(delivery_tag)
        if unacked is None:
            return
        if requeue:
            family = self.session.family_of(unacked.queue)
            self.session.link.run(family.requeue(unacked.queue, self.consumer_id, [unacked.job_id]))
        else:
            self._dead_letter(unacked, "rejected")
        self.qos.pop(delivery_tag)
        self.dispatcher.changed()
        self.dead_letters.forward()

    def settle(self, delivery_tag: int) -> None:
        """Forgets a message of which somebody else has told the server what becomes of it. From any thread."""
        if self.qos.pop(delivery_tag) is not None:
            self.dispatcher.changed()

    def dead_letter(self, message: Message, error: Exception) -> None:
        """Makes a dead letter of a message that nobody could begin with, unless it is settled already."""
        unacked = self.qos.get(message.delivery_tag)
        if unacked is not None:
            self._dead_letter(unacked, "failed", repr(error))
            self.qos.pop(message.delivery_tag)

    def _dead_letter(self, unacked: Unacked, reason: str, error: str = "") -> None:
        family = self.session.family_of(unacked.queue)
        self.session.link.run(family.reject(unacked.queue, self.consumer_id, unacked.job_id, reason, error))
        if unacked.queue in self.dead_letters.forwarding:
            self.dead_letters.mark(unacked.queue)

    def basic_recover(self, requeue: bool = True) -> None:
        """Gives back everything that is unsettled."""
        held = self.qos.unsettled()
        for queue, job_ids in by_queue(held.values()):
            self.session.link.run(self.session.family_of(queue).requeue(queue, self.consumer_id, job_ids))
        for tag in held:
            self.qos.pop(tag)
        self.dispatcher.changed()

    def keep_alive(self) -> None:
        self.renewer.add(self.leases)

    # The end

    def close(self) -> None:
        """Ends all consumers and gives back what is unsettled.

        After a connection error only what nobody works on is given back, by the renewer and over a connection of its own: tasks
        that still run keep their lease and may ack when they end.
        """
        if self.closed or self.session.is_inherited:
            return
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        with self.leases.renewing:
            self.leases.closed = True
        self.dispatcher.forget(self)
        self.renewer.remove(self.leases)
        if not self.session.is_broken:
            self._try_to(self.leases.end_all)
            if self.session.is_broken:
                # Whoever closes a channel that works is done with all of it, also when it breaks just then.
                self.leases.in_use.clear()
        if self.session.is_broken and (self.leases.is_registered or self.acks):
            self.renewer.adopt(self.leases)
        if self.connection is not None:
            self.connection.close_channel(self)
        self.connection = None

    def delete_exclusive(self) -> None:
        """Deletes the queues that go with this connection."""
        for queue in list(self.session.exclusive):
            self._try_to(partial(self.queue_delete, queue))

    def _try_to(self, leave: Callable[[], object]) -> None:
        """Tells the server something that it finds out by itself, only later, if it can't be told."""
        if self.session.is_broken:
            return
        try:
            leave()
        except (*CONNECTION_ERRORS, *CHANNEL_ERRORS) as error:
            logger.warning("a channel could not give back what it held; its time will run out: %s", error)


def _no_callback(message: Message) -> None:
    """``basic_get`` returns its message."""
