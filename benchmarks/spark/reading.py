"""Reading: what the benchmark reads with the data source, and the snapshot file of a server."""

from __future__ import annotations

import time
from pathlib import Path

from ferryman.schema.address import Address
from pyspark.sql import SparkSession

from tests.support.servers import Server

NOW = 1_795_262_676_000
FIELDS = ("state", "type", "priority")
"""The fields of the projected read."""
PART = 125_000
"""Jobs for each task of a read."""


def read_entries(spark: SparkSession, address: Address, jobs: int, **options: str) -> None:
    """Reads the table of a keyspace with so many jobs, and does nothing with it."""
    table = spark.read.format("ferryman").options(url=address.url(), table="entries", **options)
    rows = table.option("partitions", -(-jobs // PART)).load()
    rows.write.format("noop").mode("overwrite").save()


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
