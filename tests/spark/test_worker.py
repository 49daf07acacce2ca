"""A worker of Spark begins with all modules, does not search them for cycles, task after task, and keeps its memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from ferryman.spark.daemon import quietly
from ferryman.spark.runner import Batches
from pyspark.sql import SparkSession

CYCLES = """
import gc
from ferryman.migrations.engine.worker import GC_THRESHOLD, prepare_process

prepare_process()
loaded = gc.get_freeze_count()
assert loaded > GC_THRESHOLD
circle = []
circle.append(circle)
prepare_process()
assert gc.get_freeze_count() == loaded, "few values are not worth it, and may be garbage one day"
del circle
assert gc.collect() == 1
more = [[] for _ in range(2 * GC_THRESHOLD)]
prepare_process()
assert gc.get_freeze_count() > loaded + GC_THRESHOLD
"""
MEMORY = """
import numpy as np
from ferryman.migrations.engine.worker import prepare_process

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) >> 10

prepare_process()
before = resident()
batch = np.ones(64 << 20, np.uint8)
del batch
assert resident() > before + 50, (before, resident())
"""


def test_a_task_finds_loaded_what_it_needs(spark: SparkSession) -> None:
    def look(_rows: Batches) -> Batches:
        daemon = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        there = [name for name in ("numba", "pyarrow", "ferryman.spark.engine") if name in sys.modules]
        seen = [*daemon, str(sys.modules["pyspark"].__file__), *there]
        yield pa.RecordBatch.from_arrays([pa.array(seen)], ["seen"])

    seen = [row.seen for row in spark.range(1).mapInArrow(look, "seen string").collect()]
    assert "ferryman.spark.daemon" in seen
    assert {"numba", "pyarrow", "ferryman.spark.engine"} <= set(seen)
    assert not any("pyspark.zip" in each for each in seen)


KEPT = """
import sys
from ferryman.schema.columnar import binary_views
from ferryman.schema.columnar.binary_views import BinaryViews

if sys.argv[1:] == ["load"]:
    from ferryman.spark.daemon import load_all_kernels

    load_all_kernels()
    assert "ferryman.compat.kue.columnar.batch_prefilter" in sys.modules
    assert binary_views._int_between._compiled.overloads, "what was kept is not loaded"
assert BinaryViews.of([b"q:job:7"]).int_between(b"q:job:").tolist() == [7]
if sys.argv[1:]:
    assert not binary_views._int_between._compiled.stats.cache_misses
"""


def test_a_daemon_loads_the_loops_that_another_process_has_compiled(tmp_path: Path) -> None:
    script = tmp_path / "kept.py"
    script.write_text(KEPT)
    for arguments in ([], ["load"]):
        command = [sys.executable, str(script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
        assert done.returncode == 0, done.stderr


ENDS = """
import os
from ferryman.spark.session import session

spark = session(brief=True, tables=False)
numbers = spark.sparkContext.parallelize(range(4), 4)
print(*set(numbers.map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower()).collect()))
"""


@pytest.mark.parametrize(("folder", "printed"), [("short", "true"), (40 * "long", "false")])
def test_workers_speak_over_a_socket_of_this_machine_and_end_with_the_session_without_a_word(
    tmp_path: Path, folder: str, printed: str
) -> None:
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    with tempfile.TemporaryDirectory() as place:  # tmp_path is too long already
        temporary = Path(place, folder)
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary)}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=580, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed
    assert "Traceback" not in done.stderr


def test_a_worker_whose_java_has_gone_ends() -> None:
    def worker(*_: object) -> int:
        raise BrokenPipeError

    assert quietly(worker)("socket", True) == 1
    assert quietly(lambda *_: 0)("socket", True) == 0


def test_what_has_been_loaded_is_left_alone_and_what_comes_later_is_not(tmp_path: Path) -> None:
    _run(CYCLES, tmp_path)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the GNU C library")
def test_memory_stays_for_the_next_batch(tmp_path: Path) -> None:
    _run(MEMORY, tmp_path)


def _run(program: str, folder: Path) -> None:
    file = folder / "program.py"
    file.write_text(program)
    subprocess.run([sys.executable, str(file)], check=True)
