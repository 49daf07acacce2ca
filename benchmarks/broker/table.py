"""The table of results, for a terminal or for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

from rich.console import Console
from rich.table import Table

from .measure import Result

HEAD = ("measure", "redis://", "ferryman://", "ratio", "target", "met", "memory://")
WORDS = {True: "yes", False: "NO", None: ""}


def rows(results: Iterable[Result]) -> list[tuple[str, ...]]:
    """One row of texts a result."""
    return [
        (
            result.figure.name,
            _number(result.redis, result.figure.unit),
            _number(result.ferryman, result.figure.unit),
            "" if isnan(result.ratio) else f"{result.ratio:.2f} x",
            str(result.figure.target or ""),
            WORDS[result.met],
            "" if result.floor is None else _number(result.floor, result.figure.unit),
        )
        for result in results
    ]


def show(results: Iterable[Result]) -> None:
    """Prints the table for people."""
    table = Table()
    for at, title in enumerate(HEAD):
        table.add_column(title, justify="left" if at in (0, 5) else "right")
    for row in rows(results):
        table.add_row(*row)
    Console().print(table)


def markdown(results: Iterable[Result]) -> str:
    """The table as Markdown."""
    lines = [HEAD, ("---", "--:", "--:", "--:", "--:", "---", "--:"), *rows(results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float, unit: str) -> str:
    if isnan(value):
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()
