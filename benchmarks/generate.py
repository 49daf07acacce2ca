"""How fast keyspaces are generated: jobs per second of every family, through its own generator and writer.

    python -m benchmarks.generate --jobs 50000

Starts its own server on a free port and stops it. Run from the repository, with the extra ``dev`` installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from ferryman.migrations.fill import Filling, fill
from ferryman.schema.address import Address
from ferryman.schema.family import family_names

from tests.support.servers import installed_servers

NOW = 1_795_262_676_000


@click.command()
@click.option("--jobs", default=50_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(jobs: int, seed: int) -> None:
    """Fills one database after the other."""
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        for name in family_names():
            server.client().flushall()
            filled = fill(Address.parse(server.url(family=name)), Filling(jobs, seed, NOW))
            keys = server.client().dbsize()
            click.echo(f"{name:10} {filled.seconds:7.1f} s {jobs / filled.seconds:9,.0f} jobs/s, {keys:,} keys")


if __name__ == "__main__":
    main()
