"""Table: what a look has seen as lines of a given width, without colours. Pure; called by ``screen.py`` and ``program.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from rich.cells import cell_len, set_cell_size

from ...operations.numbers import Numbers
from ...operations.watch import Look
from ...schema.job import State
from ...schema.text import show
from ..duration import largest_units

LEAST_NAME = 8
"""Columns of a terminal that a queue's name gets at least."""
ELLIPSIS = "…"


@frozen
class Row:
    """One queue."""

    name: str
    numbers: Numbers | None
    """None: the queue is damaged, or written by a newer version."""
    rates: Mapping[str, float]
    error: str = ""

    def state(self, state: State) -> int | None:
        """The jobs in a state; None where the family does not tell."""
        return None if self.numbers is None else self.numbers.states.get(state)


@frozen
class Column:
    """One column: its title, width, how its cell is made and what it is sorted by."""

    title: str
    width: int
    value: Callable[[Row], float | None]
    text: Callable[[float], str]


def number(value: float) -> str:
    """A number in at most 7 characters."""
    if value < 10_000_000:
        return str(int(value))
    return f"{value / 1e6:.0f}M" if value < 1e9 else f"{value / 1e9:.1f}G"


def rate(value: float) -> str:
    """A rate a second in at most 6 characters."""
    return f"{value:.1f}" if value < 100 else number(value)


def age(ms: float) -> str:
    """A length of time in at most 7 characters."""
    return "".join(f"{number}{unit[0]}" for number, unit in largest_units(ms))


def _state(state: State) -> Callable[[Row], float | None]:
    return lambda row: row.state(state)


COLUMNS: Sequence[Column] = (
    Column("waiting", 8, _state(State.WAITING), number),
    Column("held", 7, _state(State.ACTIVE), number),
    Column("dead", 8, _state(State.FAILED), number),
    Column("oldest", 8, lambda row: None if row.numbers is None else row.numbers.latency_ms, age),
    Column("in/s", 7, lambda row: row.rates.get("in"), rate),
    Column("out/s", 7, lambda row: row.rates.get("out"), rate),
    Column("cons", 6, lambda row: None if row.numbers is None else row.numbers.consumers, number),
    Column("sched", 8, _state(State.SCHEDULED), number),
)
"""The first ones stay longest where a terminal is too narrow for all."""
SORTS = ("queue", *(column.title for column in COLUMNS))


def rows_of(look: Look, sort: str = "queue", *, reverse: bool = False) -> list[Row]:
    """The queues in an order: by name, or the largest first of what a column has; unknown numbers come last."""
    rows = [
        Row(name, each, look.rates.get(name, {})) if isinstance(each, Numbers) else Row(name, None, {}, str(each))
        for name, each in look.found.items()
    ]
    rows.sort(key=lambda row: row.name)
    column = next((column for column in COLUMNS if column.title == sort), None)
    if column is None:
        return rows[::-1] if reverse else rows
    known = [row for row in rows if column.value(row) is not None]
    known.sort(key=lambda row: column.value(row) or 0, reverse=not reverse)
    return [*known, *(row for row in rows if column.value(row) is None)]


def shown_columns(width: int) -> Sequence[Column]:
    """The columns that a terminal has room for, beside the mark and the name."""
    shown: list[Column] = []
    room = width - 2 - LEAST_NAME
    for column in COLUMNS:
        room -= column.width
        if room < 0:
            break
        shown.append(column)
    return shown


def header(width: int, sort: str) -> str:
    """The titles; that of the column by which rows are sorted has a star."""
    columns = shown_columns(width)
    name = "queue" + ("*" if sort == "queue" else "")
    titles = (_right(column.title + ("*" if column.title == sort else ""), column.width) for column in columns)
    return cut("  " + _left(name, _name_width(width, columns)) + "".join(titles), width)


def line(row: Row, width: int, *, is_selected: bool = False) -> str:
    """One queue as a line of at most this width."""
    columns = shown_columns(width)
    paused = " (paused)" if row.numbers is not None and row.numbers.is_paused else ""
    room = _name_width(width, columns)
    name = cut(show(row.name, 1000), room - len(paused)) + paused if room > len(paused) + 1 else cut(show(row.name, 1000), room)
    mark = "> " if is_selected else "  "
    if row.numbers is None:
        return cut(f"{mark}{_left(name, room)} {show(row.error, 1000)}", width)
    cells = (_right("-" if (value := column.value(row)) is None else column.text(value), column.width) for column in columns)
    return cut(mark + _left(name, room) + "".join(cells), width)


def plain(look: Look, width: int) -> list[str]:
    """All of a look, for what is no terminal."""
    lines = [header(width, "queue"), *(line(row, width) for row in rows_of(look))]
    left = look.queues - len(look.found)
    if left > 0:
        lines.append(f"{left} more queues; name them with --queue or --filter")
    return [each.rstrip() for each in lines]


def json_of(row: Row) -> dict[str, Any]:
    """One queue for machines."""
    if row.numbers is None:
        return {"queue": row.name, "error": row.error}
    told = {str(state): value for state, value in row.numbers.states.items()}
    return {
        "queue": row.name,
        **told,
        "oldest_ms": row.numbers.latency_ms,
        "consumers": row.numbers.consumers,
        "paused": row.numbers.is_paused,
        "in_per_second": row.rates.get("in"),
        "out_per_second": row.rates.get("out"),
    }


def cut(text: str, width: int) -> str:
    """Text in at most so many cells of a terminal."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + ELLIPSIS if width > 0 else ""


def _name_width(width: int, columns: Sequence[Column]) -> int:
    return max(0, width - 2 - sum(column.width for column in columns))


def _left(text: str, width: int) -> str:
    return set_cell_size(text, width)


def _right(text: str, width: int) -> str:
    return text.rjust(width)
