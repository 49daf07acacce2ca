"""Turnstile: lets only so many tasks of one machine do the same thing at a time. Called by migrate.py.

Tasks that begin together and share a server fairly end together too: all of them work while the server has nothing to do, and
then all wait for it. Who must queue for the server falls out of step with the others, and both are busy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence

from attrs import frozen

PATIENCE_SECONDS = 10.0
"""Who is not let in by then goes in nevertheless: one that hangs inside costs the others time, and nothing else."""
PAUSE_SECONDS = 0.004


@frozen
class Turnstile:
    """A turnstile for all tasks that have one with the same name in the same folder. A plain value: it travels to executors."""

    folder: str
    name: str
    room: int
    """How many may be inside."""
    patience: float = PATIENCE_SECONDS

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Waits to be let in, for the length of the block. A process that ends is outside."""
        with contextlib.ExitStack() as files:
            # The folder may be shared with other machines.
            paths = [os.path.join(self.folder, f"{self.name}-{socket.gethostname()}-{place}.lock") for place in range(self.room)]
            places = [files.enter_context(open(path, "ab")).fileno() for path in paths]
            end = time.monotonic() + self.patience
            while not _enter(places) and time.monotonic() < end:
                time.sleep(PAUSE_SECONDS)
            yield


def _enter(places: Sequence[int]) -> bool:
    """Locks the first of the files that is free; whether there was one, or the file system knows no locks."""
    for place in places:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:
            pass
        return True
    return False
