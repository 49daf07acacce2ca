"""EndFlags: memory that a worker's main process shares with its pool processes, two bytes for each run of a job.

In one, the pool process says that it has begun to end the job. A job is held no more as soon as its end is written, but the main
process hears of that only with the task's result, which may be some time later: a result backend may be slow, handlers may run.
Meanwhile it must not take the job for one that others have ended, and terminate the task. In the other, the main process says
that the same worker has taken the job again, so that the pool process does not end the new run with the end of the old one.

The memory is shared by fork. A spawned process has memory of its own: neither side hears of the other.
"""

from __future__ import annotations

import mmap
import sys
from collections import deque

FLAGS = 8192
"""Runs that may have a flag at the same time. All others do without."""


class EndFlags:
    """Use ``flags``. Thread-safe, because every operation is a single one of the interpreter."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * FLAGS)
        self._free = deque(range(FLAGS))

    def take(self) -> int | None:
        """A flag that is not set; None if all are taken."""
        try:
            flag = self._free.popleft()
        except IndexError:
            return None
        self._memory[flag] = self._memory[FLAGS + flag] = 0
        return flag

    def give_back(self, flag: int) -> None:
        """Nobody is interested in this flag any more."""
        self._free.append(flag)

    def set(self, flag: int) -> None:
        """Say that the end is under way."""
        self._memory[flag] = 1

    def is_set(self, flag: int) -> bool:
        """Whether a process has said so."""
        return bool(self._memory[flag])

    def set_taken_again(self, flag: int) -> None:
        """Say that the job has a newer run."""
        self._memory[FLAGS + flag] = 1

    def is_taken_again(self, flag: int) -> bool:
        """Whether the main process has said so."""
        return bool(self._memory[FLAGS + flag])

    @property
    def are_shared(self) -> bool:
        """Whether the pool processes of this worker share the memory."""
        billiard = sys.modules.get("billiard")
        return billiard is None or billiard.get_start_method() == "fork"


flags = EndFlags()
"""This process's, and those of the processes that it forks."""
