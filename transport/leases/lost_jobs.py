"""LostJobs: what others have done to the jobs of another system while a channel held them.

That system's own programs cancel and fail jobs as they like, and do not know who runs them. So at each renewal it is asked which
jobs a consumer still holds. What is held no more is no business of ours: nothing is written when its task ends, and a Celery
worker stops the task. Called by ``leases.py``, from the renewer's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Protocol

from ..connection.link import ServerLink
from ..consume.qos import QoS, Unacked
from ..live.foreign_queue import ForeignQueue
from ..message import Message
from ..session import Session

logger = logging.getLogger("ferryman.transport")

GRACE = 1.0
"""Seconds for which a job may be held no more while its message is in use: it may just have been ended."""


class MessagesInUse(Protocol):
    """The messages that somebody still has, by their tags."""

    def get(self, tag: int, /) -> Message | None: ...


class LostJobs:
    """The jobs of one channel."""

    def __init__(self, session: Session, qos: QoS, in_use: MessagesInUse, consumer_id: str) -> None:
        self._session = session
        self._qos = qos
        self._in_use = in_use
        self._consumer_id = consumer_id
        self.of_workers: set[int] = set()
        """The tags of messages that went to a Celery worker. Whoever else drops one holds it until the channel closes."""
        self._newest: dict[tuple[str, str], int] = {}
        """(queue, job id) -> the tag of its last delivery, under ``_lock``."""
        self._lock = threading.Lock()
        self._missing: dict[int, float] = {}
        """Tag -> since when its job is known to be held no more, on the monotonic clock."""

    def taken(self, queue: str, job_id: str, tag: int) -> bool:
        """Note that the channel has taken a job under this tag. Return whether an earlier delivery of it is not settled yet.

        The server gives a job to the same consumer twice if others took it away in between, or if the first run has just ended.
        Called by the thread that takes.
        """
        with self._lock:
            earlier = self._newest.get((queue, job_id))
            self._newest[queue, job_id] = tag
        if earlier is None or self._qos.get(earlier) is None:
            return False
        if earlier in self.of_workers:
            from ..celery.foreign_request import set_taken_again

            self._missing.setdefault(earlier, time.monotonic())
            set_taken_again(self._consumer_id, earlier)
        else:
            self._qos.pop(earlier)  # or its ack would end the new delivery
        return True

    def check(self, link: ServerLink) -> float | None:
        """Asks which jobs are still held. Gives the seconds until the next check if that is soon. Raises connection errors."""
        unsettled = self._qos.unsettled()
        self._missing = {tag: since for tag, since in list(self._missing.items()) if tag in unsettled}
        self.of_workers.intersection_update(unsettled)
        with self._lock:
            self._newest = {job: tag for job, tag in self._newest.items() if self._qos.get(tag) is not None}
        newest = newest_deliveries(unsettled)
        queues: dict[str, dict[str, int]] = {}
        for tag, unacked in unsettled.items():
            if newest[unacked.queue, unacked.job_id] != tag:
                self._note_missing(unacked.queue, unacked.job_id, tag)
            elif type(unacked.queue) is ForeignQueue:
                queues.setdefault(unacked.queue, {})[unacked.job_id] = tag
        for queue, tags in queues.items():
            family = self._session.family_of(queue)
            ids: tuple[str, ...] = link.run(family.held(queue, self._consumer_id))
            held = set(ids)
            for job_id, tag in tags.items():
                if job_id not in held:
                    self._note_missing(queue, job_id, tag)
            dropped = [job_id for job_id, tag in tags.items() if job_id in held and self._is_dropped(tag)]
            if dropped:
                logger.warning("jobs %s of queue %r have ended, and it could not be written how: they wait again", dropped, queue)
                link.run(family.release(queue, self._consumer_id, dropped))
                for job_id in dropped:
                    self._qos.pop(tags[job_id])
        return GRACE if self._missing else None

    def _is_dropped(self, tag: int) -> bool:
        """Whether a worker has nothing more to do with a message that it has not settled."""
        return tag in self.of_workers and self._in_use.get(tag) is None

    def _note_missing(self, queue: str, job_id: str, tag: int) -> None:
        now = time.monotonic()
        if now - self._missing.setdefault(tag, now) < GRACE:
            return
        if self._in_use.get(tag) is not None and tag in self.of_workers:
            from ..celery.foreign_request import revoke_lost

            revoke_lost(self._consumer_id, tag)  # which settles it, once that has happened
            return
        if self._qos.pop(tag) is not None:
            logger.warning("job %s of queue %r was cancelled, failed or given to others while it was held here", job_id, queue)


def newest_deliveries(unsettled: Mapping[int, Unacked]) -> dict[tuple[str, str], int]:
    """(queue, job id) -> the tag of its last delivery. Earlier ones must not be given back: that would be about the last one."""
    return {(unacked.queue, unacked.job_id): tag for tag, unacked in unsettled.items()}
