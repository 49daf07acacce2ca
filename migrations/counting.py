"""Counting: how many jobs each queue has, from the lengths of its indexes: a few commands a queue, however many jobs there are.

For whoever looks every few seconds. Only families whose indexes tell every state can be counted so (``KeyFamily.count``); the
jobs of others must be read. A job that stands in no index, or in two, is counted as it stands there: that is what audits are
for. Only reads. Called by the Spark streams and ``ferryman metrics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import redis

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.family import Command
from ..schema.job import State
from ..schema.waits import Waits
from .probes import clock_ms
from .queues import QueueStatus

T = TypeVar("T")

SERVERS = (Kind.TCP, Kind.TLS, Kind.UNIX, Kind.SENTINEL)
"""Addresses of one server, which any command may be sent to."""


def is_countable(address: Address) -> bool:
    """Whether ``count`` gives numbers."""
    return address.kind in SERVERS and address.key_family.count(address.prefix, 0) is not None


def count(address: Address, now_ms: int | None = None, /, **overrides: Any) -> tuple[int, list[QueueStatus]] | None:
    """The moment, Unix ms, and the jobs of every queue by state, queues by name; None where they must be read for that.

    The moment is the server's own if none is given. A status tells priorities and ages where ``KeyFamily.waits`` does.
    ``overrides`` go to redis-py's connection.
    Raises ServerError naming the address.
    """
    if not is_countable(address):
        return None
    with open_client(address, **overrides) as client, open_pipeline(client) as pipe:
        now_ms = clock_ms(client) if now_ms is None else now_ms
        query = address.key_family.count(address.prefix, now_ms)
        counted: Mapping[str, Counter[State]] = answer(pipe, query) if query is not None else {}
        waits_query = address.key_family.waits(address.prefix, counted)
        waits: Mapping[str, Mapping[str, Waits]] = answer(pipe, waits_query) if waits_query is not None else {}
    return now_ms, [_status(queue, states, waits.get(queue, {}), now_ms) for queue, states in sorted(counted.items())]


def _status(queue: str, states: Counter[State], waits: Mapping[str, Waits], now_ms: int) -> QueueStatus:
    ages = [now_ms - each.since_ms for each in waits.values() if each.since_ms is not None]
    priorities = Counter({priority: each.number for priority, each in waits.items()})
    return QueueStatus(queue, states, max(ages, default=None), priorities=priorities)


def answer(pipe: PipelineConnection, query: Generator[Sequence[Command], Sequence[Any], T]) -> T:
    """Sends what a family wants to know, until it knows enough."""
    replies: Sequence[Any] | None = None
    while True:
        try:
            commands = next(query) if replies is None else query.send(replies)
        except StopIteration as end:
            found: T = end.value
            return found
        replies = _replies(pipe, commands)


def _replies(pipe: PipelineConnection, commands: Sequence[Command]) -> list[Any]:
    """The replies; None for a key of a wrong type. Raises any other error reply."""
    replies = pipe.call(commands)
    for index, reply in enumerate(replies):
        if isinstance(reply, redis.exceptions.ResponseError) and str(reply).startswith("WRONGTYPE"):
            replies[index] = None
        elif isinstance(reply, Exception):
            raise reply
    return replies
