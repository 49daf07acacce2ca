"""What a migration with Spark costs, as shares of what the servers themselves can do, all measured in one run.

    python -m benchmarks.spark --jobs 1000000
    python -m benchmarks.spark --jobs 100000 --jobs 1000000 --markdown

Generates a kue keyspace; reads, audits, migrates and verifies it, each several times. Machines change their speed within seconds:
so a server is asked for its limit right before each work and right after it, a share is that of the mean of both, and the median
share counts. Sessions have worked before (rehearsal.py, reading.py). Starts its own servers on free ports and stops them. Needs
about 4 GB of memory for each million jobs, and the extra ``dev``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import sample
from statistics import mean, median

import click
from attrs import field, frozen
from ferryman.migrations.engine import Verification
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.family import Command
from ferryman.spark.engine import SparkEngine

from tests.support.servers import Server, installed_servers

from . import plain
from .foreground import polite
from .limits import Limit
from .reading import FIELD_READS, FIELDS, NOW, READ_SNAPSHOT, READS, RECORD_READS, reading, saved
from .rehearsal import rehearse

SAMPLE = 100_000
"""Jobs with which the limit of writing and the plain script are measured: neither gets faster with more."""
ROUNDS = 3
BRIEF_ROUNDS = 9
"""Of reads that take some seconds each, in which chance has a greater share."""
PASSES = 4
"""Reads of each table before those that are measured: Java compiles well what has been done often."""
HASH, HASH_FIELDS, WRITE = "limit: HGETALL", f"limit: HMGET of {len(FIELDS)} fields", "limit: HSET and ZADD"
LOOP = "RDB: plain loop"
SCRIPT = "migrate: plain script"
IDLE = "idle p99 ms"
POLITE = ("polite p99 ms", "polite p99 ms, long key")

Rate = Callable[[], float]
"""Does some work, and gives its jobs a second."""


@frozen
class Figures:
    """What was measured, by name, each time: jobs a second unless said otherwise."""

    by_name: dict[str, list[float]] = field(factory=dict)
    shares: dict[str, list[float]] = field(factory=dict)
    """Of the limit beside each, by the name of the work."""

    def note(self, name: str, figure: float) -> None:
        """Adds a figure, and shows it on standard error."""
        self.by_name.setdefault(name, []).append(figure)
        click.echo(f"  {name:52} {_text(figure):>12}", err=True)

    def rounds(self, limit: str, limit_rate: Rate, works: Mapping[str, Rate], times: int = ROUNDS) -> None:
        """Measures works so many times, each between two measurements of a limit, of which their shares are."""
        before = self._measured(limit, limit_rate)
        for _ in range(times):
            for name, work in works.items():
                reached = self._measured(name, work)
                after = self._measured(limit, limit_rate)
                self.shares.setdefault(name, []).append(reached / mean((before, after)))
                before = after

    def _measured(self, name: str, rate: Rate) -> float:
        self.note(name, found := rate())
        return found


class Bench:
    """One size of keyspace."""

    def __init__(self, source: Server, target: Server, jobs: int) -> None:
        self._source, self._target, self._jobs = source, target, jobs
        self._live, self._new = Address.parse(source.url(0, family="kue")), Address.parse(target.url(0))
        self._engine = SparkEngine()
        self._plan = Plan.between(self._live, self._new, NOW)
        self.figures = Figures()

    def run(self) -> None:
        """Everything."""
        figures = self.figures
        figures.note("generate", self._rate(lambda: generate_keyspace(self._live, KeyspaceSpec(self._jobs, 1, NOW))))
        path = saved(self._source)
        snapshot = Address.parse(f"ferryman+rdb://{path}?family=kue")
        limits = self._limits_of_reading()
        with reading(self._live, snapshot, self._jobs) as read:
            for _ in range(PASSES):
                figures.note("each read of a session, s", sum(self._jobs / read(name) for name in (*READS, READ_SNAPSHOT)))
            for limit, works, times in ((HASH_FIELDS, FIELD_READS, BRIEF_ROUNDS), (HASH, RECORD_READS, ROUNDS)):
                figures.rounds(limit, limits[limit].rate, {name: partial(read, name) for name in works}, times)
            figures.rounds(
                LOOP, lambda: self._rate(lambda: plain.parse(str(path))), {READ_SNAPSHOT: partial(read, READ_SNAPSHOT)}
            )
        audits = {"audit: live": self._live, "audit: RDB": snapshot}
        figures.rounds(HASH, limits[HASH].rate, {name: partial(self._audit, address) for name, address in audits.items()})
        del limits
        figures.rounds(WRITE, partial(self._write, self._limit_of_writing()), {"migrate": self._migrate, "verify": self._verify})
        figures.note(SCRIPT, self._script())
        for name, figure in zip((IDLE, *POLITE), polite(self._source, self._live), strict=True):
            figures.note(name, figure)

    def _rate(self, work: Callable[[], object], jobs: int | None = None) -> float:
        """Does the work, on all jobs if it is not on so many, and gives its jobs a second."""
        started = time.perf_counter()
        work()
        return (jobs or self._jobs) / (time.perf_counter() - started)

    def _limits_of_reading(self) -> Mapping[str, Limit]:
        names = [f"q:job:{number}" for number in range(1, self._jobs + 1)]
        # Whoever scans gets names in the order of their hashes, in which the server is slower: its memory is in another.
        for limit, commands in _reading(sample(names, len(names))).items():
            self.figures.note(f"{limit}, as scanned", Limit.of(self._source.port, commands).rate())
        return {limit: Limit.of(self._source.port, commands) for limit, commands in _reading(names).items()}

    def _limit_of_writing(self) -> Limit:
        pipeline = self._source.client().pipeline(transaction=False)
        for number in range(1, min(SAMPLE, self._jobs) + 1):
            pipeline.hgetall(f"q:job:{number}")
        writes: list[Command] = []
        for number, fields in enumerate(pipeline.execute(), 1):
            words = (word for pair in fields.items() for word in pair)
            writes += [("HSET", f"q:job:{number}", *words), ("ZADD", "q:jobs", number, str(number))]
        return Limit.of(self._target.port, writes, db=1, each=2)

    def _write(self, limit: Limit) -> float:
        """Beside the jobs that have been migrated."""
        rate = limit.rate()
        self._target.client(1).flushdb()
        return rate

    def _audit(self, address: Address) -> float:
        return self._rate(lambda: self._engine.audit(address, NOW, _ignore))

    def _migrate(self) -> float:
        return self._rate(lambda: self._engine.migrate(self._live, self._new, self._plan, _ignore))

    def _verify(self) -> float:
        """And then the target is empty."""
        outcomes: list[Verification] = []
        rate = self._rate(lambda: outcomes.append(self._engine.verify(self._live, self._new, self._plan, _ignore)))
        if outcomes[0].differences:
            raise SystemExit(f"the migrated keyspace differs: {outcomes[0]}")
        self._target.client().flushdb()
        return rate

    def _script(self) -> float:
        """A plain script, which does the work of a migration with fewer jobs."""
        with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as small:
            live, jobs = Address.parse(small.url(0, family="kue")), min(SAMPLE, self._jobs)
            generate_keyspace(live, KeyspaceSpec(jobs, 1, NOW))
            plan = Plan.between(live, self._new, NOW)
            return self._rate(lambda: plain.migrate(small.client(), self._target.client(), plan), jobs)

    def rows(self) -> list[Row]:
        """What the targets are about."""
        rates, shares = self.figures.by_name, self.figures.shares
        pairs = zip(rates["verify"], rates["migrate"], strict=True)
        rows = [
            Row("read projected fields, live, of HMGET", shares["read: fields, by index"], 0.80),
            Row("read projected fields, live, by scan, of HMGET", shares["read: fields, by scan"], 0.80),
            Row("read full records, live, of HGETALL", shares["read: records, by index"], 0.35),
            Row("read full records, live, by scan, of HGETALL", shares["read: records, by scan"], 0.35),
            Row("read full records, RDB, of a plain rdb-py loop", shares[READ_SNAPSHOT], 0.85),
            Row("audit, live, of HGETALL", shares["audit: live"], 0.25),
            Row("audit, RDB, of HGETALL", shares["audit: RDB"], 0.25),
            Row("migrate, of HSET and ZADD", shares["migrate"], 0.30),
            Row("migrate, of a plain script", [rate / rates[SCRIPT][0] for rate in rates["migrate"]], 3.0),
            Row("verify, of migrate", [verified / migrated for verified, migrated in pairs], 1.0),
        ]
        return rows + [Row(f"{name}, more than idle", [rates[name][0] - rates[IDLE][0]], 1.0, is_most=True) for name in POLITE]


@frozen
class Row:
    """A target."""

    name: str
    rounds: Sequence[float]
    """What was reached each time."""
    bound: float
    is_most: bool = False
    """Otherwise the least."""

    @property
    def is_met(self) -> bool:
        """By the median."""
        reached = median(self.rounds)
        return reached <= self.bound if self.is_most else reached >= self.bound


def _reading(names: Sequence[str]) -> Mapping[str, Sequence[Command]]:
    return {HASH: [("HGETALL", name) for name in names], HASH_FIELDS: [("HMGET", name, *FIELDS) for name in names]}


def _ignore(_found: object) -> None:
    """A report of nothing."""


@click.command()
@click.option("--jobs", "sizes", default=[1_000_000], multiple=True, show_default=True)
@click.option("--markdown", is_flag=True, help="Tables for docs/spark-internals.md.")
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
                bench.figures.note("first audit, migration, verification of a session, s", prepared)
                bench.run()
        _show(jobs, bench, markdown=markdown)


def _show(jobs: int, bench: Bench, *, markdown: bool) -> None:
    left, between, right = ("| ", " | ", " |") if markdown else ("", "  ", "")
    lines = [(f"{jobs:,} jobs", "each time", "median", "target")]
    for name, figures in bench.figures.by_name.items():
        lines.append((name, " ".join(map(_text, figures)), _text(median(figures)), ""))
    for row in bench.rows():
        target = f"{'≤' if row.is_most else '≥'} {row.bound:g} {'yes' if row.is_met else 'NO'}"
        lines.append((row.name, " ".join(map(_text, row.rounds)), _text(median(row.rounds)), target))
    for index, (name, each, middle, target) in enumerate(lines):
        click.echo(left + between.join((name.ljust(52), each.rjust(36), middle.rjust(9), target)) + right)
        if markdown and index == 0:
            click.echo("|---|--:|--:|---|")


def _text(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2f}"


if __name__ == "__main__":
    main()
