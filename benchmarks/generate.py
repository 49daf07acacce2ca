"""How fast keyspaces are generated: jobs per second of every family, and what the processes and the server spend on each job.

    python -m benchmarks.generate --jobs 200000 --processes 2

``at best`` is the rate at which cores that have nothing else to do would be busy: client and server time of a job, shared by
all cores. Starts its own server on a free port and stops it. Run from the repository, with the extra ``dev`` installed.
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

import click
import redis
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address
from ferryman.schema.family import family_names

from tests.support.servers import Server, installed_servers

NOW = 1_795_262_676_000


@click.command()
@click.option("--jobs", default=50_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--processes", type=int, help="Without it one for each core.")
@click.option("--family", "families", type=click.Choice(family_names()), multiple=True, help="Only these. Repeatable.")
def main(jobs: int, seed: int, processes: int | None, families: tuple[str, ...]) -> None:
    """Fills one database after the other."""
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        for name in families or family_names():
            measure(server, name, KeyspaceSpec(jobs, seed, NOW), processes or os.cpu_count() or 1)


def measure(server: Server, name: str, spec: KeyspaceSpec, processes: int) -> None:
    """Prints the line of one family."""
    client, jobs = server.client(), spec.jobs
    client.flushall()
    before = client_seconds(), server_seconds(client)
    generated = generate_keyspace(Address.parse(server.url(family=name)), spec, processes=processes)
    spent, served = client_seconds() - before[0], server_seconds(client) - before[1]
    at_best = jobs * (os.cpu_count() or 1) / (spent + served)
    click.echo(
        f"{name:10} {jobs / generated.seconds:9,.0f} jobs/s, at best {at_best:9,.0f}; a job: "
        f"{spent / jobs * 1e6:5.1f} µs client, {served / jobs * 1e6:5.1f} µs server; {client.dbsize():,} keys"
    )


def client_seconds() -> float:
    """Processor time of this process and of those that have ended, s."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def server_seconds(client: redis.Redis) -> float:
    """Processor time of the server, s."""
    used = client.info("cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


if __name__ == "__main__":
    main()
