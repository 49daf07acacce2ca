"""Channel: what kombu's producers and consumers talk to.

Messages go straight to Redis through the native family's calls. What a channel keeps is its consumers and what they hold; its
exchanges, queues and bindings are the business of ``declarations.py``.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import evolve, field, frozen

from ..schema.connection.call import Call
from ..schema.errors import MalformedValue
from ..schema.native.scripts.queue_scripts import MAX_PER_CALL
from ..schema.text import to_text
from .celery import request_table
from .consume.acks import Acks
from .consume.qos import QoS, Unacked
from .errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from .leases.renewer import renewer
from .message import Content, Message, content
from .producing import Producing

if TYPE_CHECKING:
    from ..schema.native.scripts.results import Delivery, Taken
    from .connection.link import ServerLink
    from .transport import Transport

logger = logging.getLogger("ferryman.transport")


@frozen
class Consumer:
    """One consumer of one queue."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[Message], Any] = field(repr=False)


class Channel(Producing):
    """One sequential user of a connection. Consuming and declaring from one thread; acking from any."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.connection: Transport | None = transport
        self.channel_id = transport.next_channel_id()
        self.consumer_id = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"
        """The name under which this channel holds leases; never used by another channel."""
        self.renewer = renewer()
        self.qos = QoS()
        self.acks = Acks(self)
        self.no_ack_consumers: set[str] | None = None
        self._consumers: dict[str, Consumer] = {}
        self._registered: dict[str, float] = {}
        """Queue -> until when, on the monotonic clock, the server at least takes this channel for its consumer."""
        self.renewed_at = time.monotonic()
        """When somebody last saw to the renewals, on the monotonic clock."""
        self._tags = count(1)
        self._alive: weakref.WeakValueDictionary[int, Message] = weakref.WeakValueDictionary()
        """The messages that somebody still has: a task that runs, say."""

    # Consuming

    def basic_consume(self, queue: str, no_ack: bool, callback: Callable[[Message], Any], consumer_tag: str, **_: Any) -> None:
        """Begins to consume a queue. Messages come with the next ``drain_events`` or turn of the event loop."""
        self._consumers[consumer_tag] = Consumer(consumer_tag, queue, no_ack, callback)
        if no_ack:
            self.no_ack_consumers = (self.no_ack_consumers or set()) | {consumer_tag}
        for exchange, expires in self.transport.broadcasts.get(queue, {}).items():
            self.transport.poller.fanout.subscribe(exchange, queue, expires)
        self.transport.poller.watch(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a consumer. What it holds stays held until it is settled or the channel closes."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        if self.no_ack_consumers:
            self.no_ack_consumers.discard(consumer_tag)
        if not self.transport.consumers_of(consumer.queue):
            self.transport.poller.unwatch(consumer.queue)
            self.transport.poller.fanout.unsubscribe(consumer.queue)
        if not self.consumers(consumer.queue):
            self._leave(lambda: self._retire(consumer.queue))

    def _retire(self, queue: str) -> None:
        """The queue has a consumer less at once, unless this one still holds something of it.

        AMQP's auto-delete: such a queue goes with its last consumer, whichever process that is in.
        """
        is_auto_delete = self.is_auto_delete(queue)
        if is_auto_delete or queue not in self._queues_held():
            self.acks.flush()
            with self.renewing:
                self._registered.pop(queue, None)
            self._forget(self.link, [queue])
        if is_auto_delete:
            self.queue_delete(queue, if_unused=True)

    def consumers(self, queue: str) -> list[Consumer]:
        """This channel's consumers of a queue."""
        return [consumer for consumer in self._consumers.values() if consumer.queue == queue]

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limits how many messages may be unsettled on this channel; 0 = no limit."""
        self.qos.prefetch_count = prefetch_count
        self.transport.poller.changed()

    def flow(self, active: bool = True) -> None:
        """Stops deliveries to this channel's consumers, or lets them go on."""
        self.qos.is_flowing = active
        self.transport.poller.changed()

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Message | None:
        """One message now, or None."""
        while True:
            taken = self.take(queue, 1, no_ack)
            if not taken.jobs:
                self.transport.letters.forward()
                return None
            message = self.accept(queue, taken.jobs[0], Consumer("", queue, no_ack, _no_callback))
            if message is not None:
                return message

    def take(self, queue: str, room: int, no_ack: bool) -> Taken:
        """Takes up to ``room`` jobs. Raises connection errors; what the server gave away then is given back by the renewer."""
        settings = self.settings
        limit = settings.delivery_limit or None
        call = self.scripts.take(
            queue,
            self.consumer_id,
            room,
            settings.lease_ms,
            no_ack=no_ack,
            delivery_limit=limit,
            fetch_bytes=settings.fetch_bytes,
        )
        try:
            taken = self.acks.send_with(call)
            if len(taken.jobs) == 1 and taken.jobs[0].is_left_out:
                taken = evolve(taken, jobs=(self._complete(queue, taken.jobs[0], no_ack),))
        except CONNECTION_ERRORS:
            self._registered_at(queue)
            raise
        if taken.exists:
            self._registered_at(queue, leases=1 if taken.jobs else 2)
        if taken.forwards:
            self.transport.letters.forwarding.add(queue)
            if taken.has_dead_letters:
                self.transport.letters.mark(queue)
        return taken

    def _complete(self, queue: str, job: Delivery, no_ack: bool) -> Delivery:
        """A job with its message, which was too long to come with it."""
        calls: list[Any] = [self.scripts.message(queue, job.id)]
        if no_ack:
            calls.append(self.scripts.ack(queue, self.consumer_id, [job.id]))
        found, *_ = self.link.run_all(calls)
        return evolve(job, fields=job.fields | found)

    def look(self, queues: Sequence[str]) -> list[float | None]:
        """For each queue in how many seconds to look at it again; None: there is something to take. Raises connection errors."""
        some = (queues[first : first + MAX_PER_CALL] for first in range(0, len(queues), MAX_PER_CALL))
        parts = self.link.run_all([self.scripts.poll(each, self.consumer_id, self.settings.lease_ms) for each in some])
        times = list(chain.from_iterable(parts))
        held = self._queues_held()
        for queue, ms in zip(queues, times, strict=True):
            if ms is not None:
                self._registered_at(queue, leases=1 if queue in held else 2)
        return [None if ms is None else ms / 1000 for ms in times]

    def _registered_at(self, queue: str, leases: int = 1) -> None:
        """The server knows, or may know, this channel as a consumer of the queue, for so many leases if nothing renews that."""
        is_new = queue not in self._registered
        self._registered[queue] = time.monotonic() + leases * self.settings.lease
        if is_new:
            self.renewer.add(self)

    def accept(self, queue: str, delivery: Delivery, consumer: Consumer) -> Message | None:
        """The message of a job just taken; None for one that makes no sense, which becomes a dead letter."""
        try:
            found = content(delivery.id, queue, delivery.fields)
        except MalformedValue as error:
            logger.error("job %s of queue %r is no message and goes to the dead letters: %s", delivery.id, queue, error)
            if not consumer.no_ack:
                self._give_up(Unacked(queue, delivery.id), "malformed", str(error))
            return None
        if delivery.redelivered:
            found.headers["x-delivery-count"] = delivery.deliveries - 1
        info = {"redelivered": delivery.redelivered, "priority": delivery.priority}
        return self.message(found, queue, None if consumer.no_ack else delivery.id, consumer, **info)

    def message(self, found: Content, queue: str, job_id: str | None, consumer: Consumer, **delivery_info: Any) -> Message:
        """A message for a consumer of this channel; ``job_id`` None: there is nothing to settle."""
        tag = next(self._tags)
        if job_id is not None:
            self.qos.append(tag, Unacked(queue, job_id, len(found.body)))
        message = Message(self, tag, found, queue=queue, consumer_tag=consumer.tag, **delivery_info)
        if job_id is not None:
            self._alive[tag] = message
        return message

    def message_to_python(self, message: Message) -> Message:
        """kombu's hook for raw messages; ours are complete."""
        return message

    # Settling

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Ends a message, or all up to it. From any thread; also after the channel is closed, as long as its lease holds."""
        tags = [tag for tag in self.qos.unsettled() if tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in tags:
            held = self.qos.pop(tag)
            if held is not None:
                self.acks.add(*held)
                self.transport.poller.changed()

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Gives a message back to its old place, or up: then it is a dead letter, and nothing is lost."""
        held = self.qos.get(delivery_tag)
        if held is None:
            return
        if requeue:
            self.link.run(self.scripts.requeue(held.queue, self.consumer_id, [held.job_id]))
        else:
            self._give_up(held, "rejected")
        self.qos.pop(delivery_tag)
        self.transport.poller.changed()
        self.transport.letters.forward()

    def give_up(self, message: Message, error: Exception) -> None:
        """Makes a dead letter of a message that nobody could begin with, unless it is settled already."""
        held = self.qos.get(message.delivery_tag)
        if held is not None:
            self._give_up(held, "failed", repr(error))
            self.qos.pop(message.delivery_tag)

    def _give_up(self, held: Unacked, reason: str, error: str = "") -> None:
        self.link.run(self.scripts.reject(held.queue, self.consumer_id, held.job_id, reason, error))
        if held.queue in self.transport.letters.forwarding:
            self.transport.letters.mark(held.queue)

    def basic_recover(self, requeue: bool = True) -> None:
        """Gives back everything that is unsettled."""
        held = self.qos.unsettled()
        for queue, job_ids in _by_queue(held.values()):
            self.link.run(self.scripts.requeue(queue, self.consumer_id, job_ids))
        for tag in held:
            self.qos.pop(tag)
        self.transport.poller.changed()

    # Leases

    @property
    def renewal_interval(self) -> float:
        """Seconds between renewals: a third of the lease, or of the shortest life of a temporary queue."""
        return min(self.settings.lease, self.shortest_life or self.settings.lease) / 3

    def renewals(self) -> list[tuple[str, Call[Any]]]:
        """(queue, call) for everything that must not lapse. Called by the renewer's thread.

        Where nothing is held, looking for messages renews as well: what that has done lately is left alone.
        """
        now, lease = time.monotonic(), self.settings.lease
        held = self._queues_held()
        calls: list[tuple[str, Call[Any]]] = []
        for queue, until in list(self._registered.items()):
            is_busy = self._hangs_on_renewal(queue, held)
            if is_busy or until < now + lease * 2 / 3:
                calls.append((queue, self.scripts.renew(queue, self.consumer_id, self.settings.lease_ms)))
                self._registered[queue] = now + (lease if is_busy else 2 * lease)
        return calls if self.closed else calls + self.declaration_renewals()

    def leases(self) -> list[Call[Any]]:
        """What must be renewed to lose nothing. Called by the gevent renewer's thread, so it changes nothing and takes no lock.

        What is struck off at this very moment may be made again by it, and then goes when its time has run out.
        """
        held = self._queues_held()
        queues = [queue for queue in list(self._registered) if self._hangs_on_renewal(queue, held)]
        calls: list[Call[Any]] = [self.scripts.renew(queue, self.consumer_id, self.settings.lease_ms) for queue in queues]
        return calls if self.closed else calls + [call for _, call in self.declaration_renewals()]

    def _hangs_on_renewal(self, queue: str, held: set[str]) -> bool:
        """Whether something is lost unless renewed: jobs held, or a temporary queue."""
        return queue in held or "x-expires" in self._declared.get(queue, {})

    def keep_alive(self) -> None:
        self.renewer.add(self)

    def _queues_held(self) -> set[str]:
        """The queues of which something is unsettled."""
        return {held.queue for held in self.qos.unsettled().values()}

    @property
    def is_at_work(self) -> bool:
        """Whether somebody still has a message of this channel, or an ack waits to be sent."""
        return bool(self.acks) or any(tag in self._alive for tag in self.qos.unsettled())

    def leave_behind(self, link: ServerLink) -> None:
        """After a connection error, gives back what nobody works on. Called by the renewer's thread. Raises connection errors.

        Celery drops the tasks that had not begun, and with them their messages; those that run go on, and ack when they end.
        """
        request_table.strike_off(self)
        nobodys = {tag: held for tag, held in self.qos.unsettled().items() if tag not in self._alive}
        if len(nobodys) == len(self.qos):
            self._forget(link, self._registered)
            self.renewer.remove(self)
        elif nobodys:
            for queue, job_ids in _by_queue(nobodys.values()):
                link.run(self.scripts.release(queue, self.consumer_id, job_ids))
        for tag in nobodys:
            self.qos.pop(tag)

    def lease_lost(self, queue: str) -> None:
        """The server has given away what this channel held of a queue. Called by the renewer's thread."""
        self._registered.pop(queue, None)
        if queue in self._queues_held():
            logger.warning(
                "the lease of this worker on queue %r has lapsed: it did not reach the server for %s s; "
                "what it held is delivered again",
                queue,
                self.settings.lease,
            )
            # What it has not begun is no longer its to run: a new connection drops that.
            self.transport.lease_lost()

    def take_stock(self) -> None:
        """After a lost connection that is back: gives back what the server gave away and no reply brought here.

        What has lapsed meanwhile and is not begun is others' to run. Raises connection errors.
        """
        self.acks.flush()
        unsettled = self.qos.unsettled()
        gone = {tag: held.job_id for tag, held in unsettled.items()}
        for queue in {*self._registered, *self._queues_held()}:
            holds = self.link.command("ZRANGE", self.scripts.keys(queue).held(self.consumer_id), 0, -1)
            known = {held.job_id: tag for tag, held in unsettled.items() if held.queue == queue}
            unknown = [job_id for job_id in map(to_text, holds) if gone.pop(known.get(job_id, 0), None) is None]
            if unknown:
                self.link.run(self.scripts.release(queue, self.consumer_id, unknown))
        dropped = self.transport.poller.drop(self, gone.keys())
        for tag in gone:
            if tag in dropped or tag not in self._alive:
                self.qos.pop(tag)

    # The end

    def close(self) -> None:
        """Ends all consumers and gives back what is unsettled.

        After a connection error only what nobody works on is given back, by the renewer and over a connection of its own: tasks
        that still run keep their lease and may ack when they end.
        """
        if self.closed or self.transport.is_inherited:
            return
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        with self.renewing:
            self.closed = True
        self.transport.poller.forget(self)
        self.renewer.remove(self)
        if not self.transport.broken:
            self._leave(self._give_back)
            if self.transport.broken:
                # Whoever closes a channel that works is done with all of it, also when it breaks just then.
                self._alive.clear()
        if self.transport.broken and (self._registered or self.acks):
            self.renewer.adopt(self)
        self.transport.close_channel(self)
        self.connection = None

    def _give_back(self) -> None:
        self.acks.flush()
        self._forget(self.link, self._registered)

    def _forget(self, link: ServerLink, queues: Iterable[str]) -> None:
        """Gives back all that this channel holds of some queues, and is their consumer no more."""
        for queue in list(queues):
            while link.run(self.scripts.forget(queue, self.consumer_id)) == MAX_PER_CALL:
                pass

    def delete_exclusive(self) -> None:
        """Deletes the queues that go with this connection."""
        for queue in list(self.transport.exclusive):
            self._leave(partial(self.queue_delete, queue))

    def _leave(self, farewell: Callable[[], object]) -> None:
        """Says something to the server that it finds out by itself, only later, if it can't be said."""
        if self.transport.broken:
            return
        try:
            farewell()
        except (*CONNECTION_ERRORS, *CHANNEL_ERRORS) as error:
            logger.warning("a channel could not give back what it held; its time will run out: %s", error)


def _by_queue(held: Iterable[Unacked]) -> Iterator[tuple[str, list[str]]]:
    """The jobs of each queue, as many as one call may be about."""
    queues: dict[str, list[str]] = {}
    for queue, job_id, _ in held:
        queues.setdefault(queue, []).append(job_id)
    for queue, job_ids in queues.items():
        yield from ((queue, job_ids[first : first + MAX_PER_CALL]) for first in range(0, len(job_ids), MAX_PER_CALL))


def _no_callback(message: Message) -> None:
    """``basic_get`` returns its message."""
