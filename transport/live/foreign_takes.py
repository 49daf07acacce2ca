"""ForeignTakes: how one channel takes jobs of another system: how many, and which.

A Celery worker takes no job before one of its processes is free to begin it, and none whose task it does not know; whoever else
consumes takes what his prefetch limit allows. Called by ``channel.py``.
"""

from __future__ import annotations

from typing import Protocol

from ...schema.live import ForeignDelivery
from ...schema.native.scripts.results import Delivery, Taken
from ..celery.consuming_worker import ConsumingWorker
from ..consume.acks import Acks
from ..consume.qos import QoS
from ..message import Content, content
from ..session import Session
from .foreign_queue import ForeignQueue
from .keyspace import ForeignKeyspace
from .messages import warn_once


class TakingChannel(Protocol):
    """The channel that takes."""

    session: Session
    qos: QoS
    acks: Acks
    consumer_id: str


class JobConsumer(Protocol):
    """Whoever the jobs are for."""

    @property
    def no_ack(self) -> bool:
        """Whether a job is done by being taken."""

    @property
    def worker(self) -> ConsumingWorker | None:
        """The Celery worker whose tasks the jobs are; None for any other consumer."""


class ForeignTakes:
    """The takes of one channel."""

    def __init__(self, channel: TakingChannel, foreign: ForeignKeyspace) -> None:
        self._session = channel.session
        self._qos = channel.qos
        self._acks = channel.acks
        self._consumer_id = channel.consumer_id
        self._foreign = foreign

    def room(self, room: int, worker: ConsumingWorker, pending: int) -> int:
        """How many jobs a worker may take now. ``room``: what its prefetch limit allows; ``pending``: not handed out yet."""
        held = 0
        if not self._foreign.family.carries_messages:
            held = sum(type(unacked.queue) is ForeignQueue for unacked in self._qos.unsettled().values())
        # Among messages are those that wait in the worker until they are due, and take nobody's place meanwhile.
        free = worker.free(held, pending)
        return min(room, free) if self._qos.prefetch_count else free

    def take(self, queue: str, room: int, consumer: JobConsumer) -> Taken:
        """Takes up to ``room`` jobs. Raises connection errors, after which the server may have given some away."""
        foreign, settings, name = self._foreign, self._session.settings, str(queue)
        known = foreign.known(name, _tasks(consumer))
        taken = self._acks.send_with(
            foreign.family.take(
                name,
                self._consumer_id,
                room,
                settings.lease_ms,
                no_ack=consumer.no_ack,
                delivery_limit=settings.delivery_limit or None,
                fetch_bytes=settings.fetch_bytes,
                tasks=known,
            )
        )
        if consumer.no_ack and taken.jobs:
            self._session.link.run(foreign.family.ack(name, self._consumer_id, [job.id for job in taken.jobs]))
        for task in taken.unknown:
            warn_once(f"jobs of task {task!r} in queue {name!r} are left to others: this worker knows no such task")
        return taken

    def content(self, queue: str, job: Delivery, consumer: JobConsumer) -> Content:
        """The message of a job just taken, from one of ferryman's own queues as well. Raises MalformedValue."""
        if not isinstance(job, ForeignDelivery):
            return content(job.id, queue, job.fields)
        return self._foreign.content(queue, job, self._consumer_id, _tasks(consumer))


def _tasks(consumer: JobConsumer) -> frozenset[str] | None:
    """The tasks that a consumer knows; None: it takes any."""
    return None if consumer.worker is None else consumer.worker.tasks
