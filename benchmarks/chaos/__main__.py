"""``python -m benchmarks.chaos``: kills, restarts and freezes, and the verdict on what became of every task.

Exit status 1 when a task is lost, ran twice without a reason or before its time, or when keys are left over.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..brokers import FERRYMAN, REDIS
from ..server import REDIS as REDIS_SERVER
from ..server import VALKEY
from .profile import PROFILES
from .run import Report, run

SHOWN = 5
"""Examples named of what went wrong."""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")


def _show(report: Report, transport: str, seed: int) -> None:
    verdict = report.verdict
    table = Table("", "count", "", title=f"{transport}://, seed {seed}, {report.seconds:.0f} s")
    for fault, count in sorted(report.faults.items()):
        table.add_row(fault, str(count), "")
    table.add_row("shutdowns that never ended", str(report.hung), "", end_section=True)
    table.add_row("tasks whose publish returned", str(verdict.promised), "")
    table.add_row("tasks whose publish failed", str(verdict.unsure), "may run or not")
    table.add_row("starts", str(verdict.starts), "")
    table.add_row("interrupted by a kill after an early ack", str(len(verdict.cut_short)), "at most once, as they chose")
    table.add_row("failed by a cold shutdown of the solo pool", str(len(verdict.failed)), "Celery's choice")
    table.add_row("repeated after a kill or an expired lease", str(len(verdict.explained)), "", end_section=True)
    wrong = {
        "lost": verdict.lost,
        "repeated without a reason": verdict.unexplained,
        "started before their time": verdict.early,
        "keys left over": report.left_over,
    }
    for name, those in wrong.items():
        table.add_row(name, str(len(those)), _some(those), style="red" if those else "green")
    Console().print(table)


@click.command()
@click.option("--profile", default="short", type=click.Choice(list(PROFILES)), show_default=True)
@click.option("--transport", default="ferryman", type=click.Choice([FERRYMAN.scheme, REDIS.scheme]), show_default=True)
@click.option("--seed", type=int, help="Makes the same faults and tasks again. Random by default.")
@click.option("--server", "kind", default=VALKEY, type=click.Choice([VALKEY, REDIS_SERVER]), help="The server to run on.")
@click.option("--keep", type=click.Path(path_type=Path), help="A new folder for the ledger and the workers' logs.")
def main(profile: str, transport: str, seed: int | None, kind: str, keep: Path | None) -> None:
    """Hits workers and server, and counts what became of every task."""
    seed = random.randrange(2**32) if seed is None else seed
    progress = Console(stderr=True)
    progress.print(f"seed {seed}")
    broker = FERRYMAN if transport == FERRYMAN.scheme else REDIS
    with tempfile.TemporaryDirectory(prefix="ferryman-chaos-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = run(broker, PROFILES[profile], seed, kind, folder, progress.print)
    _show(report, transport, seed)
    print("passed" if report.passed else "FAILED")
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
