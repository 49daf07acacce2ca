"""Worker: a Python process of Spark is made ready for the next of its tasks. Called at the beginning of each."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache
from importlib.abc import MetaPathFinder

import pyarrow as pa

GC_THRESHOLD = 20_000
"""So many values take a millisecond to search for cycles."""
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Names of settings in the GNU C library's malloc.h."""
MALLOC_KEEP_BYTES = 1 << 30
MALLOC_STEP_BYTES = 16 << 20


def prepare_process() -> None:
    """Takes what is loaded by now out of all later searches for cycles, and lets freed memory stay with the process."""
    _keep_memory()
    # Spark's workers search after each task. Kernels that were compiled meanwhile (schema/columnar/jit.py) are hundreds of
    # thousands of values, so this is not for the first task alone.
    if len(gc.get_objects()) > GC_THRESHOLD:
        gc.freeze()


def leave_pandas_out() -> None:
    """Lets Arrow do without pandas in this process: it would load it, for half a second, when it first looks at a list."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        pa.array([])  # from here on it knows
        sys.meta_path.remove(_NoPandas)


class _NoPandas(MetaPathFinder):
    """Finds no pandas, and says so before another finds it."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


@cache
def _keep_memory() -> None:
    """Batches come and go by the megabyte. Memory that goes back to the system is cleared page by page when it is wanted again,
    which takes an eighth of the time of a task that reads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        settings = (TRIM_THRESHOLD, MALLOC_KEEP_BYTES), (TOP_PAD, MALLOC_STEP_BYTES), (MMAP_THRESHOLD, MALLOC_KEEP_BYTES)
        for setting, value in settings:
            mallopt(setting, value)
        pa.set_memory_pool(pa.system_memory_pool())
