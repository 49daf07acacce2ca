"""``ferryman metrics --listen`` as a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from .command import PROGRAM


@contextlib.contextmanager
def exporter(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``ferryman metrics … --listen``, and where it listens; killed at the end of the block unless it has ended."""
    with subprocess.Popen([*PROGRAM, "metrics", *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline().split()[-1]
        finally:
            process.kill()
