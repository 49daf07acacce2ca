"""``python -m benchmarks.versions``: the rates of Celery workers with the installed versions of Celery and kombu, as one table.

Run it with the Python of each environment that is to be compared; docs/versions.md has the tables. A worker on each pool works
off a queue of empty tasks: of ``redis://``, of ferryman's own, and of another system's keyspace. They take turns on one server,
so the machine's noise hits all of them, and the ratios can be compared between versions. Exit status 1 when ferryman is slower.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from statistics import median

import click
from rich.console import Console

from .broker.worker import rate
from .brokers import FERRYMAN, REDIS, Broker
from .server import VALKEY, Server

POOLS = {"solo": 1, "threads": 2, "prefork": 2, "gevent": 2}
"""Pool -> how many tasks it runs at once."""
TASKS = 1500


def rates(pool: str, repeats: int, brokers: list[Broker], server: Server) -> list[float]:
    """The median of each broker's tasks a second, in the order of the brokers."""
    found: dict[Broker, list[float]] = {broker: [] for broker in brokers}
    for repeat in range(repeats):
        for broker in brokers if repeat % 2 == 0 else reversed(brokers):
            with server.client() as client:
                client.flushall()
            found[broker].append(rate(pool, POOLS[pool], TASKS, broker, server))
    return [median(found[broker]) for broker in brokers]


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*POOLS]), help="Only this pool.")
@click.option("--family", default="kue", show_default=True, help="The other system on whose keyspace the worker is measured.")
@click.option("--repeat", default=3, show_default=True, help="How often each pool runs for each broker.")
def main(only: tuple[str, ...], family: str, repeat: int) -> None:
    """Measures Celery workers on ferryman:// beside redis://, with the installed versions."""
    versions = " | ".join(version(package) for package in ("celery", "kombu"))
    print(f"| Celery | kombu | pool | redis:// | ferryman:// | ratio | family={family} | ratio |")
    print("|---|---|---|--:|--:|--:|--:|--:|", flush=True)
    is_slower = False
    with Server(VALKEY, ("--appendonly", "no")) as server:
        for pool in [each for each in POOLS if not only or each in only]:
            Console(stderr=True).print(f"measuring {pool} …")
            theirs, own, foreign = rates(pool, repeat, [REDIS, FERRYMAN, Broker("ferryman", family)], server)
            figures = f"{theirs:,.0f}/s | {own:,.0f}/s | {own / theirs:.2f} x | {foreign:,.0f}/s | {foreign / theirs:.2f} x"
            print(f"| {versions} | {pool} {POOLS[pool]} | {figures} |", flush=True)
            is_slower = is_slower or own < theirs
    sys.exit(1 if is_slower else 0)


if __name__ == "__main__":
    main()
