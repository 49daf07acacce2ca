"""A command in a terminal of its own: keys go in, and what it shows comes out, as a person's terminal has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from attrs import define, field
from rich.cells import cell_len

from .command import PROGRAM

SECONDS = 120.0
_HOME = re.compile(rb"\x1b\[H")
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@define
class Terminal:
    """A running command and its screen."""

    process: subprocess.Popen[bytes]
    descriptor: int
    columns: int
    height: int
    written: bytes = field(default=b"")

    @classmethod
    @contextmanager
    def start(cls, *arguments: str, columns: int = 80, lines: int = 24, **environment: str) -> Iterator[Self]:
        """Starts ``ferryman`` with these arguments; it is killed at the end of the block."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        variables |= {"TERM": "xterm", **environment}
        with subprocess.Popen([*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
            os.close(theirs)
            try:
                yield cls(process, ours, columns, lines)
            finally:
                process.kill()
                os.close(ours)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self.descriptor, keys.encode())

    def wait_for(self, *texts: str, without: str | None = None) -> str:
        """Waits until the screen shows all of these texts at once, and not that one; gives the screen."""
        deadline = time.monotonic() + SECONDS
        while True:
            screen = self.screen
            if all(text in screen for text in texts) and (without is None or without not in screen):
                return screen
            if time.monotonic() > deadline or not self._read(deadline):
                raise TimeoutError(f"{texts} did not show; the screen is\n{screen}")

    def wait_for_line(self, pattern: str) -> None:
        """Waits until a regular expression fits somewhere on the screen."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, self.screen):
            if time.monotonic() > deadline or not self._read(deadline):
                raise TimeoutError(f"{pattern} did not show; the screen is\n{self.screen}")

    def end(self) -> int:
        """Waits until the command has ended and gives its exit status."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(SECONDS)

    def _read(self, deadline: float) -> bool:
        """Takes in some output; False when there is no more."""
        ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        with contextlib.suppress(OSError):
            read = os.read(self.descriptor, 65536)
            self.written += read
            return bool(read)
        return False

    @property
    def screen(self) -> str:
        """What stands there now: the last whole screen, or all lines of a command that draws none."""
        texts = (text.decode("utf-8", "replace") for text in _HOME.split(self.written))
        first, *drawn = (_SEQUENCE.sub("", text).replace("\r", "") for text in texts)
        return next(filter(self._is_whole, reversed(drawn)), "") if drawn else first

    def _is_whole(self, screen: str) -> bool:
        """Whether all of a screen has been read: a terminal may give it in pieces."""
        lines = screen.split("\n")
        return len(lines) >= self.height and cell_len(lines[-1]) >= self.columns

    @property
    def lines(self) -> list[str]:
        """Its lines, without what is empty at their ends."""
        return [line.rstrip() for line in self.screen.split("\n")]
