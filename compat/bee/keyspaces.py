"""Keyspaces: what the keys of bee tell about the whole: whose they are, which version wrote them, who serves which queue.

Called by ``family.py`` and the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...schema.rule import Keyspace
from ...schema.text import to_text
from ...schema.totals import Totals

HEARTBEAT_MS = 60_000
"""A worker says every 30 s that it lives; one that has missed two is taken for dead."""

_RECORD = re.compile(r"(.+):h:jobs:[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.DOTALL)
"""Ids are version 1 UUIDs in lower case."""

_VERSIONS = (("0.0.3", "0.0.3 or older"), ("0.0.4", "0.0.4 or 0.0.5"), ("head", "head of the repository (2014-01-13)"))
"""What ``reader.tally`` counts as the trace of each version, oldest first."""


def prefixes(key: bytes, redis_type: str) -> Iterable[str]:
    """The prefix of a key that only bee can have: a job's record."""
    found = _RECORD.fullmatch(to_text(key)) if redis_type == "hash" else None
    return (found[1],) if found else ()


def version(totals: Totals) -> str | None:
    """All versions that have left jobs behind, oldest first."""
    found = [words for trace, words in _VERSIONS if totals.sums["trace", trace]]
    return ", then ".join(found) or None


def queues(totals: Totals) -> Iterable[str]:
    """The queues that workers have served; those with jobs only are seen by their jobs."""
    return totals.names.get("served", ())


def consumers(keyspace: Keyspace) -> Mapping[str, int]:
    """How many live workers each queue has."""
    living = dict.fromkeys(queues(keyspace.totals), 0)
    for (measure, worker), beat in keyspace.totals.maxima.items():
        if measure.startswith("heartbeat:") and is_alive(keyspace, measure.removeprefix("heartbeat:"), worker):
            living[measure.removeprefix("heartbeat:")] += beat > 0
    return living


def is_alive(keyspace: Keyspace, queue: str, worker: str) -> bool:
    """Whether a worker has said lately that it serves a queue."""
    beat = keyspace.totals.maxima.get((f"heartbeat:{queue}", worker))
    return beat is not None and beat >= keyspace.now_ms - HEARTBEAT_MS
