"""Machine semaphore: lets only so many tasks of one machine do the same thing at a time. Called by migrate.py.

Tasks that begin together and share a server fairly end together too: all of them work while the server has nothing to do, and
then all wait for it. Who must queue for the server falls out of step with the others, and both are busy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial

from attrs import frozen

from . import storage

TIMEOUT_SECONDS = 10.0
"""A task that has no slot by then goes on without one: one that hangs with its slot costs the others time, and nothing else."""
POLL_SECONDS = 0.004


@frozen
class MachineSemaphore:
    """A semaphore for all tasks that have one with the same name in the same folder. A plain value: it travels to executors."""

    folder: str
    name: str
    slots: int
    """How many tasks may hold it at a time."""
    timeout: float = TIMEOUT_SECONDS
    """Seconds."""

    @contextlib.contextmanager
    def acquired(self) -> Iterator[None]:
        """Waits for a slot, and holds it for the length of the block. A process that ends frees its slot."""
        slots = range(self.slots)
        with contextlib.ExitStack() as stack:
            if storage.is_url(self.folder):
                lock = partial(_bind_one, stack, [f"\0{storage.base_name(self.folder)}-{self.name}-{slot}" for slot in slots])
            else:
                # The folder may be shared with other machines.
                paths = [os.path.join(self.folder, f"{self.name}-{socket.gethostname()}-{slot}.lock") for slot in slots]
                lock = partial(_lock_one, [stack.enter_context(open(path, "ab")).fileno() for path in paths])
            end = time.monotonic() + self.timeout
            while not lock() and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
            yield


def _lock_one(files: Sequence[int]) -> bool:
    """Locks the first of the files that is free; whether there was one, or the file system knows no locks."""
    for file in files:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:
            pass
        return True
    return False


def _bind_one(stack: contextlib.ExitStack, names: Sequence[str]) -> bool:
    """Binds a socket to the first of the names that is free, until the stack is closed; whether there was one.

    Object stores know no locks. These are of Linux's sockets that lie in no folder: where there are none, nobody waits.
    """
    for name in names:
        with contextlib.ExitStack() as attempt:
            try:
                attempt.enter_context(socket.socket(socket.AF_UNIX)).bind(name)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
            stack.push(attempt.pop_all())
            return True
    return False
