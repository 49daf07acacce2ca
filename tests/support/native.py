"""What the tests of the native queue share: jobs to publish, and a short way to send calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from ferryman.schema.connection.call import Call
from ferryman.schema.native.scripts.publication import Publication

LEASE = 30_000

Send = Callable[[Call[Any]], Any]
"""Sends a call to the server of the test: the fixture ``send``."""


def jobs(*numbers: int, **fields: Any) -> list[Publication]:
    """Publications ``p-<n>``."""
    return [Publication(f"p-{number}", b"{}\nbody", **fields) for number in numbers]


def ids(taken: Any) -> list[str]:
    return [job.id for job in taken.jobs]


def expiring(client: redis.Redis) -> set[bytes]:
    """The keys that carry a TTL, but for those of the history."""
    return {key for key in client.scan_iter() if client.pttl(key) != -1 and b"}:history" not in key}
