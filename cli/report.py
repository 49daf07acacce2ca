"""``--report``: what a command has found, as files for people and programs. Called by ``audit.py`` and ``verify.py``.

    NAME.html      one page: nothing is fetched and nothing runs, so it can be mailed, printed and kept (html.py)
    NAME.jsonl     one finding or difference a line, then a summary
    NAME.parquet   a folder with two tables, the rows and the totals

A report appears under its name when it is whole: until then it stands beside it as ``.NAME.part``, and goes if the command fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
from attrs import asdict, frozen

from ..schema.errors import ServerError, UsageError
from ..schema.text import dump_json

F = TypeVar("F", bound=Callable[..., Any])
Row = Any
"""A Finding or a Difference."""


def report_option(command: F) -> F:
    """``--report``; the command gets the paths as ``reports``."""
    return click.option(
        "--report",
        "reports",
        metavar="PATH",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Also leave all of it in a file: .html (a page), .jsonl (JSON lines) or .parquet (a folder of tables). Repeatable.",
    )(command)


@frozen
class Outcome:
    """What is known when all rows are reported."""

    summary: Mapping[str, Any]
    """For JSON."""
    columns: Mapping[str, type]
    """Of the table of totals: str, int or float."""
    totals: Iterable[Mapping[str, Any]]
    """The rows of that table; what is no column of it is left out."""
    page: Callable[[], str]
    """Makes the HTML page."""


class Reports:
    """All reports of one command."""

    def __init__(self, files: Sequence[_Report]) -> None:
        self._files = files

    def add(self, row: Row) -> None:
        """Takes one finding or difference."""
        for file in self._files:
            with _named_faults(file.path):
                file.add(row)

    def finish(self, outcome: Outcome) -> None:
        """Completes all of them, and gives them their names."""
        for file in self._files:
            with _named_faults(file.path):
                file.finish(outcome)
        for file in self._files:
            with _named_faults(file.path):
                os.replace(file.unfinished, file.path)


@contextlib.contextmanager
def _named_faults(path: Path) -> Iterator[None]:
    """A disk that is full does not say whose file it is."""
    try:
        yield
    except OSError as error:
        raise ServerError(
            f"{path}: the report can't be written ({error.strerror or error}); name a place with more room"
        ) from error


@contextlib.contextmanager
def open_reports(paths: Sequence[Path], rows: str) -> Iterator[Reports]:
    """The reports with these names, open for the length of the block; ``rows``: the name of the table of rows.

    What has not been finished leaves nothing behind. Raises UsageError for a name that tells no format, and for a folder that
    is there already; ServerError where nothing can be written.
    """
    report_types = [_report_type(path) for path in paths]
    with contextlib.ExitStack() as stack:
        files = []
        for path, report_type in zip(paths, report_types, strict=True):
            file = report_type(path, rows)
            stack.callback(file.discard)
            with _named_faults(path):
                file.open()
            files.append(file)
        yield Reports(files)


def _report_type(path: Path) -> type[_Report]:
    report_type = _REPORT_TYPES.get(path.suffix.lower())
    if report_type is None:
        raise UsageError(f"{path}: a report's name ends in {', '.join(sorted(_REPORT_TYPES))}")
    if path.is_dir():
        raise UsageError(f"{path}: there is such a folder already; remove it, or choose another name")
    return report_type


class _Report(ABC):
    """One file or folder on its way."""

    def __init__(self, path: Path, rows: str) -> None:
        self.path = path
        self.rows = rows
        self.unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")

    @abstractmethod
    def open(self) -> None:
        """Begins. Raises OSError where nothing can be written."""

    def add(self, row: Row) -> None:  # noqa: B027 - a page takes no rows
        """Takes a row."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> None:
        """Writes what is left."""

    def discard(self) -> None:
        """Takes away what was not finished."""
        if self.unfinished.is_dir():
            shutil.rmtree(self.unfinished)
        else:
            self.unfinished.unlink(missing_ok=True)


class _Page(_Report):
    def open(self) -> None:
        self.unfinished.touch()

    def finish(self, outcome: Outcome) -> None:
        self.unfinished.write_text(outcome.page(), "utf-8")


class _Lines(_Report):
    _file: BinaryIO

    def open(self) -> None:
        self._file = self.unfinished.open("wb")

    def add(self, row: Row) -> None:
        self._write(asdict(row))

    def finish(self, outcome: Outcome) -> None:
        self._write(outcome.summary)
        self._file.close()

    def discard(self) -> None:
        if hasattr(self, "_file"):
            with contextlib.suppress(OSError):  # what has not been written need not be
                self._file.close()
        super().discard()

    def _write(self, value: Any) -> None:
        self._file.write(dump_json(value).encode("utf-8") + b"\n")


class _Tables(_Report):
    """``rows/part-0.parquet`` and ``totals/part-0.parquet``, which Spark, pandas and DuckDB read by the folder's name."""

    def open(self) -> None:
        try:
            import pyarrow.parquet

            from ..migrations.engine import tables
        except ModuleNotFoundError as error:
            raise UsageError(f"{self.path}: reports in Parquet need {error.name}: pip install 'ferryman[spark]'") from None
        self._arrow, self._tables = pyarrow, tables
        by_rows: dict[str, Any] = {"findings": tables.FINDINGS, "differences": tables.DIFFERENCES}
        self._table = by_rows[self.rows]
        self._waiting: list[Row] = []
        self._writer = pyarrow.parquet.ParquetWriter(self._place(self.rows), self._table.arrow)

    def add(self, row: Row) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= self._tables.ROWS:
            self._flush()

    def finish(self, outcome: Outcome) -> None:
        self._flush()
        self._writer.close()
        arrow_types = {str: self._arrow.string(), int: self._arrow.int64(), float: self._arrow.float64()}
        schema = self._arrow.schema([(name, arrow_types[python_type]) for name, python_type in outcome.columns.items()])
        rows = [{name: self._cell(row[name]) for name in outcome.columns} for row in outcome.totals]
        self._arrow.parquet.write_table(self._arrow.Table.from_pylist(rows, schema), self._place("totals"))

    def _cell(self, value: Any) -> Any:
        return self._tables.encode_text(value) if isinstance(value, str) else value

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_batch(self._table.batch(self._waiting))
            self._waiting.clear()

    def _place(self, table: str) -> str:
        folder = self.unfinished / table
        folder.mkdir(parents=True)
        return str(folder / "part-0.parquet")


_REPORT_TYPES: Mapping[str, type[_Report]] = {".html": _Page, ".jsonl": _Lines, ".parquet": _Tables}
