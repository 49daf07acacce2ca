"""``python -m benchmarks.broker``: every measure for ``redis://`` and ``ferryman://`` in turn, on one server, as one table.

The machine's noise hits both: they alternate, each repeat begins with the other one, and the table shows medians. Exit status 1
when a target is missed.
"""

from __future__ import annotations

import sys

import click
from rich.console import Console

from ..brokers import FERRYMAN, MEMORY, REDIS, Broker
from ..server import REDIS as REDIS_SERVER
from ..server import VALKEY, Server
from .consume import COMMANDS, CONSUME
from .history import HISTORY
from .idle import IDLE
from .latency import LATENCY
from .lateness import LATENESS
from .longest import LONGEST
from .measure import Measure, Result, results
from .memory import MEMORY_500, MEMORY_4096
from .publish import BATCH, DELAY, PUBLISH
from .recovery import RECOVERY
from .table import markdown, show
from .worker import WORKERS

MEASURES = (
    PUBLISH,
    DELAY,
    BATCH,
    CONSUME,
    COMMANDS,
    HISTORY,
    *WORKERS,
    MEMORY_500,
    MEMORY_4096,
    LATENCY,
    LATENESS,
    IDLE,
    RECOVERY,
    LONGEST,
)


def _measured(measure: Measure, repeats: int, server: Server) -> list[Result]:
    values: dict[Broker, list[tuple[float, ...]]] = {REDIS: [], FERRYMAN: [], MEMORY: []}
    brokers = [*([REDIS] if measure.has_rival else []), FERRYMAN, *([MEMORY] if measure.has_floor else [])]
    for repeat in range(min(repeats, measure.repeats or repeats)):
        for broker in brokers if repeat % 2 == 0 else reversed(brokers):
            with server.client() as client:
                client.flushall()
            values[broker].append(tuple(measure.run(broker, server)))
    return results(measure, values[REDIS], values[FERRYMAN], values[MEMORY])


@click.command()
@click.option("--only", multiple=True, type=click.Choice([measure.name for measure in MEASURES]), help="Only this measure.")
@click.option("--repeat", default=5, show_default=True, help="How often each measure runs for each broker.")
@click.option("--server", "kind", default=VALKEY, type=click.Choice([VALKEY, REDIS_SERVER]), help="The server to run on.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
def main(only: tuple[str, ...], repeat: int, kind: str, as_markdown: bool) -> None:
    """Measures ferryman:// beside redis://."""
    found: list[Result] = []
    progress = Console(stderr=True)
    with Server(kind, ("--appendonly", "no")) as server:
        for measure in MEASURES:
            if not only or measure.name in only:
                progress.print(f"measuring {measure.name} …")
                found += _measured(measure, repeat, server)
    if as_markdown:
        print(markdown(found))
    else:
        show(found)
    sys.exit(1 if any(result.met is False for result in found) else 0)


if __name__ == "__main__":
    main()
