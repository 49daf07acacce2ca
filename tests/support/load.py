"""A steady load of tasks, for tests in which something happens to the broker meanwhile."""

from __future__ import annotations

import itertools
import threading

from attrs import define, field

from .topologies import wait_until

NOTE = "tests.support.tasks.note"
POLICY = {"max_retries": 1000, "interval_start": 0.05, "interval_step": 0}
"""Publishes again for as long as the broker may take to come back."""


@define
class Load:
    """Publishes one task after another, from a thread, until told to stop."""

    url: str
    queue: str = "celery"
    published: list[int] = field(factory=list)
    """The names of the tasks that the broker has answered for."""
    _ended: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from celery import Celery

        with Celery(broker=self.url) as app:
            for n in itertools.count():
                if self._ended.wait(0.02):
                    return
                app.send_task(NOTE, [n], queue=self.queue, retry_policy=POLICY)
                self.published.append(n)

    def wait_for_more(self) -> None:
        """Returns when the broker has taken some more."""
        goal = len(self.published) + 10
        wait_until(lambda: len(self.published) >= goal)

    def stop(self) -> None:
        """Ends with the task that is under way."""
        self._ended.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
