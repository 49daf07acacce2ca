"""In the background: work in a thread of its own, beside other work. Called by side_by_side.py and by Spark's runner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from . import Progress, silent

T = TypeVar("T")

POLL_SECONDS = 0.25
"""How often the progress of the work is shown once there is nothing else to tell."""


class Cancelled(Exception):
    """Raised in a thread that nobody waits for any more."""


@contextlib.contextmanager
def in_background(
    work: Callable[[Progress], T],
    progress: Progress = silent,
    *,
    turn: contextlib.AbstractContextManager[object] | None = None,
    waiting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Iterator[tuple[Future[T], Progress]]:
    """Does ``work`` in a thread of its own while the block does something else; ends when both have.

    Gives what it will return, and the progress for the block to tell: that raises the error of the work as soon as there is one.
    The work's own is shown once the block has nothing more to tell, and stops the work when the block fails.

    ``turn``: held by the block, and until the work has ended too, or is to be stopped. ``waiting``: gives it up for a while.
    """
    is_over = threading.Event()
    latest: list[tuple[str, int, int | None]] = []

    def of_work(phase: str, done: int, total: int | None) -> None:
        latest[:] = [(phase, done, total)]
        if is_over.is_set():
            raise Cancelled

    with ThreadPoolExecutor(1) as pool, turn or contextlib.nullcontext():
        doing = pool.submit(work, of_work)

        def of_block(phase: str, done: int, total: int | None) -> None:
            if doing.done():
                doing.result()
            progress(phase, done, total)

        try:
            yield doing, of_block
            while not doing.done():
                with waiting():
                    wait([doing], POLL_SECONDS)
                for each in latest:
                    progress(*each)
        except BaseException:
            is_over.set()
            raise
