"""A worker of Spark does not search what is loaded for cycles, task after task, and keeps the memory that it has had."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

CYCLES = """
import gc
from ferryman.spark.worker import MANY, settle

settle()
loaded = gc.get_freeze_count()
assert loaded > MANY
circle = []
circle.append(circle)
settle()
assert gc.get_freeze_count() == loaded, "few values are not worth it, and may be garbage one day"
del circle
assert gc.collect() == 1
more = [[] for _ in range(2 * MANY)]
settle()
assert gc.get_freeze_count() > loaded + MANY
"""
MEMORY = """
import numpy as np
from ferryman.spark.worker import settle

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) >> 10

settle()
before = resident()
batch = np.ones(64 << 20, np.uint8)
del batch
assert resident() > before + 50, (before, resident())
"""


def test_what_has_been_loaded_is_left_alone_and_what_comes_later_is_not(tmp_path: Path) -> None:
    _run(CYCLES, tmp_path)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the GNU C library")
def test_memory_stays_for_the_next_batch(tmp_path: Path) -> None:
    _run(MEMORY, tmp_path)


def _run(program: str, folder: Path) -> None:
    file = folder / "program.py"
    file.write_text(program)
    subprocess.run([sys.executable, str(file)], check=True)
