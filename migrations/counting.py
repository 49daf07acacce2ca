"""Counting: how many jobs each queue has, from the lengths of its indexes: a few commands a queue, however many jobs there are.

For whoever looks every few seconds. Only families whose indexes tell every state can be counted so (``KeyFamily.count``); the
jobs of others must be read. A job that stands in no index, or in two, is counted as it stands there: that is what audits are
for. Only reads. Called by the Spark streams and ``ferryman metrics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import redis

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.family import Command, CountQuery
from ..schema.job import State
from .probes import clock_ms
from .queues import QueueStatus

SERVERS = (Kind.TCP, Kind.TLS, Kind.UNIX, Kind.SENTINEL)
"""Addresses of one server, which any command may be sent to."""


def is_countable(address: Address) -> bool:
    """Whether ``count`` gives numbers."""
    return address.kind in SERVERS and address.key_family.count(address.prefix, 0) is not None


def count(address: Address, now_ms: int | None = None, /, **overrides: Any) -> tuple[int, list[QueueStatus]] | None:
    """The moment, Unix ms, and the jobs of every queue by state, queues by name; None where they must be read for that.

    The moment is the server's own if none is given. A status tells states alone. ``overrides`` go to redis-py's connection.
    Raises ServerError naming the address.
    """
    if not is_countable(address):
        return None
    with open_client(address, **overrides) as client, open_pipeline(client) as pipe:
        now_ms = clock_ms(client) if now_ms is None else now_ms
        query = address.key_family.count(address.prefix, now_ms)
        counted = _counted(pipe, query) if query is not None else {}
    return now_ms, [QueueStatus(queue, states) for queue, states in sorted(counted.items())]


def _counted(pipe: PipelineConnection, query: CountQuery) -> Mapping[str, Counter[State]]:
    """Sends what the family wants to know, until it knows enough."""
    commands = next(query)
    while True:
        try:
            commands = query.send(_replies(pipe, commands))
        except StopIteration as end:
            found: Mapping[str, Counter[State]] = end.value
            return found


def _replies(pipe: PipelineConnection, commands: Sequence[Command]) -> list[Any]:
    """The replies; None for a key of a wrong type. Raises any other error reply."""
    replies = pipe.call(commands)
    for index, reply in enumerate(replies):
        if isinstance(reply, redis.exceptions.ResponseError) and str(reply).startswith("WRONGTYPE"):
            replies[index] = None
        elif isinstance(reply, Exception):
            raise reply
    return replies
