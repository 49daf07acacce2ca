"""Snapshot: a keyspace read once, key by key in parallel, and kept as a Parquet folder of facts.

    cursor ranges -> key names -> distinct -> values -> facts (and totals) -> Parquet -> subjects
    pieces of RDB files (files.py) -----------------------^

A server that is read twice answers differently, so everything that is asked about a keyspace is asked of its snapshot. Keys
are made distinct before they are read: two ranges may both name a key at their border, and what is read twice is counted
twice. No task holds more than a batch, and nothing but totals passes through the driver. Only reads from the server.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

import pyarrow as pa
import redis
from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession

from ..migrations.clusterscan import Cluster, NodeName
from ..migrations.engine import Census, Progress, silent
from ..migrations.intake import Intake, NewIntake, Outline
from ..migrations.reading import Guess, SetAside, read_all
from ..migrations.scan import Span, node, same_server, scan_range, split
from ..migrations.sifting import can_vouch
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..migrations.wire import wire
from ..schema.address import Address, Kind
from ..schema.connect import open_client, server_errors
from ..schema.errors import ServerError
from ..schema.fact import Entry, Fact, Subject, join
from ..schema.family import get_family
from ..schema.rule import Finding, Keyspace
from ..schema.totals import Totals
from .failures import located
from .files import read_files
from .longkeys import LongKeys, positions_known, read_long_keys
from .stage import Batches, Results, closing, run
from .tables import FACTS, batches, fact_bytes
from .traces import Tracing, suspects

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
    vouched: Census = field(factory=Census)
    """The jobs that are left out, because no rule can find anything in them."""
    remade: Results[Fact] | None = None
    """More facts, of jobs that were to be left out."""

    @property
    def keyspace(self) -> Keyspace:
        """What rules and readers may know."""
        return keyspace(self.address, self.now_ms, self.totals)

    def subjects(self, partitions: int, only: DataFrame | None = None) -> DataFrame:
        """The facts about jobs, so that each partition has all facts of its jobs, those of one job in a row.

        ``only``: those whose ``scope`` and ``job_id`` stand there. The same facts and the same number always give the same
        partitions in the same order.
        """
        about_jobs = self.facts.frame().where("job_id is not null")
        if self.remade is not None:
            about_jobs = about_jobs.unionByName(self.remade.frame())
        if get_family(self.address.family).echoing:
            told = _by_job(about_jobs, partitions).mapInArrow(_echoing(self.address.family), FACTS.ddl)
            about_jobs = about_jobs.unionByName(told)
        if only is not None:
            about_jobs = about_jobs.join(only, ["scope", "job_id"], "left_semi").select(about_jobs.columns)
        return _by_job(about_jobs, partitions)

    def reader(self) -> Callable[[Batches], Iterator[tuple[Subject, Keyspace]]]:
        """The function that a task calls on its partition of ``subjects``."""
        address, now_ms, totals = self.address, self.now_ms, self.totals.to_json()

        def read(rows: Batches) -> Iterator[tuple[Subject, Keyspace]]:
            known = keyspace(address, now_ms, Totals.from_json(totals))
            for subject in subjects(rows):
                yield subject, known

        return read


def take(
    spark: SparkSession,
    address: Address,
    now_ms: int,
    path: str,
    progress: Progress = silent,
    throttle: Throttle = UNTHROTTLED,
    *,
    suspects_only: bool = False,
) -> Snapshot:
    """Reads a keyspace into the folder ``path``, a server no faster than ``throttle``.

    ``suspects_only``: jobs in which no rule can find anything may be left out (traces.py); they are counted. Raises
    ServerError when the source fails or is replaced meanwhile.
    """
    remarks: list[Finding] = []
    intake: NewIntake = partial(Intake, address)
    traced = suspects_only and can_vouch(address)
    if traced:
        os.makedirs(f"{path}-traces")
        intake = partial(Tracing, address, now_ms, f"{path}-traces")
    if address.kind is Kind.RDB:
        facts, remarks = read_files(spark, address, now_ms, tasks_for(address), path, progress, intake)
    else:
        with _same_servers(address), _at_rest(address):
            share = throttle.shared(spark.sparkContext.defaultParallelism)
            task = _reading(address, share, intake, positions_known(address))
            facts = run(keys(spark, address), task, FACTS, path, f"reading {address.family} keys", progress)
            read_long_keys(spark, address, share, facts, intake, progress)
    outline = Outline.of(facts.tails())
    snapshot = Snapshot(address, now_ms, facts, outline.totals, outline.speaks, tuple(remarks))
    if traced:
        remade, vouched = suspects(spark, address, now_ms, outline, f"{path}-traces", tasks_for(address), progress)
        return evolve(snapshot, remade=remade, vouched=vouched)
    return snapshot


@contextlib.contextmanager
def _same_servers(address: Address) -> Iterator[None]:
    """Checks that who answers after the block is who answered before it: what tasks read in between may come from either.

    Raises ServerError if not.
    """
    before = _run_ids(address)
    yield
    if _run_ids(address) != before:
        raise ServerError(
            f"{address.display()}: the server was restarted or failed over while it was read, so keys may be missing; try again"
        )


def _run_ids(address: Address) -> set[str | None]:
    """Of the server, or of all masters of a cluster."""
    if address.kind is not Kind.CLUSTER:
        with open_client(address) as client:
            return {node(client).run_id}
    with server_errors(address), Cluster(address) as cluster:
        return {node(cluster.client(name)).run_id for name in cluster.masters()}


@contextlib.contextmanager
def _at_rest(address: Address) -> Iterator[None]:
    """Checks that no slot of a cluster moves during the block: its keys may have been missed. Raises ServerError if one does."""
    if address.kind is not Kind.CLUSTER:
        yield
        return
    with server_errors(address), Cluster(address) as cluster:
        before = cluster.at_rest()
        yield
        moved = cluster.moved_since(before)
        if moved:
            raise ServerError(
                f"{address.display()}: {len(moved)} slots have moved during the scan; try again when they have settled"
            )


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
    parts = _parts(address, tasks)

    def scan(rows: Batches) -> Batches:
        globs = get_family(address.family).globs(address.prefix)
        for row in rows:
            for index in row.column("id").to_pylist():
                part = parts[index]
                work = f"scanning range {index + 1} of {len(parts)} of {part.place(address)}"
                with located(work), part.client(address) as client, same_server(client, part.run_id):
                    for page in scan_range(client, part.span, globs):
                        yield pa.RecordBatch.from_arrays([pa.array(page, pa.binary())], ["key"])

    names = spark.range(0, len(parts), 1, len(parts)).mapInArrow(scan, "key binary")
    return names.repartition(tasks, "key").dropDuplicates(["key"])


@frozen
class Part:
    """What one task scans: a span of the keys of one node."""

    span: Span
    run_id: str | None
    node: NodeName | None = None
    """None: the one server of the address."""

    def place(self, address: Address) -> str:
        """Where it lies, for people."""
        return ":".join(map(str, self.node)) if self.node else address.display()

    @contextlib.contextmanager
    def client(self, address: Address) -> Iterator[redis.Redis]:
        """A client for the node."""
        if self.node is None:
            with open_client(address) as client:
                yield client
            return
        with server_errors(address), Cluster(address) as cluster:
            yield cluster.client(self.node)


def _parts(address: Address, number: int) -> list[Part]:
    """The scan in about this many parts."""
    if address.kind is not Kind.CLUSTER:
        with open_client(address) as client:
            run_id = node(client).run_id
            return [Part(span, run_id) for span in split(client, number)]
    with server_errors(address), Cluster(address) as cluster:
        masters = cluster.masters()
        share = number // len(masters) + 1
        run_ids = {name: node(cluster.client(name)).run_id for name in masters}
        return [Part(span, run_ids[name], name) for name in masters for span in cluster.spans(name, share)]


def _by_job(facts: DataFrame, partitions: int) -> DataFrame:
    return facts.repartition(partitions, "scope", "job_id").sortWithinPartitions("scope", "job_id")


def _echoing(name: str) -> Callable[[Batches], Batches]:
    """The task that asks the jobs of a partition what they tell others."""

    def ask(rows: Batches) -> Batches:
        family = get_family(name)
        yield from batches(FACTS, (echo for subject in subjects(rows) for echo in family.echoes(subject)), fact_bytes)

    return ask


def subjects(rows: Batches) -> Iterator[Subject]:
    """The subjects in a partition of ``Snapshot.subjects``; one at a time is in memory."""
    facts = (fact for batch in rows for fact in FACTS.rows(batch))
    for _, group in groupby(facts, key=attrgetter("scope", "job_id")):
        yield join(tuple(group))


def keyspace(address: Address, now_ms: int, totals: Totals) -> Keyspace:
    """What rules and readers may know of the keyspace at an address."""
    return Keyspace(get_family(address.family), address.prefix, now_ms, totals)


def _reading(address: Address, throttle: Throttle, intake: NewIntake, by_cursor: bool) -> Callable[[Batches], Batches]:
    """The task that reads the keys it is given, for an intake to make facts of them; long keys it sets aside."""

    def read(rows: Batches) -> Batches:
        taker, longs = intake(), LongKeys(by_cursor)

        def facts() -> Iterator[Fact]:
            with _reader(address, throttle, taker.is_record, longs.set_aside) as read_keys:
                for row in rows:
                    for entry in chain.from_iterable(read_keys(row.column("key").to_pylist())):
                        yield from taker.facts(entry)

        def word() -> str:
            return json.dumps(taker.close().to_json() | longs.to_json())

        yield from closing(batches(FACTS, facts(), fact_bytes), FACTS, word)

    return read


@contextlib.contextmanager
def _reader(
    address: Address, throttle: Throttle, is_hash: Guess, set_aside: SetAside
) -> Iterator[Callable[[list[bytes]], Iterator[list[Entry]]]]:
    """The function that reads the values of keys."""
    if address.kind is Kind.CLUSTER:
        with server_errors(address), Cluster(address, throttle) as cluster:
            yield partial(cluster.read, is_hash=is_hash, set_aside=set_aside)
        return
    pace = throttle.pace()
    with open_client(address) as client, wire(client) as line:
        yield lambda names: read_all(line, names, pace, is_hash, set_aside)
