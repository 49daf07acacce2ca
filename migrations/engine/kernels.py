"""Kernels: compile with all cores those that are not cached, before the processes are forked that call them.

That happens once for a user and version. Called by process_engine.py, and by the daemon of Spark's executors.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial

from ...schema.columnar import jit
from ...schema.columnar.cache_folder import is_writable
from . import Progress, silent
from .processes import ProcessRunner


def load_kernels(runner: ProcessRunner, progress: Progress = silent) -> None:
    """Load the kernels of all modules that are imported by now, for this process and those that are forked from it."""
    modules = sorted(jit.modules_to_compile(), key=_size, reverse=True)
    if modules and is_writable():  # else no other process could hand its machine code to this one
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
