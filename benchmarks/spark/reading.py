"""Reading: the table of a keyspace with the data source, in a session of its own, as a notebook has.

Java compiles well there what is done very often; in the session of a brief command it compiles quickly (spark/session.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from ferryman.schema.address import Address
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.sql import SparkSession

from tests.support.servers import Server

NOW = 1_795_262_676_000
FIELDS = ("state", "type", "priority")
"""The fields of the projected read."""
PART = 125_000
"""Jobs for each task of a read."""
READS = {
    **{
        f"read: {what}, by {by}": {"fields": fields, "by": by}
        for what, fields in (("fields", ",".join(FIELDS)), ("records", "*"))
        for by in ("scan", "index")
    },
    "read: every key": {},
}
"""The options of each read of a server."""
ROUNDS = 3
"""How often each read is measured, one after the other, once each has been done."""


def read_entries(spark: SparkSession, address: Address, jobs: int, **options: str) -> None:
    """Reads the table of a keyspace with so many jobs, and does nothing with it."""
    table = spark.read.format("ferryman").options(url=address.url(), table="entries", **options)
    rows = table.option("partitions", -(-jobs // PART)).load()
    rows.write.format("noop").mode("overwrite").save()


def measure_reads(live: Address, snapshot: Address, jobs: int) -> Mapping[str, float]:
    """Jobs a second of each read, in each round and their median; and the seconds of all of them once, which came before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as notebook:
        return notebook.submit(_measured, live, snapshot, jobs).result()


def _measured(live: Address, snapshot: Address, jobs: int) -> Mapping[str, float]:
    spark = session()
    spark.dataSource.register(Ferryman)
    works = {name: (live, options) for name, options in READS.items()}
    works["read: records, RDB"] = snapshot, {"fields": "*"}

    def seconds(name: str) -> float:
        address, options = works[name]
        started = time.perf_counter()
        read_entries(spark, address, jobs, **options)
        return time.perf_counter() - started

    figures = {"first reads of a session, s": sum(map(seconds, works))}
    rounds = [{name: jobs / seconds(name) for name in works} for _ in range(ROUNDS)]
    for name in works:
        rates = [each[name] for each in rounds]
        figures |= {f"{name}, {number}": rate for number, rate in enumerate(rates, 1)}
        figures[name] = median(rates)
    return figures


def saved(server: Server) -> Path:
    """The snapshot file that the server writes now."""
    client = server.client()
    client.bgsave()
    while (state := client.info("persistence"))["rdb_bgsave_in_progress"]:
        time.sleep(0.1)
    if state["rdb_last_bgsave_status"] != "ok":
        raise SystemExit("the server can't write a snapshot")
    path = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    with path.open("r+b") as file:
        if file.read(6) == b"VALKEY":  # of which rdb-py by itself knows nothing, though it can read what follows
            file.seek(0)
            file.write(b"REDIS0011")
    return path
