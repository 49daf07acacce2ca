"""ForeignWakeups: hearing that another system's queue may have something to take.

The family names the keys that change then, and the server announces their changes to who asks for that
(``consume/tracking.py``). Nothing is consumed by hearing of it, so whatever wakes that system's own workers wakes them as
before. Every queue is looked at once a second besides, as a net; where the server announces nothing, or may not, several times a
second. Called by the poller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis

from ...schema.live import ForeignFamily
from ..connection.cluster_link import ClusterLink
from ..connection.factory import LinkFactory
from ..connection.link import ServerLink
from ..consume.tracking import NodeTracker, Tracker
from .messages import warn_once

logger = logging.getLogger("ferryman.transport")

LOOK_INTERVAL = 1.0
"""Seconds between looks at a queue of which nothing is heard."""
DEAF_INTERVAL = 0.1
"""Seconds between looks where the server announces nothing."""


class ForeignWakeups:
    """What tells the poller when to look at another system's queue."""

    poll_interval: float = LOOK_INTERVAL
    polls_together = False

    def __init__(self, family: ForeignFamily, link: ServerLink, links: LinkFactory, on_close: Callable[[int], None]) -> None:
        self._family = family
        self._tracker: Tracker | NodeTracker
        if isinstance(link, ClusterLink):
            self._tracker = Tracker(link, links.node_client, links.reply_timeout, on_close)
        else:
            self._tracker = NodeTracker(links.client, links.reply_timeout, on_close)
        self._queues: dict[bytes, set[str]] = {}
        """The queues that each key wakes."""
        self._known: set[str] = set()

    def wait(self, wanted: frozenset[str], seconds: float) -> None:
        for queue in wanted - self._known:
            self._known.add(queue)
            for key in self._family.signals(str(queue)):
                self._queues.setdefault(key, set()).add(queue)
        if self.poll_interval == DEAF_INTERVAL or not self._queues:
            return
        try:
            self._tracker.track(self._queues)
        except redis.exceptions.ResponseError as error:
            self._tracker.close()
            self.poll_interval = DEAF_INTERVAL
            warn_once(f"the server does not say when jobs come, so each queue is looked at every {DEAF_INTERVAL} s: {error}")

    def woken(self) -> list[str]:
        if not self._known:
            return []
        keys = self._tracker.changed(self._queues)
        return list({queue for key in keys for queue in self._queues[key]})

    def pass_on(self, queue: str) -> None:
        """Every consumer has heard of it; nobody else has to be woken."""

    def sockets(self) -> list[int]:
        return self._tracker.sockets()

    def on_readable(self) -> None:
        """A closed socket is an error at the next tick, which reads from every connection."""

    def close(self) -> None:
        self._tracker.close()
