"""What a migration with Spark costs, as shares of what the servers themselves can do, all measured in one run.

    python -m benchmarks.spark --jobs 1000000
    python -m benchmarks.spark --jobs 100000 --jobs 1000000 --markdown

Generates a kue keyspace, reads, audits, migrates and verifies it, and asks the servers for their limits before and after these:
machines change their speed within minutes. Of several reads of a table (reading.py) the median counts. Sessions have worked
before (rehearsal.py). Starts its own servers on free ports and stops them. Needs about 4 GB of memory for each million jobs, and
the extra ``dev``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import sample
from statistics import mean

import click
from ferryman.migrations.engine import Verification
from ferryman.migrations.fill import Filling, fill
from ferryman.migrations.plan import Plan
from ferryman.schema.address import Address
from ferryman.schema.family import Command
from ferryman.spark.engine import SparkEngine

from tests.support.servers import Server, installed_servers

from . import limits, plain
from .foreground import polite
from .reading import FIELDS, NOW, measure_reads, saved
from .rehearsal import rehearse

SAMPLE = 100_000
"""Jobs with which the limit of writing and the plain script are measured: neither gets faster with more."""
BEFORE_READS, BEFORE_AUDITS, AFTER_AUDITS = "before reads", "before audits", "after audits"
BEFORE_MIGRATION, AFTER_MIGRATION = "before migrating", "after migrating"


class Bench:
    """One size of keyspace: what was measured, by name, in jobs a second unless said otherwise."""

    def __init__(self, source: Server, target: Server, jobs: int) -> None:
        self._source, self._target, self._jobs = source, target, jobs
        self.live = Address.parse(source.url(0, family="kue"))
        self.figures: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], object], jobs: int | None = None) -> None:
        """Runs the work and notes its rate."""
        started = time.perf_counter()
        work()
        self.figures[name] = (jobs or self._jobs) / (time.perf_counter() - started)
        click.echo(f"  {name:32} {self.figures[name]:>10,.0f} /s", err=True)

    def run(self) -> None:
        """Everything, once."""
        filled = fill(self.live, Filling(self._jobs, 1, NOW))
        self.figures["generate"] = self._jobs / filled.seconds
        path = saved(self._source)
        engine = SparkEngine()
        snapshot = Address.parse(f"ferryman+rdb://{path}?family=kue")
        self.timed("RDB: plain loop", lambda: plain.parse(str(path)))
        self._limits_of_reading(BEFORE_READS)
        self.figures |= measure_reads(self.live, snapshot, self._jobs)
        self._limits_of_reading(BEFORE_AUDITS)
        self.timed("audit: live", lambda: engine.audit(self.live, NOW, _ignore))
        self.timed("audit: RDB", lambda: engine.audit(snapshot, NOW, _ignore))
        self._limits_of_reading(AFTER_AUDITS)
        self._limit_of_writing(BEFORE_MIGRATION)
        self._migrate(engine)
        self._limit_of_writing(AFTER_MIGRATION)
        self._polite()

    def _limits_of_reading(self, when: str) -> None:
        names = [f"q:job:{number}" for number in range(1, self._jobs + 1)]
        orders = {when: names}
        if when == BEFORE_READS:
            # Whoever scans gets names in the order of their hashes, in which the server is slower: its memory is.
            orders[f"{when}, as scanned"] = sample(names, len(names))
        for how, those in orders.items():
            self._limit(f"limit: HGETALL, {how}", self._source, [("HGETALL", name) for name in those])
            self._limit(f"limit: HMGET of 3 fields, {how}", self._source, [("HMGET", name, *FIELDS) for name in those])

    def _limit_of_writing(self, when: str) -> None:
        pipeline = self._source.client().pipeline(transaction=False)
        for number in range(1, min(SAMPLE, self._jobs) + 1):
            pipeline.hgetall(f"q:job:{number}")
        writes: list[Command] = []
        for number, fields in enumerate(pipeline.execute(), 1):
            words = (word for pair in fields.items() for word in pair)
            writes += [("HSET", f"q:job:{number}", *words), ("ZADD", "q:jobs", number, str(number))]
        self._limit(f"limit: HSET and ZADD, {when}", self._target, writes, 2)
        self._target.client().flushall()

    def _limit(self, name: str, server: Server, commands: Sequence[Command], each: int = 1) -> None:
        """Notes the rate at which the server answers these commands, of which a job has so many."""
        self.figures[name] = limits.rate(server.port, 0, commands) / each
        click.echo(f"  {name:32} {self.figures[name]:>10,.0f} /s", err=True)

    def _migrate(self, engine: SparkEngine) -> None:
        target = Address.parse(self._target.url(0))
        plan = Plan.between(self.live, target, NOW)
        outcomes: list[Verification] = []
        self.timed("migrate", lambda: engine.migrate(self.live, target, plan, _ignore))
        self.timed("verify", lambda: outcomes.append(engine.verify(self.live, target, plan, _ignore)))
        if outcomes[0].differences:
            raise SystemExit(f"the migrated keyspace differs: {outcomes[0]}")
        self._target.client().flushall()
        with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as small:
            fill(Address.parse(small.url(0, family="kue")), Filling(min(SAMPLE, self._jobs), 1, NOW))
            jobs = min(SAMPLE, self._jobs)
            self.timed("migrate: plain script", lambda: plain.migrate(small.client(), self._target.client(), plan), jobs)

    def _polite(self) -> None:
        names = ("idle p99 ms", "polite p99 ms", "polite p99 ms, long key")
        self.figures.update(zip(names, polite(self._source, self.live), strict=True))

    def rows(self) -> list[tuple[str, float, str, bool]]:
        """Work, figure, target, and whether it is met."""
        figures = self.figures

        def limit(name: str, *moments: str) -> float:
            """The mean of what it was before some work, and after it."""
            return mean(figures[f"limit: {name}, {when}"] for when in moments)

        fields = limit("HMGET of 3 fields", BEFORE_READS, BEFORE_AUDITS)
        records = limit("HGETALL", BEFORE_READS, BEFORE_AUDITS)
        audits = limit("HGETALL", BEFORE_AUDITS, AFTER_AUDITS)
        writes = limit("HSET and ZADD", BEFORE_MIGRATION, AFTER_MIGRATION)
        shares = [
            ("read projected fields, live, of HMGET", figures["read: fields, by index"] / fields, 0.80),
            ("read projected fields, live, by scan, of HMGET", figures["read: fields, by scan"] / fields, 0.80),
            ("read full records, live, of HGETALL", figures["read: records, by index"] / records, 0.35),
            ("read full records, live, by scan, of HGETALL", figures["read: records, by scan"] / records, 0.35),
            ("read full records, RDB, of a plain rdb-py loop", figures["read: records, RDB"] / figures["RDB: plain loop"], 0.85),
            ("audit, live", figures["audit: live"] / audits, 0.25),
            ("audit, RDB", figures["audit: RDB"] / audits, 0.25),
            ("migrate", figures["migrate"] / writes, 0.30),
            ("migrate, of a plain script", figures["migrate"] / figures["migrate: plain script"], 3.0),
            ("verify, of migrate", figures["verify"] / figures["migrate"], 1.0),
        ]
        rows = [(name, share, f"≥ {bound:g}", share >= bound) for name, share, bound in shares]
        for name in ("polite p99 ms", "polite p99 ms, long key"):
            more = figures[name] - figures["idle p99 ms"]
            rows.append((f"{name}, more than idle", more, "≤ 1", more <= 1.0))
        return rows


def _ignore(_found: object) -> None:
    """A report of nothing."""


@click.command()
@click.option("--jobs", "sizes", default=[1_000_000], multiple=True, show_default=True)
@click.option("--markdown", is_flag=True, help="Tables for docs/spark.md.")
def main(sizes: tuple[int, ...], markdown: bool) -> None:
    """Measures each size, in the order given."""
    prepared = rehearse()
    for jobs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            folders = [Path(folder, name) for name in ("source", "target")]
            for each in folders:
                each.mkdir()
            kind = installed_servers()[-1]
            with kind.start(folders[0]) as source, kind.start(folders[1]) as target:
                click.echo(f"{jobs:,} jobs, {kind.name}", err=True)
                bench = Bench(source, target, jobs)
                bench.figures["first audit, migration, verification of a session, s"] = prepared
                bench.run()
        _show(jobs, bench, markdown=markdown)


def _show(jobs: int, bench: Bench, *, markdown: bool) -> None:
    left = "| " if markdown else ""
    between = " | " if markdown else "  "
    lines = [(f"{jobs:,} jobs", "measured", ""), *((name, f"{figure:,.0f}", "") for name, figure in bench.figures.items())]
    lines += [(f"{name}", f"{share:.2f}", f"{bound} {'yes' if met else 'NO'}") for name, share, bound, met in bench.rows()]
    for index, line in enumerate(lines):
        click.echo(left + between.join((line[0].ljust(52), line[1].rjust(10), line[2])) + (" |" if markdown else ""))
        if markdown and index == 0:
            click.echo("|---|--:|---|")


if __name__ == "__main__":
    main()
