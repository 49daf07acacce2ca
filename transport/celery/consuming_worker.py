"""ConsumingWorker: what a Celery worker can take: how many of its processes are free, and which tasks it knows.

A job of another system that was taken counts as active there, with its clocks running, so none is taken before a process can
begin it. Celery itself takes more, to have them at hand. Called by ``channel.py``. Imports nothing of Celery: where there is a
worker, its modules are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from attrs import define

STATE = "celery.worker.state"


@define(eq=False)
class ConsumingWorker:
    """A worker of this process."""

    consumer: Any
    """Celery's ``Consumer``, which has the app, the pool, and the controller."""
    _tasks: frozenset[str] = frozenset()
    _count: int = -1

    @property
    def tasks(self) -> frozenset[str]:
        """The names of the tasks that it knows; its own about chords, groups and the like are among them."""
        known = self.consumer.app.tasks
        if len(known) != self._count:
            self._tasks, self._count = frozenset(map(str, known)), len(known)
        return self._tasks

    @property
    def limit(self) -> int:
        """How many tasks can run at once. A pool that grows by need (``--autoscale``) gets one more, for which it grows."""
        controller, pool = getattr(self.consumer, "controller", None), self.consumer.pool
        processes = int(getattr(pool, "num_processes", None) or 1)
        return min(processes + 1, int(getattr(controller, "max_concurrency", None) or processes))

    def free(self, held: int, pending: int) -> int:
        """How many more tasks could begin at once. ``held``: jobs that the channel has; ``pending``: not handed out yet."""
        reserved = len(getattr(sys.modules.get(STATE), "reserved_requests", ()))
        return max(0, self.limit - max(held, reserved + pending))


def consuming_worker(callback: Callable[..., Any]) -> ConsumingWorker | None:
    """The Celery worker to which a consumer's callback hands messages; None for code that sees to messages itself.

    kombu's consumer calls the worker's handler, a function made by, and around, Celery's ``Consumer``.
    """
    handler = getattr(getattr(callback, "__self__", None), "on_message", None)
    if not str(getattr(handler, "__module__", "")).startswith("celery.worker"):
        return None
    for cell in getattr(handler, "__closure__", None) or ():
        # The consumer itself, or one of its methods, by Celery's version.
        found = getattr(cell.cell_contents, "__self__", cell.cell_contents)
        if hasattr(found, "pool") and hasattr(found, "app"):
            return ConsumingWorker(found)
    return None
