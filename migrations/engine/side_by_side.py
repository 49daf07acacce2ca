"""Side by side: two series of steps at once, which share the cores of this machine. Called by processes.py.

Processes that read from one server wait for it together, and then leave it idle together. Those of two series read from two. Each
series has a thread, of which one works while the other waits for its processes: so no lock is held when another is forked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import define, field

from . import Progress
from .background import in_background

S = TypeVar("S")
T = TypeVar("T")


@define(eq=False)
class SideBySide:
    """The series that run: none that are known, or two, or the one that is left."""

    _turn: threading.Lock = field(factory=threading.Lock, init=False)
    """Held by the thread that works."""
    _running: int = field(default=0, init=False)
    _second: int | None = field(default=None, init=False)
    """The thread of the second series."""

    def share(self, cores: int) -> int:
        """How many of the cores are for the series that asks: all of them, once the other has ended."""
        if self._running < 2:
            return cores
        half = cores // 2
        return half if threading.get_ident() == self._second else cores - half

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Lets the other series work for the length of the block, which does nothing but wait."""
        if not self._running:
            yield
            return
        self._turn.release()
        try:
            yield
        finally:
            self._take_turn()

    def run(self, first: Callable[[Progress], S], second: Callable[[Progress], T], progress: Progress) -> tuple[S, T]:
        """Does both; returns what both return. An error of one ends the other, and is raised.

        The progress of the second is shown once the first has ended.
        """

        def do_second(progress_of_second: Progress) -> T:
            with self._turn:
                self._second = threading.get_ident()
                try:
                    return second(progress_of_second)
                finally:
                    self._running -= 1

        self._running = 2
        try:
            with in_background(do_second, progress, turn=self._turn, waiting=self.waiting) as (doing, progress_of_first):
                found = first(progress_of_first)
                self._running -= 1
            return found, doing.result()
        finally:
            self._running, self._second = 0, None

    def _take_turn(self) -> None:
        """Waits for the turn, and has it when an interruption is raised: who has it gives it back."""
        try:
            self._turn.acquire()
        except BaseException:
            self._turn.acquire()
            raise
