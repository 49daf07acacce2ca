"""KickqClient: jobs of a kickq keyspace in Python, without Celery, beside kickq's own processes.

Each method is one call of ``KickqLive``. For programs that talk to kickq; Celery needs none of this.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis

from ...schema.native.keys import DEFAULT_PREFIX
from ..client import LEASE, ForeignClient
from .live import KickqLive
from .process_options import ProcessOptions
from .replies import KickqJob


class KickqClient(ForeignClient[KickqLive]):
    """Puts jobs into kickq's queues, and runs them as one of its workers. ``prefix`` is kickq's namespace; ``options``
    are those of its processes.

    >>> with KickqClient("ferryman://localhost/0") as kickq:  # doctest: +SKIP
    ...     kickq.put("send emails", {"to": "a@example.com"}, attempts=3, backoff=60_000)
    ...     for job in kickq.take("send emails"):
    ...         kickq.complete(job)

    Options of ``put``: ``attempts``, ``backoff`` (ms), ``ttl`` (ms), and kickq's own (see ``KickqLive.put``). kickq has no
    priorities, progress, results and pauses.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        prefix: str = "kickq",
        *,
        side_prefix: str = DEFAULT_PREFIX,
        consumer: str | None = None,
        lease_ms: int = LEASE,
        delivery_limit: int = 5,
        options: ProcessOptions | None = None,
    ) -> None:
        live = KickqLive(prefix, side_prefix, options or ProcessOptions())
        super().__init__(live, server, consumer=consumer, lease_ms=lease_ms, delivery_limit=delivery_limit)

    def get(self, job_id: str) -> KickqJob | None:
        """A job as its record tells; None if there is none. ``kickq.get("17").state``"""
        return self.send(self.live.get(job_id))

    def stats(self) -> Mapping[str, int]:
        """How many jobs of all queues are in each of the eight states. ``kickq.stats()["retry"]``"""
        return self.send(self.live.stats())
