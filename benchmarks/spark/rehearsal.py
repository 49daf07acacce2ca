"""Rehearsal: everything once with few jobs, in a process of its own, so that all loops in machine code are compiled.

That happens once for an installation, takes twenty seconds, and would count as the work of whoever needs a loop first.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ferryman.migrations.fill import Filling, fill
from ferryman.migrations.plan import Plan
from ferryman.schema.address import Address
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman

from tests.support.servers import installed_servers

from .reading import FIELDS, NOW, read_entries, saved

JOBS = 5_000


def rehearse() -> None:
    """Returns when all is compiled."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        apart.submit(_all_once).result()


def _all_once() -> None:
    kind = installed_servers()[-1]
    with tempfile.TemporaryDirectory() as folder, kind.start(Path(folder)) as server:
        live, target = Address.parse(server.url(0, family="kue")), Address.parse(server.url(1))
        fill(live, Filling(JOBS, 1, NOW))
        snapshot = Address.parse(f"ferryman+rdb://{saved(server)}?family=kue")
        spark, engine, plan = session(brief=True), SparkEngine(), Plan.between(live, target, NOW)
        spark.dataSource.register(Ferryman)
        for fields in (",".join(FIELDS), "*"):
            for by in ("scan", "index"):
                read_entries(spark, live, JOBS, fields=fields, by=by)
            read_entries(spark, snapshot, JOBS, fields=fields)
        read_entries(spark, live, JOBS)
        for address in (live, snapshot):
            engine.audit(address, NOW, lambda _: None)
        engine.migrate(live, target, plan, lambda _: None)
        engine.verify(live, target, plan, lambda _: None)
