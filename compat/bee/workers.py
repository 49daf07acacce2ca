"""Workers: who serves the queues of bee, and who is alive, as their heartbeats tell. Called by ``family.py`` and the rules."""

from __future__ import annotations

from collections.abc import Mapping

from ...schema.family import Keyspace

HEARTBEAT_MS = 60_000
"""A worker says every 30 s that it lives; one that has missed two is taken for dead."""


def consumers(keyspace: Keyspace) -> Mapping[str, int]:
    """How many live workers each queue has."""
    living = dict.fromkeys(keyspace.totals.names.get("served", ()), 0)
    for (measure, worker), beat in keyspace.totals.maxima.items():
        if measure.startswith("heartbeat:") and is_alive(keyspace, measure.removeprefix("heartbeat:"), worker):
            living[measure.removeprefix("heartbeat:")] += beat > 0
    return living


def is_alive(keyspace: Keyspace, queue: str, worker: str) -> bool:
    """Whether a worker has said lately that it serves a queue."""
    beat = keyspace.totals.maxima.get((f"heartbeat:{queue}", worker))
    return beat is not None and beat >= keyspace.now_ms - HEARTBEAT_MS
