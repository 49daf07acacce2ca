"""Step: parts that a runner does, whose rows go to files of one table, and whose summaries come back.

Rows are in files before anybody reads them, so that a step runs once however often its results are looked at: steps read
servers and write to them. A part that has no row leaves no file. Files of attempts that do not count are named by no summary:
nobody reads them, and they go with the folder. Called by the snapshot and by all that work on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa
from attrs import frozen
from pyarrow import parquet

from . import Progress, silent, storage
from .failures import work_errors
from .output import Output
from .runner import Runner
from .tables import ROWS, Table, batches

T = TypeVar("T")

GROUP_BYTES = 8 << 20
"""Rows of a file that a reader decodes at once, about."""


@frozen
class RowsInFiles(Generic[T]):
    """Results that a step has left in its folder."""

    table: Table[T]
    files: tuple[str, ...]
    """With the rows (Parquet)."""
    summaries: tuple[str, ...]
    """Of all parts."""

    def rows(self) -> Iterator[T]:
        """See Results.rows."""
        for path in self.files:
            with work_errors(path), storage.open_file(path) as opened, parquet.ParquetFile(opened) as file:
                for batch in file.iter_batches(ROWS):
                    yield from self.table.rows(batch)


def run_step(
    runner: Runner,
    task: Callable[[int], Output[T]],
    parts: int,
    table: Table[T],
    path: str,
    phase: str,
    progress: Progress = silent,
    *,
    light: bool = False,
) -> RowsInFiles[T]:
    """Does ``task`` for each part, and leaves its rows in the new folder ``path``. ``light``, and errors: as for Runner.run."""

    def write_part(part: int) -> str:
        with work_errors(path):
            output = task(part)
            file = _write_parquet(path, table, output.rows)
            return json.dumps([file, output.summary()])

    with work_errors(path):
        storage.make_folder(path)
    answers = [json.loads(answer) for answer in runner.run(write_part, parts, phase, progress, light=light)]
    files = tuple(file for file, _ in answers if file is not None)
    return RowsInFiles(table, files, tuple(summary for _, summary in answers))


def _write_parquet(path: str, table: Table[Any], rows: Iterable[Any]) -> str | None:
    """Writes a new file in the folder, and gives its path; None, and no file, where there is no row."""
    found = batches(table, rows)
    first = next(found, None)
    if first is None:
        return None
    name = storage.new_name(path, ".parquet")
    try:
        with storage.create(name) as file, parquet.ParquetWriter(file, table.arrow) as writer:
            for group in _row_groups(chain([first], found)):
                writer.write_table(pa.Table.from_batches(group))
    except BaseException:
        with suppress(OSError):
            storage.delete(name)
        raise
    return name


def _row_groups(found: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches, as many together as Parquet should keep together."""
    group: list[pa.RecordBatch] = []
    for batch in found:
        group.append(batch)
        if sum(each.nbytes for each in group) >= GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group
