"""Enqueue: publishes one Celery task to a queue by hand, as a producer would. Called by the web page.

The message is one of Celery's protocol 2, published by kombu over ``ferryman://``, so it is stored, routed and bounded like any
other; in another system's keyspace it becomes a job of that system (docs/live.md).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import redis
from kombu import Connection
from kombu.exceptions import OperationalError

from ..schema.connection.address import Address
from ..schema.connection.connect import server_errors
from ..schema.errors import FerrymanError, UsageError
from ..schema.native.task_message import task_headers
from ..schema.text import show
from ..transport.message import DELAY

LONGEST_DELAY_MS = 10 * 365 * 86_400_000
LONGEST_REPR = 1024
"""Characters of the arguments that monitors are told."""


def enqueue(
    address: Address,
    queue: str,
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    priority: int | None = None,
    delay_ms: int = 0,
) -> str:
    """Publishes it and gives the task's id. ``priority`` None: the queue's default.

    Raises UsageError for what can't be published, Unroutable for a queue that does not exist, ServerError.
    """
    if not task:
        raise UsageError("name the task")
    if not 0 <= delay_ms <= LONGEST_DELAY_MS:
        raise UsageError(f"the delay must be from 0 to {LONGEST_DELAY_MS // 1000} s")
    task_id = str(uuid4())
    headers = task_headers(
        task_id,
        task,
        argsrepr=show(repr(tuple(args)), LONGEST_REPR),
        kwargsrepr=show(repr(dict(kwargs)), LONGEST_REPR),
        origin=f"{os.getpid()}@{socket.gethostname()}",
    )
    if delay_ms:
        headers[DELAY] = delay_ms
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    options = {"max_retries": 0}
    with server_errors(address), _as_it_was(), Connection(address.url(), transport_options=options) as connection:
        producer = connection.Producer(serializer="json", auto_declare=False)
        producer.publish(
            [list(args), dict(kwargs), embedded],
            exchange="",
            routing_key=queue,
            headers=headers,
            priority=priority,
            correlation_id=task_id,
            mandatory=True,
            retry=False,
        )
    return task_id


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Redis' own error, where kombu has made one of its own of it."""
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, redis.exceptions.RedisError | FerrymanError):
            raise error.__cause__ from None
        raise
