"""Output: what commands print. Tables and notes for people, JSON lines for machines, progress always on stderr.

Everything that came from Redis is hostile until it is shown: no control character reaches a terminal, and no text is taken
for markup. With ``--format json`` nothing but JSON objects, one a line, ever stands on stdout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

import click
from attrs import field, frozen
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from ..migrations.engine import Progress as Report
from ..migrations.engine import silent
from ..schema.text import dump_json, show
from .layout import Column, fitting, widest, widths


class Format(StrEnum):
    """What ``--format`` accepts."""

    TABLE = "table"
    JSON = "json"


PIPE_WIDTH = 160
"""Columns of a table that goes into a file or a pipe, where it needs no more."""

LONGEST = 2000
"""Characters of one sentence or case."""

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
"""Severity -> colour, on a terminal."""


class Pace(ProgressColumn):
    """How many a second, and how long the rest takes at that; how long it took, when it is done.

    By the whole time so far: steps that take minutes each have no rate of the last seconds.
    """

    def render(self, task: Task) -> Text:
        if not task.elapsed or not task.completed:
            return Text("")
        if task.finished:
            return Text(f"in {_clock(task.finished_time or task.elapsed)}")
        rate = task.completed / task.elapsed
        left = "" if task.total is None else f", {_clock((task.total - task.completed) / rate)} left"
        return Text(f"{rate:,.0f}/s{left}" if rate >= 10 else f"{rate:.2g}/s{left}")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


@frozen
class Output:
    """Where a command prints."""

    format: Format
    people: Console = field(factory=_console)
    notes: Console = field(factory=lambda: Console(stderr=True, highlight=False))

    @property
    def json(self) -> bool:
        """True when stdout belongs to a machine."""
        return self.format is Format.JSON

    def line(self, value: Any) -> None:
        """One JSON object on stdout, in UTF-8 whatever the terminal speaks."""
        click.echo(dump_json(value).encode("utf-8"))

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Container[str] = (),
        fold: Container[str] = (),
        whole: Container[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """A table on stdout. Columns named in ``right`` are aligned as numbers are; those in ``fold`` may take several lines.

        Numbers are never cut, nor what is ``whole``: names that other commands take. On a terminal that is too narrow for that
        the columns of ``spare`` are left out, the first of them first, and a line says so. In a file or a pipe nothing is cut.
        """
        cells = [[cell if isinstance(cell, Text) else Text(text_of(cell)) for cell in row] for row in rows]
        natural = [max(map(cell_len, (name, *(row[index].plain for row in cells)))) for index, name in enumerate(columns)]
        layout = [
            Column(name, width, is_whole=name in whole or name in right, folds=name in fold)
            for name, width in zip(columns, natural, strict=True)
        ]
        if not self.people.is_terminal:
            self.people.width = max(self.people.width, widest(layout))
        room = self.people.width
        shown = fitting(layout, spare, room)
        table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for column, width in zip(shown, widths(shown, room), strict=True):
            folds = column.folds or (column.is_whole and width < column.natural)
            table.add_column(
                column.name,
                justify="right" if column.name in right else "left",
                no_wrap=not folds,
                overflow="fold" if folds else "ellipsis",
                width=width,
            )
        for row in cells:
            table.add_row(*(cell for column, cell in zip(layout, row, strict=True) if column in shown))
        self.people.print(table)
        left_out = [column.name for column in layout if column not in shown]
        if left_out:
            self.say(f"A wider terminal, or a pipe, shows {', '.join(left_out)} as well.")

    def paragraph(self, heading: Iterable[str], severity: str, lines: Iterable[str]) -> None:
        """A heading in the severity's colour with indented lines below it, and an empty line."""
        self.people.print(Text("  ".join(text_of(word) for word in heading if word), style=STYLES.get(severity, "")))
        for line in lines:
            self.people.print(Padding(Text(show(line, LONGEST)), (0, 0, 0, 4), expand=False))
        self.people.print()

    def say(self, text: str, style: str = "") -> None:
        """A sentence for people on stdout."""
        self.people.print(Text(show(text, LONGEST), style=style))

    def note(self, text: str) -> None:
        """A sentence for people on stderr, whatever the format."""
        click.echo(show(text, LONGEST), err=True)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Report]:
        """Takes progress for the length of the block: a bar on stderr if that is a terminal, nothing otherwise."""
        if not self.notes.is_terminal:
            yield silent
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Pace())
        with Progress(*columns, console=self.notes, transient=True) as bars:
            tasks: dict[str, Task] = {}

            def report(phase: str, done: int, total: int | None) -> None:
                if phase not in tasks:
                    bars.add_task(phase, total=total)
                    tasks[phase] = bars.tasks[-1]
                task = tasks[phase]
                if done < task.completed:  # the same is done for another keyspace
                    bars.reset(task.id)
                bars.update(task.id, completed=done, total=total)

            yield report


def text_of(cell: object) -> str:
    """A cell of a table as printable text; None is shown as nothing."""
    return "" if cell is None else show(str(cell), LONGEST)
