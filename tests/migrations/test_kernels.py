"""Kernels that nobody has compiled yet are compiled by processes, once, with one signature each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from ferryman.schema.columnar import binary_views
from ferryman.schema.columnar.binary_views import BinaryViews

AHEAD = """
from ferryman.migrations.engine.kernels import load_kernels
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.schema.columnar import binary_views, jit

missing = jit.modules_to_compile()
load_kernels(ProcessRunner(cores=2))
assert jit.modules_to_compile() == []
kernels = [each for those in jit._KERNELS.values() for each in those]
assert len(kernels) > 5
assert all(each._compiled.overloads for each in kernels), "not all are loaded"
assert not any(each._compiled.stats.cache_misses for each in kernels), "this process has compiled one itself"
assert binary_views.BinaryViews.of([b"q:job:7"]).int_between(b"q:job:").tolist() == [7]
print(*sorted(each.rpartition(".")[2] for each in missing))
"""


def test_the_first_process_has_all_that_is_missing_compiled_and_the_second_finds_it(tmp_path: Path) -> None:
    assert [_missing(tmp_path) for _ in range(2)] == ["automaton binary_views json_check", ""]


def _missing(folder: Path) -> str:
    environment = {**os.environ, "FERRYMAN_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", AHEAD], capture_output=True, text=True, timeout=580, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_views_of_memory_of_any_kind_take_the_same_machine_code() -> None:
    writable = BinaryViews.of([b"12", b"x", b"345"])
    readonly = BinaryViews(np.frombuffer(b"12x345", np.uint8), writable.starts, writable.sizes)
    assert (readonly.data.flags.writeable, writable.data.flags.writeable) == (False, True)
    every_other = writable.take(slice(None, None, 2))
    for found, numbers in ((readonly, [12, -1, 345]), (writable, [12, -1, 345]), (every_other, [12, 345])):
        assert found.parse_ints().tolist() == numbers
        assert found.parse_ints().dtype == np.int64
    assert len(binary_views._parse_ints._compiled.signatures) == 1
