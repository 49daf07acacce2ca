"""EndFlags: memory in which pool processes tell the worker's main process that they have begun to end a job.

A job is held no more as soon as its end is written, but the main process hears of that only with the task's result, which may be
some time later: a result backend may be slow, handlers may run. Meanwhile it must not take the job for one that others have
ended, and terminate the task. The memory is shared by fork; a spawned process has other memory, and tells nobody.
"""

from __future__ import annotations

import mmap
from collections import deque

FLAGS = 8192
"""Runs that may have a flag at the same time. All others do without."""


class EndFlags:
    """Use ``flags``. Thread-safe, because every operation is a single one of the interpreter."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, FLAGS)
        self._free = deque(range(FLAGS))

    def take(self) -> int | None:
        """A flag that is not set; None if all are taken."""
        try:
            flag = self._free.popleft()
        except IndexError:
            return None
        self._memory[flag] = 0
        return flag

    def give_back(self, flag: int) -> None:
        """Nobody is interested in this flag any more."""
        self._free.append(flag)

    def set(self, flag: int) -> None:
        """Says that the end is under way."""
        self._memory[flag] = 1

    def is_set(self, flag: int) -> bool:
        """Whether some process has said so."""
        return bool(self._memory[flag])


flags = EndFlags()
"""This process's, and those of the processes that it forks."""
