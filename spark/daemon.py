"""Daemon: Spark's own on this machine, which knows what tasks need before it makes the processes that do them.

Each of them would load the same modules otherwise, for a second and more. Chosen by session.py; Java starts it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from ..migrations.engine.kernels import load_kernels
from ..migrations.engine.processes import ProcessRunner
from ..schema.family import family_names, get_family

MODULES = ("pyspark.worker", "ferryman.spark.engine", "ferryman.spark.source", "pandas")
"""pyarrow loads pandas when it first makes an array of a list."""


def load_all_kernels() -> None:
    """Loads the kernels of all families."""
    for family in map(get_family, family_names()):
        family.batch_prefilter(family.default_prefix, 0)
    load_kernels(ProcessRunner())


def quietly(work: Callable[..., int]) -> Callable[..., int]:
    """The same, for which it is no error that Java goes away: so ends each session. Then it returns 1, and the process ends."""

    def worker(*arguments: Any) -> int:
        with contextlib.suppress(BrokenPipeError):
            return work(*arguments)
        return 1

    return worker


if __name__ == "__main__":
    # Java puts an archive of PySpark's sources before the package that is installed: they would be compiled each time.
    others = [path for path in sys.path if not path.endswith("pyspark.zip")]
    if PathFinder.find_spec("pyspark", others):
        sys.path[:] = others
    for name in MODULES:
        import_module(name)
    load_all_kernels()
    daemon = import_module("pyspark.daemon")
    daemon.worker = quietly(daemon.worker)  # type: ignore[attr-defined]
    daemon.manager()
