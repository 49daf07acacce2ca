"""Interleaving: runs functions in threads of their own, of which one at a time takes one step, in every order.

A step is one line of the watched source files, so each race between two lines of real code happens in some order, every time.
Orders are tried exhaustively, up to a number of preemptions: switches away from a thread that could have gone on. Races need one
or two of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, ModuleType
from typing import Any

from attrs import define, field

STEP_SECONDS = 60.0
"""The longest that one step may take: a thread that waits for another one outside of a SteppedLock would wait for ever."""


@define(eq=False)
class _Thread:
    """One function on its way."""

    function: Callable[[], object]
    may_go: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))
    is_blocked: Callable[[], bool] = lambda: False
    is_done: bool = False
    error: BaseException | None = None


class Interleaving:
    """One order of the steps of several functions. ``schedule``: which thread takes each of the first steps."""

    def __init__(self, watched: Iterable[str], schedule: Sequence[int] = ()) -> None:
        self._watched = frozenset(watched)
        self._schedule = schedule
        self._stepped = threading.Semaphore(0)
        self._threads: list[_Thread] = []
        self._current = threading.local()
        self.taken: list[tuple[int, list[int], int | None]] = []
        """For each step: the thread that took it, those that could have taken it, and the one that took the last step."""

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Runs the functions to their ends. Raises what one of them raises, and AssertionError for a deadlock."""
        self._threads = [_Thread(function) for function in functions]
        workers = [threading.Thread(target=self._body, args=(each,), daemon=True) for each in self._threads]
        for worker in workers:
            worker.start()
        last: int | None = None
        while able := [n for n, each in enumerate(self._threads) if not each.is_done and not each.is_blocked()]:
            step = len(self.taken)
            if step < len(self._schedule):
                chosen = self._schedule[step]
            else:
                chosen = last if last in able else able[0]
            self.taken.append((chosen, able, last))
            self._threads[chosen].may_go.release()
            assert self._stepped.acquire(timeout=STEP_SECONDS), f"thread {chosen} waits in step {step} of {self.order}"
            last = chosen
        assert all(each.is_done for each in self._threads), f"deadlock after the steps {self.order}"
        for each in self._threads:
            if each.error is not None:
                raise each.error

    @property
    def order(self) -> list[int]:
        """The thread of each step so far."""
        return [chosen for chosen, _, _ in self.taken]

    def wait_while(self, is_blocked: Callable[[], bool]) -> None:
        """Lets others take their steps until the condition is false. For locks."""
        thread: _Thread = self._current.thread
        thread.is_blocked = is_blocked
        self._pause(thread)
        thread.is_blocked = lambda: False

    def _body(self, thread: _Thread) -> None:
        self._current.thread = thread
        thread.may_go.acquire()
        sys.settrace(self._trace)
        try:
            thread.function()
        except BaseException as error:  # noqa: BLE001 - it goes to the test
            thread.error = error
        finally:
            sys.settrace(None)
            thread.is_done = True
            self._stepped.release()

    def _pause(self, thread: _Thread) -> None:
        self._stepped.release()
        thread.may_go.acquire()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._watched:
            return None
        if event == "line":
            self._pause(self._current.thread)
        return self._trace


@define
class SteppedLock:
    """In the place of an RLock: a thread that waits for it lets the others go on."""

    interleaving: Interleaving
    _owner: int | None = None
    _depth: int = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        while self._owner not in (None, me):
            self.interleaving.wait_while(lambda: self._owner is not None)
        self._owner, self._depth = me, self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


def in_every_order(
    case: Callable[[Interleaving], Callable[[], object]], modules: Iterable[ModuleType], preemptions: int = 2
) -> int:
    """Runs a case in every order of its threads' steps. Gives how many orders there were.

    ``case``: gets the interleaving, runs its functions with it, and gives the check of what must hold afterwards.
    ``modules``: those whose lines are steps.
    """
    watched = [str(module.__file__) for module in modules]
    schedules: list[tuple[int, ...]] = [()]
    tried = 0
    while schedules:
        schedule = schedules.pop()
        interleaving = Interleaving(watched, schedule)
        check = case(interleaving)
        try:
            check()
        except BaseException as error:
            error.add_note(f"in the order {interleaving.order}")
            raise
        tried += 1
        for step in range(len(schedule), len(interleaving.taken)):
            chosen, able, _ = interleaving.taken[step]
            for other in able:
                order = (*interleaving.order[:step], other)
                if other != chosen and _preemptions(order, interleaving) <= preemptions:
                    schedules.append(order)
    return tried


def _preemptions(order: Sequence[int], interleaving: Interleaving) -> int:
    return sum(
        last is not None and chosen != last and last in able
        for chosen, (_, able, last) in zip(order, interleaving.taken, strict=False)
    )
