"""PjqClient: jobs of pjq in Python, without Celery, beside the program and its own workers.

    pjq = PjqClient("ferryman://localhost/0?family=pjq")
    pjq.put("ffmpeg", {"args": ["-i", "in.mp4", "out.ts"]}, name="/usr/local/bin/ffmpeg")
    for job in pjq.take("ffmpeg"):
        pjq.complete(job, {"frames": 500})

The thin layer of ``compat/client.py`` over ``live.py``, and looks at jobs. pjq has no priorities, delays, attempts, statistics
and pauses, so neither has this. Public.
"""

from __future__ import annotations

import redis

from ...schema.job import Job
from ...schema.native.keys import DEFAULT_PREFIX
from ..client import ForeignClient
from .keys import LEASE_MS
from .live import PjqLive


class PjqClient(ForeignClient[PjqLive]):
    """Puts jobs into pjq's queues, and runs them as one consumer. What it holds it must renew with ``heartbeat``.

    ``lease_ms``: how long that lasts; by default the 9 s after which the program takes back what its own workers don't accept. A
    payload is a mapping; its member ``command`` is the job's name.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        *,
        prefix: str = "",
        side_prefix: str = DEFAULT_PREFIX,
        consumer: str | None = None,
        lease_ms: int = LEASE_MS,
        delivery_limit: int = 5,
    ) -> None:
        live = PjqLive(prefix, side_prefix)
        super().__init__(live, server, consumer=consumer, lease_ms=lease_ms, delivery_limit=delivery_limit)

    def get(self, job_id: str) -> Job | None:
        """A job as it stands in the queue that its payload names; None: there is none.

        >>> pjq.get(pjq.put("ffmpeg", {"args": []})).state.value
        'waiting'
        """
        return self.send(self.live.get(job_id))

    def peek(self, queue: str, n: int = 1) -> tuple[Job, ...]:
        """The jobs of a queue that run next, left where they are.

        >>> [job.name for job in pjq.peek("ffmpeg", 2)]
        """
        return self.send(self.live.peek(queue, n))
