"""What the same work costs with Spark in each family, side by side: kue's jobs are what the other figures are compared with.

    python -m benchmarks.spark.families --jobs 200000

Generates a keyspace of each family, audits it, carries it to ferryman and verifies that; a small one goes before, so that no
family pays for the start of Spark's workers. Starts its own servers on free ports and stops them. Needs the extra ``dev``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from ferryman.migrations.engine import Verification
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session

from tests.support.servers import installed_servers

NOW = 1_795_262_676_000
WARM = 60_000
"""Jobs of the small keyspace."""
FAMILIES = ("kue", "kombu", "pjq", "bee", "kickq", "qless")


@click.command()
@click.option("--jobs", default=200_000, show_default=True)
def main(jobs: int) -> None:
    """Prints a table for docs/spark-internals.md."""
    session(brief=True, tables=False)
    click.echo(f"| {jobs:,} jobs of | audit, migrate, verify: µs a job | times kue's |\n|---|--:|--:|")
    _costs("kue", WARM)
    first: list[float] = []
    for family in FAMILIES:
        costs = _costs(family, jobs)
        first = first or costs
        times = [cost / kue for cost, kue in zip(costs, first, strict=True)]
        click.echo(f"| {family} | {_listed(costs, '.0f')} | {_listed(times, '.1f')} |")


def _costs(family: str, jobs: int) -> list[float]:
    """What each work costs on a new keyspace, µs a job."""
    kind = installed_servers()[-1]
    with (
        tempfile.TemporaryDirectory() as source_folder,
        tempfile.TemporaryDirectory() as target_folder,
        kind.start(Path(source_folder)) as source,
        kind.start(Path(target_folder)) as target,
    ):
        ways = Address.parse(source.url(0, family=family)), Address.parse(target.url(0))
        generate_keyspace(ways[0], KeyspaceSpec(jobs, 1, NOW))
        return [seconds / jobs * 1e6 for seconds in _measured(*ways)]


def _listed(figures: Sequence[float], form: str) -> str:
    return ", ".join(format(figure, form) for figure in figures)


def _measured(source: Address, target: Address) -> list[float]:
    """The seconds that each work takes."""
    engine, plan = SparkEngine(), Plan.between(source, target, NOW)
    outcomes: list[Verification] = []
    works: tuple[Callable[[], object], ...] = (
        lambda: engine.audit(source, NOW, _ignore),
        lambda: engine.migrate(source, target, plan, _ignore),
        lambda: outcomes.append(engine.verify(source, target, plan, _ignore)),
    )
    seconds = []
    for work in works:
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    if outcomes[0].differences:
        raise SystemExit(f"the migrated keyspace differs: {outcomes[0]}")
    return seconds


def _ignore(_found: object) -> None:
    """A report of nothing."""


if __name__ == "__main__":
    main()
