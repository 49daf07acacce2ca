"""Workers: what the totals of a keyspace say of the workers of one queue.

A worker stands in no job's keys, so rules about jobs ask here who is there. Called by the rules, the repairs and the family.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ...schema.family import Keyspace
from ...schema.totals import Totals
from .keys import LEASE_MS, layout


@frozen
class Workers:
    """The workers of one queue, by id."""

    idle: frozenset[str]
    busy: frozenset[str]
    seen: dict[str, float]
    """Last sign of each, in seconds."""

    @classmethod
    def of(cls, queue: str, totals: Totals) -> Workers:
        """Those that the totals know of."""
        measure = f"seen:{queue}"
        return cls(
            frozenset(totals.names.get(f"idle:{queue}", ())),
            frozenset(totals.names.get(f"busy:{queue}", ())),
            {worker: micros / 1_000_000 for (name, worker), micros in totals.maxima.items() if name == measure},
        )


def all_workers(totals: Totals) -> Iterator[tuple[str, Workers]]:
    """Every queue that has any, sorted. One look at the totals for all of them."""
    seen: dict[str, dict[str, float]] = {}
    for (measure, worker), micros in totals.maxima.items():
        kind, colon, queue = measure.partition(":")
        if kind == "seen" and colon:
            seen.setdefault(queue, {})[worker] = micros / 1_000_000
    for queue in sorted(totals.names.get("queues", ())):
        idle, busy = totals.names.get(f"idle:{queue}", ()), totals.names.get(f"busy:{queue}", ())
        if idle or busy or queue in seen:
            yield queue, Workers(frozenset(idle), frozenset(busy), seen.get(queue, {}))


def is_busy(worker: str, queue: str, totals: Totals) -> bool:
    """Whether a worker is among the busy ones of a queue."""
    return worker in totals.names.get(f"busy:{queue}", ())


def last_seen(worker: str, queue: str, totals: Totals) -> float | None:
    """A worker's last sign in a queue, in seconds."""
    micros = totals.maxima.get((f"seen:{queue}", worker))
    return None if micros is None else micros / 1_000_000


def is_misfit(role: str, queue: str, keyspace: Keyspace) -> bool:
    """Whether a container has the wrong Redis type, so that nothing can be said of its members."""
    key = layout(keyspace.prefix).key(role, queue=queue)
    return key.decode("utf-8", "surrogateescape") in keyspace.totals.names.get("misfits", ())


def alive(keyspace: Keyspace) -> dict[str, int]:
    """How many workers of each queue have given a sign within the time after which the program forgets them."""
    since = (keyspace.now_ms - LEASE_MS) / 1000
    return {
        queue: sum(last >= since for worker, last in workers.seen.items() if worker in workers.idle | workers.busy)
        for queue, workers in all_workers(keyspace.totals)
    }
