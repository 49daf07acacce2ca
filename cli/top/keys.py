"""Keys: single key presses from a terminal, for ``program.py``."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

from attrs import define, field

ESCAPE_SECONDS = 0.05
"""So soon the rest of an arrow key follows its first byte; what comes alone is Esc."""


@define
class Keys:
    """The keys that are pressed on a terminal that gives each at once."""

    descriptor: int
    _bytes: bytes = field(default=b"", init=False)

    def next(self, seconds: float) -> str | None:
        """The next key, an arrow as its whole sequence; None when none has come in time, "q" where the terminal is gone."""
        deadline = time.monotonic() + seconds
        while not self._bytes:
            if not self._more(max(0.0, deadline - time.monotonic())):
                return None
            if not self._bytes:
                return "q"
        if self._bytes == b"\x1b":
            self._more(ESCAPE_SECONDS)
        if self._bytes[:2] == b"\x1b[" and len(self._bytes) > 2:
            return self._taken(3).decode("ascii", "replace")
        for size in range(1, 5):
            with contextlib.suppress(UnicodeDecodeError):
                key = self._bytes[:size].decode()
                self._taken(size)
                return key
        self._taken(1)
        return ""

    def _more(self, seconds: float) -> bool:
        """Reads what there is; False: nothing has come."""
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self._bytes += os.read(self.descriptor, 1024)
        return bool(ready)

    def _taken(self, size: int) -> bytes:
        taken, self._bytes = self._bytes[:size], self._bytes[size:]
        return taken


@contextlib.contextmanager
def open_keys() -> Iterator[Keys]:
    """The terminal's keys for the length of the block; it is as before afterwards."""
    import termios  # there is none on Windows, where can_read_keys says so
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def can_read_keys() -> bool:
    """Whether stdin is a terminal that gives single keys."""
    if not sys.stdin.isatty():
        return False
    try:
        import termios  # noqa: F401
    except ImportError:
        return False
    return True
