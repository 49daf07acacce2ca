"""Both engines on one generated kue keyspace: seconds and jobs per second of audit, migrate and verify, and equal targets.

    python -m benchmarks.spark.engines --jobs 100000

Starts its own server on a free port and stops it. Run from the repository, with the extra ``dev`` installed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Engine
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session
from ferryman.testing.keyspaces import dump, store

from tests.support.servers import Server, installed_servers

NOW = 1_795_262_676_000


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(engine: Engine, source: Address, target: Address, jobs: int) -> None:
    """Prints one line for each thing that the engine can do."""
    plan = Plan.between(source, target, NOW)
    actions = {
        "audit": lambda: engine.audit(source, NOW, lambda _: None),
        "migrate": lambda: engine.migrate(source, target, plan, lambda _: None),
        "verify": lambda: engine.verify(source, target, plan, lambda _: None),
    }
    for name, action in actions.items():
        taken = seconds(action)
        click.echo(f"{engine.name:6} {name:8} {taken:7.1f} s {jobs / taken:9.0f} jobs/s")


def target_keys(server: Server, db: int) -> dict[bytes, object]:
    """The target's keys without the journal, which names its own database."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(JOURNAL.encode())}


@click.command()
@click.option("--jobs", default=100_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(jobs: int, seed: int) -> None:
    """Compares the engines."""
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        filled = seconds(lambda: store(server.client(), get_family("kue"), "q", generate(jobs, seed, NOW)))
        click.echo(f"{server.kind}: {jobs} jobs in {server.client().dbsize()} keys, generated in {filled:.1f} s")
        source = Address.parse(server.url(0, family="kue"))
        measure(LocalEngine(), source, Address.parse(server.url(1)), jobs)
        click.echo(f"spark  start    {seconds(session):7.1f} s")
        measure(SparkEngine(), source, Address.parse(server.url(2)), jobs)
        same = target_keys(server, 1) == target_keys(server, 2)
        click.echo(f"both targets are {'the same' if same else 'DIFFERENT'}")
        raise SystemExit(not same)


if __name__ == "__main__":
    main()
