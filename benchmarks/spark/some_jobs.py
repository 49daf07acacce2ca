"""Some jobs: what a few of many cost to read with the data source, beside reading all.

    python -m benchmarks.spark.some_jobs --jobs 1000000

One session, in which small reads have been done before; each query is a whole one, its planning included. Starts its own server
on a free port and stops it. Needs about 2 GB of memory for each million jobs, and the extra ``dev``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import click
import redis
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.sql import SparkSession

from tests.support.servers import Server, installed_servers

from .reading import NOW

BRIEF_ROUNDS = 5
"""Of reads that take seconds; those that read all jobs are done once."""
LONG = ("all", "all, 3 columns", "failed jobs of a queue, by index", "failed jobs of a queue, pushed")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FEW = {"columns": "id,queue,state"}


@click.command()
@click.option("--jobs", default=1_000_000, show_default=True)
@click.option("--family", default="kue", show_default=True)
def main(jobs: int, family: str) -> None:
    """Prints a line for each read: seconds, its share of the time for all, rows, and the server's processor time."""
    spark = session()
    spark.dataSource.register(Ferryman)
    spark.conf.set(PUSHDOWN, "true")
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        url, client = server.url(family=family), server.client()
        for number in (1_000, jobs):
            client.flushall()
            generate_keyspace(Address.parse(url), KeyspaceSpec(number, 1, NOW))
            some = _read(spark, url, {"limit": "1"}).first()
            reads: Mapping[str, tuple[Mapping[str, Any], str | None]] = {
                "all": ({}, None),
                "all, 3 columns": (FEW, None),
                "one id, pushed": ({}, f"id = '{some.id}'"),
                "one id, option": ({"id": some.id}, None),
                "limit 100": ({"limit": "100"}, None),
                "failed jobs of a queue, by index": ({"queue": some.queue, "state": "failed", "by": "index"}, None),
                "failed jobs of a queue, pushed": ({}, f"queue = '{some.queue}' and state = 'failed'"),
            }
            _measure(spark, server, url, reads, brief=number != jobs)


def _read(spark: SparkSession, url: str, options: Mapping[str, Any]) -> Any:
    return spark.read.format("ferryman").options(url=url, now=NOW, **options).load()


def _measure(
    spark: SparkSession, server: Server, url: str, reads: Mapping[str, tuple[Mapping[str, Any], str | None]], *, brief: bool
) -> None:
    everything = None
    for name, (options, where) in reads.items():
        took, served, rows = [], [], 0
        for _ in range(1 if name in LONG else BRIEF_ROUNDS):
            before, started = _server_seconds(server.client()), time.perf_counter()
            frame = _read(spark, url, options)
            rows = len(frame.where(where).select("id").collect()) if where else frame.select("id").toArrow().num_rows
            took.append(time.perf_counter() - started)
            served.append(_server_seconds(server.client()) - before)
        seconds = median(took)
        everything = everything or seconds
        if not brief:
            click.echo(f"{name:34} {seconds:9.2f} s {seconds / everything:8.2%} {rows:10,} rows {median(served):8.3f} s server")


def _server_seconds(client: redis.Redis) -> float:
    """Processor time of the server, s."""
    usage = client.info("cpu")
    return float(usage["used_cpu_sys"]) + float(usage["used_cpu_user"])


if __name__ == "__main__":
    main()
