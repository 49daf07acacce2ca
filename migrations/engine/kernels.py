"""Kernels: those of which no machine code is kept are compiled by all cores, before the processes are forked that call them.

That happens once for an installation. Called by process_engine.py, and by the daemon of Spark's executors.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial

from ...schema.columnar import jit
from . import Progress, silent
from .processes import ProcessRunner


def load_kernels(runner: ProcessRunner, progress: Progress = silent) -> None:
    """Loads all kernels of the modules that are loaded by now, for this process and those that are forked from it."""
    modules = sorted(jit.modules_to_compile(), key=_size, reverse=True)
    if modules:
        jit.load_compiler()  # once, and not in each process
    runner.run(partial(_compile, modules), len(modules), "compiling", progress)
    jit.load_kernels()


def _compile(modules: Sequence[str], part: int) -> str:
    """Compiles and keeps the kernels of a module."""
    jit.load_kernels(modules[part])
    return json.dumps(None)


def _size(module: str) -> int:
    """Bytes of its source: what takes longest should not begin last."""
    path = sys.modules[module].__file__
    return os.path.getsize(path) if path and os.path.exists(path) else 0
