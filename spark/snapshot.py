"""Snapshot: a keyspace read once, key by key in parallel, and kept as a Parquet folder of facts.

    cursor ranges -> key names -> distinct -> values -> facts (and totals) -> Parquet -> subjects
    pieces of RDB files (files.py) -----------------------^

A server that is read twice answers differently, so everything that is asked about a keyspace is asked of its snapshot. Keys
are made distinct before they are read: two ranges may both name a key at their border, and what is read twice is counted
twice. No task holds more than a batch, and nothing but totals passes through the driver. Only reads from the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession

from ..migrations.engine import Progress, silent
from ..migrations.reading import BATCH, read_entries
from ..migrations.scan import node, same_server, scan_range, split
from ..migrations.source import open_source
from ..migrations.wire import wire
from ..schema.address import Address, Kind
from ..schema.connect import open_client
from ..schema.fact import Fact, FactKind, Subject, join
from ..schema.family import get_family
from ..schema.rule import Finding, Keyspace
from ..schema.totals import Totals
from .files import read_files
from .stage import Batches, Results, closing, run
from .tables import FACTS, batches, fact_bytes

T = TypeVar("T")

KEYS_A_TASK = 25_000
"""How many keys a task reads, or jobs it works on, as long as that makes no more than MAX_TASKS."""
MAX_TASKS = 1024


@frozen
class Snapshot:
    """The facts of a keyspace in a folder."""

    address: Address
    now_ms: int
    facts: Results[Fact]
    totals: Totals
    speaks: bool
    """The keyspace has a key that is more than a wake-up token or lock."""
    remarks: tuple[Finding, ...] = ()
    """About the source itself."""

    @property
    def keyspace(self) -> Keyspace:
        """What rules and readers may know."""
        return keyspace(self.address, self.now_ms, self.totals)

    def subjects(self, partitions: int) -> DataFrame:
        """The facts about jobs, so that each partition has all facts of its jobs, those of one job in a row.

        The same facts and the same number always give the same partitions in the same order.
        """
        about_jobs = self.facts.frame().where("job_id is not null")
        return about_jobs.repartition(partitions, "scope", "job_id").sortWithinPartitions("scope", "job_id")

    def reader(self) -> Callable[[Batches], Iterator[tuple[Subject, Keyspace]]]:
        """The function that a task calls on its partition of ``subjects``."""
        address, now_ms, totals = self.address, self.now_ms, self.totals.to_json()

        def read(rows: Batches) -> Iterator[tuple[Subject, Keyspace]]:
            known = keyspace(address, now_ms, Totals.from_json(totals))
            for subject in subjects(rows):
                yield subject, known

        return read


def take(spark: SparkSession, address: Address, now_ms: int, path: str, progress: Progress = silent) -> Snapshot:
    """Reads a keyspace into the folder ``path``. Raises ServerError when the source fails or is replaced meanwhile."""
    remarks: list[Finding] = []
    if address.kind is Kind.RDB:
        facts, remarks = read_files(spark, address, now_ms, tasks_for(address), path, progress)
    else:
        facts = run(keys(spark, address), _reading(address), FACTS, path, f"reading {address.family} keys", progress)
    totals = Totals()
    speaks = False
    for tail in map(json.loads, facts.tails()):
        totals.merge(Totals.from_json(tail["totals"]))
        speaks = speaks or tail["speaks"]
    return Snapshot(address, now_ms, facts, totals, speaks, tuple(remarks))


def must_speak(snapshot: Snapshot) -> None:
    """Raises KeyspaceNotFound when the snapshot shows no keyspace."""
    if not snapshot.speaks:
        with open_source(snapshot.address) as source:
            raise source.nothing_found()


def tasks_for(address: Address) -> int:
    """Into how many partitions the work on a keyspace is best cut."""
    with open_source(address) as source:
        return min(MAX_TASKS, source.size() // KEYS_A_TASK + 1)


def keys(spark: SparkSession, address: Address) -> DataFrame:
    """The names of a keyspace's keys, each once, in the column ``key``."""
    tasks = tasks_for(address)
    with open_client(address) as client:
        spans = split(client, tasks)
        run_id = node(client).run_id

    def scan(rows: Batches) -> Batches:
        family = get_family(address.family)
        with open_client(address) as client:
            for row in rows:
                for index in row.column("id").to_pylist():
                    with same_server(client, run_id):
                        for page in scan_range(client, spans[index], family.globs(address.prefix)):
                            yield pa.RecordBatch.from_arrays([pa.array(page, pa.binary())], ["key"])

    names = spark.range(0, len(spans), 1, len(spans)).mapInArrow(scan, "key binary")
    return names.repartition(tasks, "key").dropDuplicates(["key"])


def subjects(rows: Batches) -> Iterator[Subject]:
    """The subjects in a partition of ``Snapshot.subjects``; one at a time is in memory."""
    facts = (fact for batch in rows for fact in FACTS.rows(batch))
    for _, group in groupby(facts, key=lambda fact: (fact.scope, fact.job_id)):
        yield join(tuple(group))


def keyspace(address: Address, now_ms: int, totals: Totals) -> Keyspace:
    """What rules and readers may know of the keyspace at an address."""
    return Keyspace(get_family(address.family), address.prefix, now_ms, totals)


def _reading(address: Address) -> Callable[[Batches], Batches]:
    """The task that reads the keys it is given and makes facts and totals of them."""

    def read(rows: Batches) -> Batches:
        family = get_family(address.family)
        totals = Totals()
        speaks = False

        def facts() -> Iterator[Fact]:
            nonlocal speaks
            with open_client(address) as client, wire(client) as line:
                for row in rows:
                    names = row.column("key").to_pylist()
                    for start in range(0, len(names), BATCH):
                        for entries in read_entries(line, names[start : start + BATCH]):
                            for entry in entries:
                                for fact in family.facts(entry, address.prefix):
                                    family.tally(fact, totals)
                                    speaks = speaks or fact.kind is not FactKind.TOKEN
                                    yield fact

        yield from closing(
            batches(FACTS, facts(), fact_bytes), FACTS, lambda: json.dumps({"totals": totals.to_json(), "speaks": speaks})
        )

    return read
