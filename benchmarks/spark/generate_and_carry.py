"""What one job costs in one process, without any server's time: generated, read, decided about, and written from kue to ferryman.

    python -m benchmarks.spark.generate_and_carry --jobs 5000

Each step is given in µs and as a multiple of what the simplest script must spend on such a job: parsing its payload, and packing
an HSET of its fields and a ZADD. Every figure is the best of several rounds, since others may use the machine. Starts its own
server on a free port and stops it. Run from the repository, with the extra ``dev`` installed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import define
from ferryman.migrations.bulk import joined
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan, decide
from ferryman.migrations.source import open_source
from ferryman.migrations.subjects import SubjectBuilder
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Subject
from ferryman.schema.family import Command, Keyspace, Target
from ferryman.schema.totals import Totals
from hiredis import pack_command

from tests.support.servers import installed_servers

NOW = 1_795_262_676_000


@define
class Bench:
    """Times steps that each go over all jobs."""

    jobs: int
    rounds: int
    plain: float = 0.0
    """What the simplest script spends on a job, s."""

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        """Prints the line of one step; returns what it made."""
        best, made = float("inf"), None
        for _ in range(self.rounds):
            started = time.process_time()
            made = step()
            best = min(best, (time.process_time() - started) / self.jobs)
        self.plain = self.plain or best
        click.echo(f"{name:30} {best * 1e6:7.1f} µs a job  {best / self.plain:5.1f}x")
        return made


def gathered(source: Address) -> tuple[list[Subject], Keyspace]:
    """All that is known of each job of a keyspace."""
    family, totals = source.key_family, Totals()
    builder = SubjectBuilder(family)
    with open_source(source) as opened:
        for batch in opened.entries(NOW):
            for entry in batch:
                for fact in family.facts(entry, source.prefix):
                    family.tally(fact, totals)
                    builder.add(fact)
    return list(builder.subjects()), Keyspace(family, source.prefix, NOW, totals)


def packed(commands: Sequence[Sequence[Command]]) -> list[bytes]:
    """The commands of all jobs as they go over the wire."""
    return [pack_command(command) for several in commands for command in several]  # type: ignore[arg-type]


def plainly(subjects: Sequence[Subject]) -> list[bytes]:
    """What the simplest script would do."""
    sent: list[bytes] = []
    for subject in subjects:
        if subject.record is not None:
            fields = subject.record.fields
            json.loads(fields[b"data"])
            sent.append(pack_command(("HSET", subject.record.key, *(text for pair in fields.items() for text in pair))))  # type: ignore[arg-type]
            sent.append(pack_command(("ZADD", b"waiting", 1, subject.job_id)))  # type: ignore[arg-type]
    return sent


@click.command()
@click.option("--jobs", default=5_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(jobs: int, rounds: int) -> None:
    """Goes over the same jobs step by step."""
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        source, target = Address.parse(server.url(family="kue")), Address.parse(server.url(1))
        generate_keyspace(source, KeyspaceSpec(jobs, 1, NOW), processes=1)
        subjects, keyspace = gathered(source)
    bench, plan, kue = Bench(jobs, rounds), Plan.between(source, target, NOW), keyspace.family
    bench.time("the simplest script", lambda: plainly(subjects))
    bench.time("kue: generate", lambda: list(kue.generate_records(jobs, 1, NOW)))
    made = list(kue.generate_records(jobs, 1, NOW))
    fresh = Target(source.prefix, NOW, generated=True)
    commands = bench.time("kue: write what is generated", lambda: [kue.write(job, fresh) for job in made])
    joint = bench.time("kue: join the commands", lambda: [joined(command for several in commands for command in several)])
    bench.time("kue: pack", lambda: packed(joint))
    bench.time("kue -> ferryman: read", lambda: [kue.read(subject, keyspace) for subject in subjects])
    decisions = bench.time("read and decide", lambda: [decide(subject, keyspace, plan) for subject in subjects])
    jobs_there = [each.job for each in decisions if each.job is not None]
    totals = Totals()
    bench.time("tally", lambda: [plan.writer.tally_written(job, totals) for job in jobs_there])
    commands = bench.time("write", lambda: [plan.commands(job, fresh=True) for job in jobs_there])
    bench.time("pack", lambda: packed(commands))


if __name__ == "__main__":
    main()
