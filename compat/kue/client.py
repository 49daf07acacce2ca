"""KueClient: kue's queues from Python, without Celery.

    client = KueClient("ferryman://localhost/0", prefix="q")
    client.put("email", {"to": "ann@example.com"}, attempts=3, backoff={"type": "exponential", "delay": 1000})
    for job in client.take("email", n=10):
        client.complete(job, {"sent": True})

Jobs are kue's own: its workers may run what is put here, its web page shows what is done here. Called by applications and tests.
"""

from __future__ import annotations

from typing import Any

import redis

from ...schema.job import Job, State
from ...schema.native.keys import DEFAULT_PREFIX
from ..client import LEASE, ForeignClient
from .keys import WORDS, era_of
from .live import KueLive
from .options import PRIORITIES
from .replies import KueStats


class KueClient(ForeignClient[KueLive]):
    """One consumer, and a producer, of the kue keyspace under ``prefix``.

    ``put`` takes kue's options: ``attempts``, ``backoff``, ``ttl`` (ms), ``removeOnComplete``; ``priority`` may be one of kue's
    names. ``take`` gives jobs in kue's order. Someone must call ``run_timers`` every second if no process of kue does.
    ``version``: that of kue, for a keyspace without a job, if it is older than 0.10.3.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        prefix: str = "q",
        *,
        consumer: str | None = None,
        lease_ms: int = LEASE,
        delivery_limit: int = 5,
        side_prefix: str = DEFAULT_PREFIX,
        version: str | None = None,
    ) -> None:
        live = KueLive(prefix, side_prefix, era=None if version is None else era_of(version))
        super().__init__(live, server, consumer=consumer, lease_ms=lease_ms, delivery_limit=delivery_limit)

    def put(self, queue: str, payload: Any = None, *, priority: float | str | None = None, **options: Any) -> str:
        """Puts a job into a queue and gives its id.

        ``priority``: lower runs first; or low, normal, medium, high or critical. ``delay_ms``, ``extra``, ``publication`` and
        ``now`` are as in ``ForeignClient.put``; all else is an option of kue's.
        """
        number = PRIORITIES.get(priority, priority) if isinstance(priority, str) else priority
        if isinstance(number, str):
            raise ValueError(f"kue knows no priority {number!r}; its names are: {', '.join(PRIORITIES)}")
        return super().put(queue, payload, priority=number, **options)

    def get(self, job_id: str) -> Job | None:
        """A job, whatever state it has; None: there is none of this id."""
        found = self.send(self.live.jobs([job_id]))
        return found[0] if found else None

    def peek(self, queue: str, n: int = 1, state: State = State.WAITING, *, first: int = 0) -> tuple[Job, ...]:
        """``n`` jobs of a state from the ``first`` on, in kue's order, which stay where they are."""
        return self.send(self.live.listed(WORDS[state], queue, first, n))

    def stats(self) -> KueStats:
        """kue's own statistics over all queues."""
        return self.send(self.live.stats())
