"""KombuClient: messages of the stock Celery broker's keyspace from Python, without Celery, beside kombu's own processes.

    client = KombuClient("ferryman://localhost/0")
    client.publish("celery", "proj.tasks.add", [2, 3])
    for job in client.take("celery"):
        message = json.loads(job.payload)
        client.complete(job)

A thin layer over ``live.py``. Not thread-safe: one client, and so one consumer, for each thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import redis

from ...schema.connection.address import Address
from ...schema.live import ForeignDelivery, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ..client import LEASE, ForeignClient
from .keys import Settings
from .live import KombuLive
from .outgoing import task_message


class KombuClient(ForeignClient[KombuLive]):
    """One publisher and consumer of the keyspace under a ``global_keyprefix``.

    ``server``: a redis-py client with ``decode_responses=False``, or a ``ferryman://`` URL, whose ``prefix`` and kombu's own
    options (``sep``, ``priority_steps``, ``unacked_key``, ``visibility_timeout`` …) count where no argument says otherwise.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        prefix: str | None = None,
        *,
        settings: Settings | None = None,
        side_prefix: str = DEFAULT_PREFIX,
        consumer: str | None = None,
        lease_ms: int = LEASE,
        delivery_limit: int = 5,
    ) -> None:
        if isinstance(server, str):
            address = Address.parse(server)
            if address.family == KombuLive.name:
                prefix = address.prefix if prefix is None else prefix
                settings = settings or Settings(**dict(address.settings))
        live = KombuLive(prefix or "", side_prefix, settings or Settings())
        super().__init__(live, server, consumer=consumer, lease_ms=lease_ms, delivery_limit=delivery_limit)

    def publish(
        self,
        queue: str,
        task: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        priority: int = 0,
        eta: datetime | None = None,
        delay_ms: int = 0,
        headers: Mapping[str, Any] | None = None,
        publication: str | None = None,
        now: int | None = None,
        **options: Any,
    ) -> str:
        """Publishes a task for Celery's workers and gives its delivery tag. ``options``: see ``KombuLive.put``.

        Messages of any other kind go by ``put``: its payload is all of the message.
        """
        message = task_message(task, args, kwargs, task_id=task_id, priority=priority, eta=eta, headers=headers)
        return self.put(queue, message, delay_ms=delay_ms, publication=publication, now=now, **options)

    def reject(self, job: ForeignDelivery, *, requeue: bool = False, now: int | None = None) -> Outcome:
        """Drops a message, or has it delivered again after all others."""
        if requeue:
            return "waiting" if self.requeue(job, now=now) else "lost"
        return self.fail(job, "rejected", now=now)

    def peek(self, queue: str, n: int = 1, *, now: int | None = None) -> tuple[bytes, ...]:
        """The messages of a queue that run next, as they stand there."""
        return self.send(self.live.peek(queue, n, now=now))

    def bind(self, queue: str, exchange: str, routing_key: str, *, topic: bool = False, expires_ms: int | None = None) -> None:
        """Binds a queue to an exchange."""
        self.send(self.live.bind(queue, exchange, routing_key, topic=topic, expires_ms=expires_ms))

    def unbind(self, queue: str, exchange: str, routing_key: str, *, topic: bool = False) -> None:
        """Takes a binding away."""
        self.send(self.live.unbind(queue, exchange, routing_key, topic=topic))
