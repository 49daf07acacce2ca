"""How audits and migrations with Spark grow with the keyspace: time a job, and the memory of the largest Python worker.

Memory is shown twice: what a worker has for itself, and with the pages of files that it reads. The system takes these back when
it wants to.

    python -m benchmarks.spark.growth --jobs 100000 --jobs 1000000 --jobs 5000000

Each size has servers and a Spark session of its own, as a command has; starting the session does not count. Needs Linux, the
extra ``dev``, and about 2 GB of memory for each million jobs, 4 GB with ``--migrate``.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import click
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session

from tests.support.servers import installed_servers

NOW = 1_795_262_676_000
SAMPLE_SECONDS = 0.2
WARM_SECONDS = 10


@click.command()
@click.option("--jobs", "sizes", default=[100_000, 1_000_000, 5_000_000], multiple=True, show_default=True)
@click.option("--migrate", is_flag=True, help="Migrates what was audited.")
@click.option("--warm", is_flag=True, help="Audits for ten seconds before the work that counts, in the same session.")
def main(sizes: tuple[int, ...], migrate: bool, warm: bool) -> None:
    """Prints a table for docs/spark-internals.md."""
    click.echo("| jobs | work | µs a job | largest worker, MB | with pages of files, MB |\n|--:|---|--:|--:|--:|")
    kind = installed_servers()[-1]
    for jobs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            folders = [Path(folder, name) for name in ("source", "target")]
            for each in folders:
                each.mkdir()
            with kind.start(folders[0]) as source, kind.start(folders[1]) as target:
                addresses = Address.parse(source.url(0, family="kue")), Address.parse(target.url(0))
                generate_keyspace(addresses[0], KeyspaceSpec(jobs, 1, NOW))
                for work in ("audit", "migrate") if migrate else ("audit",):
                    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                        seconds, own, resident = fresh.submit(_measured, work, *addresses, warm).result()
                    click.echo(f"| {jobs:,} | {work} | {seconds / jobs * 1e6:.1f} | {own} | {resident} |")


def _measured(work: str, source: Address, target: Address, warm: bool) -> tuple[float, int, int]:
    """The seconds that some work takes, and the megabytes of the largest worker, its own and all."""
    session(brief=True, tables=False)
    engine, workers = SparkEngine(), _Workers()
    begun = time.perf_counter()
    while warm and time.perf_counter() - begun < WARM_SECONDS:
        engine.audit(source, NOW, lambda _: None)
    workers.start()
    started = time.perf_counter()
    if work == "audit":
        engine.audit(source, NOW, lambda _: None)
    else:
        engine.migrate(source, target, Plan.between(source, target, NOW), lambda _: None)
    seconds = time.perf_counter() - started
    workers.done.set()
    workers.join()
    return seconds, workers.own, workers.resident


class _Workers(threading.Thread):
    """Watches the memory of Spark's Python workers."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.own = self.resident = 0
        """Megabytes of the largest: for itself, and with pages of files."""

    def run(self) -> None:
        while not self.done.wait(SAMPLE_SECONDS):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if b"ferryman.spark.daemon" in (folder / "cmdline").read_bytes().split(b"\0"):
                        own, resident = _megabytes(folder)
                        self.own, self.resident = max(self.own, own), max(self.resident, resident)
                except OSError:  # it has ended
                    continue


def _megabytes(folder: Path) -> tuple[int, int]:
    """What a process has in memory for itself, and all that it has there."""
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    own, resident = (int(status[name].split()[0]) // 1024 for name in ("RssAnon", "VmRSS"))
    return own, resident


if __name__ == "__main__":
    main()
