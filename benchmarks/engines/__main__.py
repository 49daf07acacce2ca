"""Whole commands, from start to exit, with each runner: beside what the servers can do, and beside a plain script, in one run.

    python -m benchmarks.engines --jobs 1000000
    python -m benchmarks.engines --jobs 10000 --rounds 5 --only local

Generates a kue keyspace; audits, migrates and verifies it by the command line, with each engine in turn. Machines change their
speed within seconds: so a server is asked for its limit right before each command and right after it, a share is that of the mean
of both, and the median share counts. Both targets must be the same to the byte. Starts its own servers on free ports and stops
them. Needs about 4 GB of memory for each million jobs, and the extra ``dev``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

import click
from attrs import field, frozen
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.schema.connection.address import Address
from ferryman.schema.family import Command

from benchmarks.spark import plain
from benchmarks.spark.limits import Limit
from tests.support.servers import Server, installed_servers

NOW = 1_795_262_676_000
ENGINES = ("local", "spark")
SAMPLE = 100_000
"""Jobs with which the limits and the plain script are measured, at most: none gets faster with more."""
HASH, WRITE, SCRIPT = "HGETALL", "HSET and ZADD", "plain script"
COMMANDS = {"audit": HASH, "migrate": WRITE, "verify": WRITE}
"""The limit of which each is a share."""
MEASURED = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as most:
    most.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command and writes down how many KB its largest process had: to Linux, one that a large process starts is as large."""
STATUSES = {"audit": (0, 1), "migrate": (0, 1), "verify": (0,)}


@frozen
class Run:
    """One command."""

    seconds: float
    rate: float
    """Jobs a second."""
    share: float
    """Of the limit."""
    megabytes: float
    """The most that one of its processes had in memory."""


@frozen
class Bench:
    """One keyspace."""

    source: Server
    target: Server
    jobs: int
    runs: dict[tuple[str, str], list[Run]] = field(factory=lambda: defaultdict(list))
    """By engine and command."""
    limits: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    """Jobs a second."""

    def run(self, engines: Sequence[str], rounds: int) -> None:
        """Everything."""
        generate_keyspace(Address.parse(self.source.url(0, family="kue")), KeyspaceSpec(self.jobs, 1, NOW))
        limits = {HASH: self._limit_of_reading(), WRITE: self._limit_of_writing()}
        for _ in range(rounds):
            self.limits[SCRIPT].append(self._script())
            for number, engine in enumerate(engines):
                for command, limit in COMMANDS.items():
                    self._command(engine, command, limits[limit], limit, number)
            self._must_be_the_same(len(engines))
            for db in range(len(engines)):
                self.target.client(db).flushdb()

    def _command(self, engine: str, command: str, limit: Limit, name: str, db: int) -> None:
        places = [self.source.url(0, family="kue"), *([self.target.url(db)] if command != "audit" else [])]
        before = self._limit(limit, name)
        started = time.perf_counter()
        arguments = [sys.executable, "-m", "ferryman.cli", command, *places, "--engine", engine, "--now", str(NOW)]
        with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile("r") as most:
            measured = [sys.executable, "-c", MEASURED, most.name, *arguments, "--format", "json"]
            status = subprocess.call(measured, stdout=output, stderr=output)
            seconds = time.perf_counter() - started
            if status not in STATUSES[command]:
                output.seek(0)
                raise SystemExit(f"{command} with {engine} failed: {output.read().decode()[-2000:]}")
            kilobytes = int(most.read())
        rate = self.jobs / seconds
        share = rate / mean((before, self._limit(limit, name)))
        self.runs[engine, command].append(Run(seconds, rate, share, kilobytes / 1024))

    def _limit(self, limit: Limit, name: str) -> float:
        rate = limit.rate()
        if name == WRITE:
            self.target.client(len(ENGINES)).flushdb()
        self.limits[name].append(rate)
        return rate

    def _limit_of_reading(self) -> Limit:
        commands: list[Command] = [("HGETALL", f"q:job:{number}") for number in range(1, min(SAMPLE, self.jobs) + 1)]
        return Limit.of(self.source.port, commands)

    def _limit_of_writing(self) -> Limit:
        pipeline = self.source.client().pipeline(transaction=False)
        for number in range(1, min(SAMPLE, self.jobs) + 1):
            pipeline.hgetall(f"q:job:{number}")
        writes: list[Command] = []
        for number, fields in enumerate(pipeline.execute(), 1):
            words = (word for pair in fields.items() for word in pair)
            writes += [("HSET", f"q:job:{number}", *words), ("ZADD", "q:jobs", number, str(number))]
        return Limit.of(self.target.port, writes, db=len(ENGINES), each=2)

    def _script(self) -> float:
        """A plain script, which does the work of a migration with fewer jobs, without checks, order or checkpoints."""
        with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as small:
            live, jobs = Address.parse(small.url(0, family="kue")), min(SAMPLE, self.jobs)
            generate_keyspace(live, KeyspaceSpec(jobs, 1, NOW))
            plan = Plan.between(live, Address.parse(small.url(1)), NOW)
            started = time.perf_counter()
            plain.migrate(small.client(), small.client(1), plan)
            return jobs / (time.perf_counter() - started)

    def _must_be_the_same(self, number: int) -> None:
        """Ends the program if two targets differ."""
        sizes = {_jobs_keys(self.target, db) for db in range(number)}
        if len(sizes) > 1:
            raise SystemExit(f"the engines have left different targets: {sizes}")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The table, headings first."""
        yield "", "seconds", "jobs/s", "share each time", "most memory"
        for name, rates in self.limits.items():
            yield f"{'limit: ' if name != SCRIPT else ''}{name}", "", f"{median(rates):,.0f}", f"{len(rates)} times", ""
        script = median(self.limits[SCRIPT])
        for (engine, command), runs in self.runs.items():
            shares = ", ".join(f"{run.share:.2f}" for run in runs)
            rate = median(run.rate for run in runs)
            more = f"; {rate / script:.1f} times the plain script" if command == "migrate" else ""
            memory = f"{max(run.megabytes for run in runs):.0f} MB"
            seconds = f"{median(run.seconds for run in runs):.1f}"
            yield f"{engine}: {command}", seconds, f"{rate:,.0f}", f"{shares} of {COMMANDS[command]}{more}", memory


def _jobs_keys(server: Server, db: int) -> str:
    """What tells two targets apart: the server's own digest of all keys but the journal's."""
    client = server.client(db)
    digest = 0
    names = [name for name in client.scan_iter(count=1000) if not name.startswith(JOURNAL.encode())]
    for start in range(0, len(names), 1000):
        for each in client.execute_command("DEBUG", "DIGEST-VALUE", *names[start : start + 1000]):
            digest ^= int(each, 16)
    return f"{len(names)} keys, digest {digest:040x}"


@click.command()
@click.option("--jobs", default=1_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", type=click.Choice(ENGINES), help="One engine. Default: both.")
def main(jobs: int, rounds: int, only: str | None) -> None:
    """Measures."""
    allowed = ("--enable-debug-command", "local")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        kind = installed_servers()[-1]
        with kind.start(Path(one)) as source, kind.start(Path(other), *allowed) as target:
            bench = Bench(source, target, jobs)
            bench.run([only] if only else ENGINES, rounds)
            click.echo(f"{kind.name}: {jobs:,} jobs of kue\n")
            for row in bench.rows():
                click.echo("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
