"""``python -m benchmarks.live``: another system's own processes and ours, in turn, on one keyspace, as one table.

The originals are installed outside the tree where they are missing: kue from npm, qless-py and reqless from PyPI. Exit status 1
when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table

from ..server import REDIS, VALKEY, Server
from .measures import MEASURES, Row
from .sides import Kue, Qless, System

SYSTEMS: Mapping[str, Callable[[], System]] = {
    "kue": Kue,
    "qless": lambda: Qless("qless-py", "qless", "0.11.4"),
    "reqless": lambda: Qless("reqless", "reqless", "0.13.3"),
}
HEAD = ("system", "measure", "original", "ferryman", "ratio", "target", "met")


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[row.met]
    figures = (_number(row.original, row.unit), _number(row.ours, row.unit), f"{row.ratio:.2f} x")
    return (row.system, row.name, *figures, str(row.target or ""), met)


def _number(value: float, unit: str) -> str:
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def markdown(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    lines = [HEAD, ("---", "---", "--:", "--:", "--:", "--:", "---"), *map(_cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(rows: Sequence[Row]) -> None:
    """Prints the table for people."""
    table = Table()
    for at, title in enumerate(HEAD):
        table.add_column(title, justify="left" if at in (0, 1, 6) else "right")
    for row in rows:
        table.add_row(*_cells(row))
    Console().print(table)


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*MEASURES, *SYSTEMS]), help="Only this measure, only this system.")
@click.option("--repeat", default=2, show_default=True, help="How often each measure runs for each side.")
@click.option("--server", "kind", default=VALKEY, type=click.Choice([VALKEY, REDIS]), help="The server to run on.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
def main(only: tuple[str, ...], repeat: int, kind: str, as_markdown: bool) -> None:
    """Measures ferryman on another system's keyspace beside that system itself."""
    systems = [name for name in SYSTEMS if name in only] or list(SYSTEMS)
    measures = [name for name in MEASURES if name in only] or list(MEASURES)
    rows: list[Row] = []
    progress = Console(stderr=True)
    with Server(kind, ("--appendonly", "no")) as server:
        for name in systems:
            system = SYSTEMS[name]()
            for measure in measures:
                progress.print(f"measuring {measure} of {name} …")
                rows += MEASURES[measure](system, server, repeat)
    if as_markdown:
        print(markdown(rows))
    else:
        show(rows)
    sys.exit(1 if any(row.met is False for row in rows) else 0)


if __name__ == "__main__":
    main()
