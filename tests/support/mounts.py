"""A file system of its own with little room, for what happens when a disk is full or read-only."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(path: Path, size: str) -> Iterator[Path]:
    """A new folder with so much room, in memory, for the length of the block. Skips the test where nothing may be mounted."""
    path.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a file system here")
    try:
        yield path
    finally:
        # Detached at once; a worker of Spark's may still have a file there.
        subprocess.run(["umount", "-l", path], check=True)
