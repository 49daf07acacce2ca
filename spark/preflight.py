"""Preflight: what must hold on a cluster before work begins, asked of its executors instead of found out half-way.

An executor must come at all, its Python must have ferryman, and it must reach the folder through which the steps hand on their
results. On this machine alone all of it holds by itself. Called by the engine and by frames.py.
"""

from __future__ import annotations

import errno
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from ..migrations.engine import Progress, silent, storage
from ..migrations.engine.failures import explained, located
from ..migrations.engine.resume import BEGUN
from ..schema.errors import ServerError, UsageError
from .runner import Batches, run_action
from .session import is_here

TIMEOUT_SECONDS = 300.0
"""Seconds in which the first executor must have answered: a cluster may have to fetch images and to start machines."""


def check(spark: SparkSession, folder: str, progress: Progress = silent) -> None:
    """Asks executors whether they can work with ``folder``.

    Raises UsageError when they can't, or lack ferryman, and ServerError when none comes.
    """
    context = spark.sparkContext
    if is_here(context.master):
        return
    deadline = time.monotonic() + TIMEOUT_SECONDS

    def wait(phase: str, done: int, total: int | None) -> None:
        progress(phase, done, total)
        if not done and time.monotonic() > deadline:
            raise ServerError(
                f"{context.master}: no executor has answered in {TIMEOUT_SECONDS:g} s; has the cluster a worker with so much "
                "memory and so many cores free, and can it reach this machine?"
            )

    number = context.defaultParallelism
    visits = spark.range(0, number, 1, number).mapInArrow(_visit_task(folder), "id bigint")
    run_action(spark, lambda: visits.write.format("noop").mode("overwrite").save(), "waiting for executors", wait)


def _visit_task(folder: str) -> Callable[[Batches], Batches]:
    """The task that writes into the folder, which is new, so that there can be no other of its name on a disk."""

    def visit(rows: Batches) -> Batches:
        with located("waiting for executors"):
            try:
                if storage.is_url(folder):
                    _visit_url(folder)
                else:
                    with tempfile.TemporaryFile(dir=folder) as file:
                        file.write(b"here")
            except OSError as error:
                reason = f"executors can't write to the driver's folder {folder} ({error.strerror or explained(error)[0]})"
                raise UsageError(f"{reason}; let --work name one that all of them share") from None
        for row in rows:
            yield pa.RecordBatch.from_arrays([row.column("id")], ["id"])

    return visit


def _visit_url(folder: str) -> None:
    """Object stores of any name take whatever they are given: this one must have what the driver has left."""
    if storage.read(storage.join(folder, BEGUN)) != storage.base_name(folder).encode():
        raise FileNotFoundError(errno.ENOENT, "it is another one that they find by this name")
    storage.write(storage.new_name(folder, ".visit"), b"here")
