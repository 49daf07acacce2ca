"""Snapshot: a keyspace read once, key by key in parallel, and kept as a Parquet folder of facts.

    keys (key_scan.py) -> values -> facts (and totals) -> Parquet -> subjects
    pieces of RDB files (files.py) -------^

A server that is read twice answers differently, so everything that is asked about a keyspace is asked of its snapshot. No task
holds more than a batch, and nothing but totals passes through the driver. Only reads from the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeVar

from attrs import evolve, field, frozen
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from ..migrations.cluster_scan import Cluster
from ..migrations.engine import Census, Progress, silent
from ..migrations.fact_reader import FactReader, NewFactReader, ReadSummary
from ..migrations.prefiltering_reader import has_prefilter
from ..migrations.reading import SetAside, no_guess, read_all
from ..migrations.scan import node, nothing_expires
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.columnar.binary_views import BinaryViews
from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.errors import ServerError
from ..schema.fact import Fact, Subject, join
from ..schema.family import Keyspace
from ..schema.rule import Finding
from ..schema.totals import Totals
from .failures import work_errors
from .files import read_files
from .hashes import read_hashes, read_lists
from .job_selection import JobSelection, selected_ids
from .jobs import FactJobs, Jobs, KeyRowJobs
from .key_rows import KeyRowWriter
from .key_scan import KeyList, list_keys
from .longkeys import LongKeys, cursors_are_positions, read_long_keys
from .placement_check import KeyRows
from .resp_views import RespReader
from .step import Batches, Results, few_tasks, run_step, with_summary
from .tables import FACTS, Table, batches, fact_bytes
from .zsets import read_zset

T = TypeVar("T")

Work = Callable[[str, Jobs], Batches]
"""What a task does with the jobs of a partition, by its name. Yields through ``with_summary``."""
JOB_KEY = ["scope", "job_id"]
"""The columns that name the job of a fact."""
MOST_BROADCAST = 100_000
"""Jobs to which others refer, whose names are given to every task: that spares all other facts a second shuffle."""
ACCEPTED_PREFIX = "sound-"
"""Before the number of a partition, where its jobs are no facts."""


@frozen
class Snapshot:
    """The facts of a keyspace in a folder, and the key rows of the jobs that became none."""

    address: Address
    now_ms: int
    tasks: int
    """Into how many partitions jobs are cut."""
    facts: Results[Fact]
    totals: Totals
    has_content: bool
    """The keyspace has a key that is more than a wake-up token or lock."""
    references: int = 0
    """How many facts there are by which jobs refer to others."""
    remarks: tuple[Finding, ...] = ()
    """About the source itself."""
    key_rows: KeyRows | None = None
    """Of jobs in which no rule can find anything, and which are no facts (placement_check.py)."""
    accepted: Census = field(factory=Census)
    """How many these are."""
    all_accepted: bool = False
    """There are no others: nothing is known of jobs but key rows."""
    mismatched: Results[Fact] | None = None
    """More facts, of jobs that did not pass the placement check."""
    left: Counter[str] = field(factory=Counter)
    """Keys that no migration carries (migrations/leftovers.py)."""

    @property
    def keyspace(self) -> Keyspace:
        """What rules and readers may know."""
        return keyspace(self.address, self.now_ms, self.totals)

    @property
    def partitions(self) -> list[str]:
        """The names of all partitions that ``work`` may do, the same for each snapshot of this keyspace with so many tasks."""
        partitions = [str(partition) for partition in range(self.tasks)]
        return (
            partitions + [f"{ACCEPTED_PREFIX}{partition}" for partition in partitions]
            if has_prefilter(self.address)
            else partitions
        )

    def subjects(self, only: JobSelection | None = None, partitions: int | None = None) -> DataFrame:
        """The facts about jobs, so that each partition has all facts of its jobs, those of one job in a row.

        ``partitions``: how many, instead of ``tasks``. The same facts always give the same partitions in the same order.
        """
        about_jobs = self.facts.frame().where("job_id is not null")
        if self.mismatched is not None:
            about_jobs = about_jobs.unionByName(self.mismatched.frame())
        if self.references:
            referenced = _by_job(self._referenced_among(about_jobs), self.tasks)
            about_jobs = about_jobs.unionByName(referenced.mapInArrow(_back_reference_task(self.address), FACTS.ddl))
        if only is not None:
            about_jobs = about_jobs.join(only.frame, JOB_KEY, "left_semi").select(about_jobs.columns)
        return _by_job(about_jobs, partitions or self.tasks)

    def _referenced_among(self, facts: DataFrame) -> DataFrame:
        """The facts of all jobs to which others refer, and perhaps of others too."""
        if self.references > MOST_BROADCAST:
            return facts
        roles = self.address.key_family.reference_roles
        names = facts.where(functions.col("role").isin(*roles)).select(*JOB_KEY).distinct()
        return facts.join(functions.broadcast(names), JOB_KEY, "left_semi").select(facts.columns)

    def work(
        self, work: Work, table: Table[T], path: str, phase: str, progress: Progress = silent, only: JobSelection | None = None
    ) -> Results[T]:
        """Does ``work`` on every job, partition by partition: see ``step.run_step``. ``only``: on these jobs.

        Jobs that are facts and those that are none are partitions of their own. A partition without a job may be left out.
        """
        done = None
        if not self.all_accepted:
            done = run_step(self.subjects(only), self._on_facts(work), table, path, phase, progress)
        if self.key_rows is not None:
            steps = self.facts.spark.range(0, self.tasks, 1, self.tasks)
            selected = None if only is None else only.path
            task = self._on_key_rows(work, self.key_rows, selected)
            done = run_step(steps, task, table, path, phase, progress, more=done is not None)
        assert done is not None, "without key rows nothing was accepted"
        return done

    def _on_facts(self, work: Work) -> Callable[[Batches], Batches]:
        known = self._known()

        def task(rows: Batches) -> Batches:
            yield from work(str(TaskContext.get().partitionId()), FactJobs(known(), subjects(rows)))

        return task

    def _on_key_rows(self, work: Work, key_rows: KeyRows, selected: str | None) -> Callable[[Batches], Batches]:
        known = self._known()

        def task(rows: Batches) -> Batches:
            keyspace = known()
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                ids = None if selected is None else selected_ids(selected, f"{ACCEPTED_PREFIX}{bucket}")
                yield from work(f"{ACCEPTED_PREFIX}{bucket}", KeyRowJobs(keyspace, key_rows, bucket, ids))

        return task

    def _known(self) -> Callable[[], Keyspace]:
        """What a task knows of the keyspace."""
        address, now_ms, totals = self.address, self.now_ms, self.totals.to_json()
        return lambda: keyspace(address, now_ms, Totals.from_json(totals))


def take(
    spark: SparkSession,
    address: Address,
    now_ms: int,
    path: str,
    tasks: int,
    progress: Progress = silent,
    throttle: Throttle = UNTHROTTLED,
    *,
    prefiltering: bool = True,
    for_transfer: bool = False,
) -> Snapshot:
    """Reads a keyspace into the folder ``path`` by about so many tasks, a server no faster than ``throttle``.

    ``prefiltering``: jobs in which no rule can find anything need not become facts, or, if ``for_transfer``, no rule that
    refuses. Raises ServerError when the source fails or is replaced meanwhile.
    """
    remarks: list[Finding] = []
    new_reader: NewFactReader = partial(FactReader, address)
    if prefiltering and has_prefilter(address):
        with work_errors(path):
            os.makedirs(f"{path}-traces")
        new_reader = partial(KeyRowWriter, address, now_ms, f"{path}-traces", tasks, for_transfer=for_transfer)
    if address.kind is Kind.RDB:
        facts, remarks = read_files(spark, address, now_ms, tasks, path, progress, new_reader)
    else:
        with _same_servers(address), _at_rest(address):
            share = throttle.shared(spark.sparkContext.defaultParallelism)
            keys = list_keys(spark, address, throttle, f"{path}-names", tasks, progress)
            steps = spark.range(0, keys.partitions, 1, keys.partitions)
            task = _read_task(address, share, new_reader, keys, cursors_are_positions(address))
            facts = run_step(steps, task, FACTS, path, f"reading {address.family} keys", progress)
            keys.remove()
            read_long_keys(spark, address, share, facts, new_reader, progress)
    return snapshot_of(address, now_ms, tasks, facts, remarks, progress)


def snapshot_of(
    address: Address, now_ms: int, tasks: int, facts: Results[Fact], remarks: Sequence[Finding] = (), progress: Progress = silent
) -> Snapshot:
    """The snapshot of which these are the facts, and their summaries name the files of key rows."""
    read_summary = ReadSummary.of(facts.summaries())
    snapshot = Snapshot(
        address,
        now_ms,
        tasks,
        facts,
        read_summary.totals,
        read_summary.has_content,
        read_summary.references,
        tuple(remarks),
        left=read_summary.left,
    )
    if not read_summary.files:
        return snapshot
    key_rows = KeyRows.of(address, now_ms, read_summary, tasks)
    path = f"{facts.path}-mismatches-{uuid.uuid4()}"
    mismatched = run_step(few_tasks(facts.spark, tasks), _verify_task(key_rows), FACTS, path, "comparing places", progress)
    accepted = Census()
    for summary in mismatched.summaries():
        accepted.merge(Census.from_json(summary))
    all_accepted = not read_summary.about_jobs and next(mismatched.rows(), None) is None
    return evolve(snapshot, key_rows=key_rows, mismatched=mismatched, accepted=accepted, all_accepted=all_accepted)


def _verify_task(key_rows: KeyRows) -> Callable[[Batches], Batches]:
    """The task that makes facts of the mismatches of the buckets it is given, and counts the other jobs."""

    def verify(rows: Batches) -> Batches:
        family, counted = key_rows.address.key_family, Census()

        def facts() -> Iterator[Fact]:
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                verified = key_rows.verify(bucket)
                counted.merge(key_rows.census(verified))
                for entry in key_rows.mismatches(bucket, verified):
                    yield from family.facts(entry, key_rows.address.prefix)

        yield from with_summary(batches(FACTS, facts(), fact_bytes), FACTS, counted.to_json)

    return verify


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
        cluster.must_own(before)


def require_keyspace(snapshot: Snapshot) -> None:
    """Raises KeyspaceNotFound when the snapshot shows no keyspace."""
    if not snapshot.has_content:
        with open_source(snapshot.address) as source:
            raise source.nothing_found()


def _by_job(facts: DataFrame, partitions: int) -> DataFrame:
    return facts.repartition(partitions, *JOB_KEY).sortWithinPartitions(*JOB_KEY)


def _back_reference_task(address: Address) -> Callable[[Batches], Batches]:
    """The task that asks the jobs of a partition what they tell others."""

    def answer(rows: Batches) -> Batches:
        family = address.key_family
        referenced = (subject for subject in subjects(rows) if family.is_referenced(subject.facts))
        yield from batches(FACTS, (fact for subject in referenced for fact in family.back_references(subject)), fact_bytes)

    return answer


def subjects(rows: Batches) -> Iterator[Subject]:
    """The subjects in a partition of ``Snapshot.subjects``; one at a time is in memory."""
    facts = (fact for batch in rows for fact in FACTS.rows(batch))
    for _, group in groupby(facts, key=attrgetter("scope", "job_id")):
        yield join(tuple(group))


def keyspace(address: Address, now_ms: int, totals: Totals) -> Keyspace:
    """What rules and readers may know of the keyspace at an address."""
    return Keyspace(address.key_family, address.prefix, now_ms, totals)


def _read_task(
    address: Address, throttle: Throttle, new_reader: NewFactReader, keys: KeyList, by_cursor: bool
) -> Callable[[Batches], Batches]:
    """The task that reads the keys of the partitions it is given, for a FactReader to make facts of; long keys it sets aside."""

    def read(rows: Batches) -> Batches:
        reader, longs = new_reader(), LongKeys(by_cursor)

        def facts() -> Iterator[Fact]:
            pages = (page for row in rows for partition in row.column("id").to_pylist() for page in keys.of(partition))
            reading = _of_cluster if address.kind is Kind.CLUSTER else _of_server
            yield from reading(address, throttle, pages, reader, longs)
            yield from reader.rest()

        def summary() -> str:
            return json.dumps(reader.close().to_json() | longs.to_json())

        yield from with_summary(batches(FACTS, facts(), fact_bytes), FACTS, summary)

    return read


def _of_server(
    address: Address, throttle: Throttle, pages: Iterator[BinaryViews], reader: FactReader, longs: LongKeys
) -> Iterator[Fact]:
    pace = throttle.pace()
    with open_client(address) as client, open_pipeline(client) as pipe:
        replies = RespReader(pipe, no_ttls=nothing_expires(client, address.db))
        for keys in pages:
            others: list[bytes] = []
            if isinstance(reader, KeyRowWriter):
                are_records, are_lists = reader.guess(keys)
                for hashes, left in read_hashes(replies, keys.take(are_records), pace):
                    yield from reader.hashes(hashes)
                    others += left
                for lists, left in read_lists(replies, keys.take(are_lists), pace):
                    yield from reader.lists(lists)
                    others += left
                keys = keys.take(~(are_records | are_lists))
            others += keys.to_list()
            zsets: list[tuple[bytes, int | None]] = []
            for entry in chain.from_iterable(read_all(pipe, others, pace, no_guess, _setting_aside(longs, reader, zsets))):
                yield from reader.facts(entry)
            if isinstance(reader, KeyRowWriter):
                for key, ttl_ms in zsets:
                    for chunk in pace.through(read_zset(replies, key, ttl_ms, throttle.sizes)):
                        yield from reader.zset(chunk)


def _setting_aside(longs: LongKeys, reader: FactReader, zsets: list[tuple[bytes, int | None]]) -> SetAside:
    """Sets long keys aside, and leaves zsets of more than a chunk to who can read them as columns."""

    def set_aside(pipe: PipelineConnection, key: bytes, redis_type: str, ttl_ms: int | None) -> bool:
        if longs.set_aside(pipe, key, redis_type, ttl_ms):
            return True
        if redis_type != "zset" or not isinstance(reader, KeyRowWriter):
            return False
        zsets.append((key, ttl_ms))
        return True

    return set_aside


def _of_cluster(
    address: Address, throttle: Throttle, pages: Iterator[BinaryViews], reader: FactReader, longs: LongKeys
) -> Iterator[Fact]:
    with server_errors(address), Cluster(address, throttle) as cluster:
        for page in pages:
            for entry in chain.from_iterable(cluster.read(page.to_list(), is_hash=reader.is_record, set_aside=longs.set_aside)):
                yield from reader.facts(entry)
