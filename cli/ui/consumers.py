"""Consumers: who takes jobs of which queues, how many each holds, and when its lease ends. ``/consumers``.

Of another system: its workers, what they hold, when the first lock of each ends, and when it was last heard of.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from starlette.responses import Response

from ...operations.broker import open_broker
from ...operations.workers import MOST, workers
from ...schema.connection.address import DEFAULT_FAMILY
from ...schema.connection.call import Command
from ...schema.native.scripts.results import upcoming
from .queuelist import queue_list
from .queues import MOST_PAGES
from .view import View

QUEUES = 200
"""Queues with consumers on one page."""
MOST_EACH = 200
"""Consumers of one queue."""


@frozen
class Consumer:
    """One consumer of one queue."""

    queue: str
    name: str
    held: int
    lease_ms: int
    """Until its lease ends; below 0 if it is over and nobody has looked since."""


def page(view: View) -> Response:
    """The page."""
    if view.address.family != DEFAULT_FAMILY:
        return _workers(view)
    chosen = view.get("queue")
    if chosen:
        return view.page("consumers", found=_consumers(view, [chosen]), list=None)
    queues = queue_list(view, "", "consumers", 0, QUEUES)
    names = [row.name for row in queues.rows if row.consumers]
    return view.page("consumers", found=_consumers(view, names), list=queues)


def _workers(view: View) -> Response:
    at = view.number("page", 1, MOST_PAGES)
    found = workers(view.address, (at - 1) * MOST)
    if found is None:
        return view.page("consumers", found=None, list=None)
    return view.page("workers", found=found, at=at, pages=-(-found.page.number // MOST))


def _consumers(view: View, queues: Sequence[str]) -> list[Consumer]:
    found: list[Consumer] = []
    with open_broker(view.address) as broker:
        keys = [broker.scripts.keys(queue) for queue in queues]
        reads = [Command(("ZRANGE", each.consumers, 0, MOST_EACH - 1, "WITHSCORES"), upcoming) for each in keys]
        leases = broker.link.run_all(reads)
        seconds, microseconds = broker.link.command("TIME")
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        pairs = [(each, name, ends_ms) for each, those in zip(keys, leases, strict=True) for name, ends_ms in those]
        held = broker.link.run_all([Command(("ZCARD", each.held(name)), int) for each, name, _ in pairs])
    for (each, name, ends_ms), number in zip(pairs, held, strict=True):
        found.append(Consumer(each.queue, name, number, ends_ms - now_ms))
    return found
