"""Reading: the table of a keyspace with the data source, in a session of its own, as a notebook has.

Java compiles well there what is done very often; in the session of a brief command it compiles quickly (spark/session.py).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ferryman.migrations.checksum import SIZE, crc64
from ferryman.schema.connection.address import Address
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.sql import SparkSession

from tests.support.servers import Server

NOW = 1_795_262_676_000
FIELDS = ("state", "type", "priority")
"""The fields of the projected read."""
FIELD_READS, RECORD_READS = (
    {f"read: {what}, by {by}": {"fields": fields, "by": by} for by in ("index", "scan")}
    for what, fields in (("fields", ",".join(FIELDS)), ("records", "*"))
)
READS: Mapping[str, Mapping[str, str]] = {**FIELD_READS, **RECORD_READS}
"""The options of each read of a server."""
READ_SNAPSHOT = "read: records, RDB"


def read_entries(spark: SparkSession, address: Address, **options: str) -> None:
    """Reads the table of a keyspace, with as many tasks as run side by side, and does nothing with it."""
    table = spark.read.format("ferryman").options(url=address.url(), table="entries", **options)
    rows = table.option("partitions", spark.sparkContext.defaultParallelism).load()
    rows.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def reading(live: Address, snapshot: Address, jobs: int) -> Iterator[Callable[[str], float]]:
    """A session in a process of its own, which does one of READS, or READ_SNAPSHOT, and gives its jobs a second."""
    with ProcessPoolExecutor(1, get_context("spawn")) as notebook:
        yield lambda name: notebook.submit(_read, snapshot if name == READ_SNAPSHOT else live, jobs, name).result()
        notebook.submit(_end).result()


def _read(address: Address, jobs: int, name: str) -> float:
    spark = session()
    spark.dataSource.register(Ferryman)
    started = time.perf_counter()
    read_entries(spark, address, **READS.get(name, {"fields": "*"}))
    return jobs / (time.perf_counter() - started)


def _end() -> None:
    """Returns when Java has ended: what is measured next has the machine for itself."""
    spark = session()
    gateway = spark.sparkContext._gateway  # of which pyspark has no public name
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


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
            checksum_at = file.seek(-SIZE, os.SEEK_END)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                checksum = crc64(content, 0, checksum_at)
            file.seek(checksum_at)
            file.write(checksum.to_bytes(SIZE, "little"))
    return path
