"""Leases: what a channel holds of its queues, until when, and what becomes of it when its connection or its lease is lost.

A lease covers everything that one channel holds of one queue; a killed worker's messages go back when it lapses. In Redis it is
an entry of the queue's consumers (``schema/native/scripts/lua/_leases.lua``). Taking messages restarts it, and ``renewer.py``
renews it from a thread of its own.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ...schema.connection.call import Call
from ...schema.native.scripts.queue_scripts import MAX_PER_CALL
from ...schema.native.scripts.results import Renewed
from ..celery import request_table
from ..celery.consuming_worker import ConsumingWorker
from ..connection.link import ServerLink
from ..consume.acks import Acks
from ..consume.dispatcher import Dispatcher
from ..consume.qos import QoS, Unacked
from ..errors import LeaseLapsed
from ..message import Message
from ..publish.topology import Topology
from ..session import Session
from .lost_jobs import GRACE, LostJobs, newest_deliveries
from .renewer import LeaseRenewer

logger = logging.getLogger("ferryman.transport")


COLLECT_AFTER = 1.0
"""Seconds after a lost connection until garbage is looked for that still has messages; then twice as long each time."""


class LeasedChannel(Protocol):
    """The channel whose leases these are."""

    session: Session
    dispatcher: Dispatcher
    topology: Topology
    qos: QoS
    acks: Acks
    consumer_id: str
    worker: ConsumingWorker | None


class Leases:
    """The leases of one channel."""

    def __init__(self, channel: LeasedChannel, renewer: LeaseRenewer) -> None:
        self._channel = channel
        self._session = channel.session
        self._topology = channel.topology
        self._qos = channel.qos
        self._consumer_id = channel.consumer_id
        self._renewer = renewer
        self.settings = channel.session.settings
        self.closed = False
        """Whether the channel is closed: what it still holds is given back as it ends, over another connection."""
        self.renewed_at = time.monotonic()
        """When somebody last saw to the renewals, on the monotonic clock."""
        self.in_use: weakref.WeakValueDictionary[int, Message] = weakref.WeakValueDictionary()
        """Delivery tag -> message, of those that somebody still has: a task that runs, say."""
        self.lost_jobs = LostJobs(self._session, channel.qos, self.in_use, channel.consumer_id)
        self._collected = (0.0, 0.0)
        """When garbage was looked for last, on the monotonic clock, and how long to wait until it is again."""
        self._until: dict[str, float] = {}
        """Queue -> until when, on the monotonic clock, the server at least takes this channel for its consumer."""

    @property
    def renewing(self) -> threading.Lock:
        """Held while renewals are under way."""
        return self._topology.renewing

    @property
    def is_registered(self) -> bool:
        """Whether the server may take the channel for a consumer of any queue."""
        return bool(self._until)

    def has(self, queue: str) -> bool:
        """Whether the server may take the channel for a consumer of this queue."""
        return queue in self._until

    @property
    def acks(self) -> Acks:
        """The channel's acks."""
        return self._channel.acks

    @property
    def is_in_use(self) -> bool:
        """Whether somebody still has a message of this channel, or an ack waits to be sent."""
        return bool(self.acks) or any(tag in self.in_use for tag in self._qos.unsettled())

    # What taking does

    def confirm(self, queues: Iterable[str]) -> None:
        """Before more is taken of queues: asks whether leases still stand of which their own time says that they may be over.

        A process that was frozen for so long may take before its renewer gets round to anything. The server knows no lapsed
        consumer any more and would take it for a new one, so nobody would notice that others have what it held. Raises
        LeaseLapsed and connection errors.
        """
        now = time.monotonic()
        over = {queue for queue in queues if self._until.get(queue, now) < now} & self._qos.queues()
        if not over:
            return
        for queue, is_known in zip(over, self._session.link.run_all([self._renew(queue) for queue in over]), strict=True):
            if is_known is Renewed.LAPSED:
                self.on_lapse(queue)
            else:
                self.renewed(queue, now)
        if self._session.lapsed:
            raise LeaseLapsed

    def extend(self, queue: str, at: float, leases: int = 1) -> None:
        """The server knows, or may know, the channel as a consumer of the queue, for so many leases if nothing renews that.

        ``at``: when it was asked, on the monotonic clock.
        """
        is_new = queue not in self._until
        self._until[queue] = at + leases * self.settings.lease
        if is_new:
            self._renewer.add(self)

    def end(self, queue: str) -> None:
        """Gives back what the channel holds of a queue, and ends its lease there. Raises connection errors."""
        self.acks.flush()
        with self.renewing:
            self._until.pop(queue, None)
        self._forget(self._session.link, [queue])

    def end_all(self) -> None:
        """Gives back all that the channel holds. Raises connection errors."""
        self.acks.flush()
        self._forget(self._session.link, self._until)

    def _forget(self, link: ServerLink, queues: Iterable[str]) -> None:
        for queue in list(queues):
            while link.run(self._session.family_of(queue).forget(queue, self._consumer_id)) == MAX_PER_CALL:
                pass

    # Renewals

    @property
    def renewal_interval(self) -> float:
        """Seconds between renewals: a third of the lease, or of the shortest life of a temporary queue."""
        return min(self.settings.lease, self._topology.shortest_life or self.settings.lease) / 3

    def renewals(self) -> list[tuple[str, Call[Any]]]:
        """(queue, call) for everything that must not lapse. Called by the renewer's thread.

        Where nothing is held, polling renews as well: what that has done lately is left alone.
        """
        now, lease = time.monotonic(), self.settings.lease
        held = self._qos.queues()
        calls: list[tuple[str, Call[Any]]] = []
        for queue, until in list(self._until.items()):
            if self._is_urgent(queue, held) or until < now + lease * 2 / 3:
                calls.append((queue, self._renew(queue)))
        return calls if self.closed else calls + self._topology.renewals()

    def renewed(self, queue: str, at: float) -> None:
        """The server has renewed the lease of a queue, having been asked at this moment of the monotonic clock."""
        if queue in self._until:
            leases = 1 if self._is_urgent(queue, self._qos.queues()) else 2
            self._until[queue] = at + leases * self.settings.lease

    def urgent_renewals(self) -> list[Call[Any]]:
        """What must be renewed to lose nothing. Called by the gevent renewer's thread, so it changes nothing and takes no lock.

        What is removed at this very moment may be made again by it, and then goes when its time has run out.
        """
        held = self._qos.queues()
        calls: list[Call[Any]] = [self._renew(queue) for queue in list(self._until) if self._is_urgent(queue, held)]
        return calls if self.closed else calls + [call for _, call in self._topology.renewals()]

    def _is_urgent(self, queue: str, held: set[str]) -> bool:
        """Whether something is lost unless renewed: jobs held, or a temporary queue."""
        return queue in held or self._topology.is_temporary(queue)

    def _renew(self, queue: str) -> Call[Any]:
        return self._session.family_of(queue).renew(queue, self._consumer_id, self.settings.lease_ms)

    def check_held(self, link: ServerLink) -> float | None:
        """Looks which jobs of another system are still held. Gives the seconds until the next look if it is to be soon.

        Called by the renewer's thread. Raises connection errors.
        """
        return None if self._session.foreign is None else self.lost_jobs.check(link)

    def taken_foreign(self, queue: str, job_id: str, tag: int) -> None:
        """Note that the channel has taken a job of another system under this tag."""
        if self.lost_jobs.taken(queue, job_id, tag):
            self._renewer.check(self, GRACE)

    # When a lease or the connection is lost

    def on_lapse(self, queue: str) -> None:
        """The server has given away what this channel held of a queue. Called by the renewer's thread."""
        self._until.pop(queue, None)
        if queue in self._qos.queues():
            logger.warning(
                "the lease of this worker on queue %r has lapsed: it did not reach the server for %s s; "
                "what it held is delivered again",
                queue,
                self.settings.lease,
            )
            # What it has not begun is no longer its to run: a new connection drops that.
            self._session.lapsed = True
            self._channel.dispatcher.changed()

    def release_unstarted(self, link: ServerLink) -> None:
        """After a connection error, gives back what nobody works on. Called by the renewer's thread. Raises connection errors.

        Celery drops the tasks that had not begun, and with them their messages; those that run go on, and ack when they end.
        """
        request_table.drop_unstarted(self._channel, self._channel.worker)
        self._collect_garbage()
        with self.acks.lock:
            # What was acked a moment ago is neither in use nor unsettled, and must not be given back.
            self.acks.flush()
            unsettled = self._qos.unsettled()
            unstarted = {tag: unacked for tag, unacked in unsettled.items() if tag not in self.in_use}
            if len(unstarted) == len(self._qos):
                self._forget(link, self._until)
                self._renewer.remove(self)
            elif unstarted:
                newest = newest_deliveries(unsettled)
                for queue, job_ids in by_queue(each for tag, each in unstarted.items() if newest[each.queue, each.job_id] == tag):
                    link.run(self._session.family_of(queue).release(queue, self._consumer_id, job_ids))
        for tag in unstarted:
            self._qos.pop(tag)

    def _collect_garbage(self) -> None:
        """Free messages that only a reference cycle keeps in memory: an idle process might never collect it by itself.

        Celery 5.7 leaves such cycles: the request of a task with an ETA and its entry in the timer refer to each other.
        """
        at, pause = self._collected
        now = time.monotonic()
        if now >= at + pause and any(tag in self.in_use for tag in self._qos.unsettled()):
            self._collected = now, 2 * pause or COLLECT_AFTER
            gc.collect()

    def reconcile(self) -> None:
        """After a lost connection that is back: gives back what the server gave away and no reply brought here.

        What has lapsed meanwhile and is not begun is others' to run. Raises connection errors.
        """
        self.acks.flush()
        link, family_of = self._session.link, self._session.family_of
        unsettled = self._qos.unsettled()
        gone = {tag: unacked.job_id for tag, unacked in unsettled.items()}
        for queue in {*self._until, *self._qos.queues()}:
            holds = link.run(family_of(queue).held(queue, self._consumer_id))
            known = {unacked.job_id: tag for tag, unacked in unsettled.items() if unacked.queue == queue}
            unknown = [job_id for job_id in holds if gone.pop(known.get(job_id, 0), None) is None]
            if unknown:
                link.run(family_of(queue).release(queue, self._consumer_id, unknown))
        dropped = self._channel.dispatcher.drop(self._channel, gone.keys())
        for tag in gone:
            if tag in dropped or tag not in self.in_use:
                self._qos.pop(tag)


def by_queue(unacked: Iterable[Unacked]) -> Iterator[tuple[str, list[str]]]:
    """The jobs of each queue, as many as one call may be about."""
    queues: dict[str, list[str]] = {}
    for queue, job_id, _ in unacked:
        queues.setdefault(queue, []).append(job_id)
    for queue, job_ids in queues.items():
        yield from ((queue, job_ids[first : first + MAX_PER_CALL]) for first in range(0, len(job_ids), MAX_PER_CALL))
