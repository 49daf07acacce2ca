"""Rehearsal: everything once with few jobs, so that what is measured afterwards is the work and not its preparation.

First in a process of its own, so that all loops in machine code are compiled: that happens once for an installation, and takes
twenty seconds. Then in the session that is measured, which has its modules loaded and its plans made when that has been done.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman

from tests.support.servers import installed_servers

from .reading import FIELDS, NOW, READS, read_entries, saved

JOBS = 5_000


def rehearse() -> float:
    """The seconds that the rehearsal took in the session of this process, which is started if there is none."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        apart.submit(_all_once, reads=True).result()
    session(brief=True, tables=False)  # as commands do for keyspaces of these families up to five million keys
    started = time.perf_counter()
    _all_once()
    return time.perf_counter() - started


def _all_once(*, reads: bool = False) -> None:
    """``reads``: with the data source too."""
    kind = installed_servers()[-1]
    with tempfile.TemporaryDirectory() as folder, kind.start(Path(folder)) as server:
        live, target = Address.parse(server.url(0, family="kue")), Address.parse(server.url(1))
        generate_keyspace(live, KeyspaceSpec(JOBS, 1, NOW))
        snapshot = Address.parse(f"ferryman+rdb://{saved(server)}?family=kue")
        if reads:
            spark = session()
            spark.dataSource.register(Ferryman)
            for options in READS.values():
                read_entries(spark, live, **options)
            for fields in (",".join(FIELDS), "*"):
                read_entries(spark, snapshot, fields=fields)
        engine, plan = SparkEngine(), Plan.between(live, target, NOW)
        for address in (live, snapshot):
            engine.audit(address, NOW, lambda _: None)
        engine.migrate(live, target, plan, lambda _: None)
        engine.verify(live, target, plan, lambda _: None)
