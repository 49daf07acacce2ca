"""Ferryman: the Spark data source ``ferryman``.

    spark.read.format("ferryman").option("table", "jobs").load("ferryman://…?family=kue")
    jobs.write.format("ferryman").mode("append").save("ferryman://…")
    spark.readStream.format("ferryman").option("table", "totals").load("ferryman://…")

Options for reading; ``.schema(…)`` chooses some of a table's columns:
    url         the keyspace, see schema/connection/address.py; the same as the path of ``load`` and ``save``
    table       jobs (default), findings, totals, facts, keys or entries (each key with all that it holds)
    partitions  for facts, keys and entries: how many tasks read side by side (default 1). With more than one on a server, a key
                at the border of two ranges may appear twice; ``ferryman.spark.frames`` has facts in parallel without that. Of a
                cluster, one task follows slots that move; several (one for each master at least) raise an error when one does
    fields      for entries: only the records of jobs, and of these only some fields, each in a column: state,type,priority; or *
                for the records with all their fields, in the table's own columns. Where a family's names don't tell what is a
                record (pjq, kombu), every hash counts as one. Read from a cluster by a task for each master at least
    columns     the columns to read: id,queue,state
    id, queue, state, name
                for jobs: only these, a text or a JSON list of several. Filters that Spark pushes down do the same
    limit       for jobs, findings and totals: no more rows
    by          index: for jobs by queue and state, and for entries with fields, only what stands in an index
    now         the moment that rules compare with, Unix ms (default: the server's clock, or the time of the snapshot)
    throttle    keys a second that all tasks together read from a server, or polite, as on the command line (default: no limit)
    checksum    false: that of a snapshot file is not compared (default: true)

Findings of a live keyspace are looked at again, as by an audit: those of jobs that only moved meanwhile are left out.

A source's tasks can't exchange rows, so one task makes the tables jobs and findings, with the facts of all jobs on its disk
meanwhile: right for any size, and not the fastest; that is frames.py too. A keyspace without keys is an empty table. Every
action on a table reads the server again: write it to Parquet first. Options for writing: see sink.py,
and publish.py for what is published to queues in use.

Options for streams (stream.py): url, and
    table            totals or events
    every            seconds between two polls (default: 5 for totals, 60 for events); 0: as often as the query's trigger asks
    patience         seconds for which a poll waits for a server that is away (default 30)
    throttle         how fast a poll reads, as on the command line (default: polite)
    state            for events: a folder, of this query alone, that is kept as long as its checkpoint
    maxRowsPerTrigger  for events, from Spark 4.2 on: no more rows in a micro-batch
    startingOffsets  for events: earliest (default) reports what is there at the beginning, latest only what comes after
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import redis
from attrs import evolve, frozen
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..migrations.cluster_scan import Cluster, Owner
from ..migrations.columnar.columns import entries_of
from ..migrations.columnar.hashes import of_family
from ..migrations.columnar.rdbcolumns import unproven
from ..migrations.columnar.resp_views import RespReader
from ..migrations.engine.key_scan import ScanRange, scan_ranges, sorted_in_chunks
from ..migrations.engine.tables import FACTS, FINDINGS, JOBS, Table, batches, fact_bytes
from ..migrations.engine.worker import prepare_process
from ..migrations.rdbfile import NotAPiece, Piece
from ..migrations.scan import EVERYTHING, SCAN_COUNT, Span, entries, nothing_expires, same_server, scan_range
from ..migrations.source import open_file, open_source, snapshot_paths
from ..migrations.throttle import Throttle
from ..schema.columnar.binary_views import BinaryViews
from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import server_errors
from ..schema.connection.pipeline import open_pipeline
from ..schema.connection.slot_map import REDIRECTIONS
from ..schema.errors import ServerError, UsageError
from . import options
from .entries import ENTRIES, entry_bytes
from .index_scan import IndexReader, index_of
from .poll import EVENTS, TOTALS
from .projection import EntireKeys, Projection, parse_fields
from .publish import PublishStreamWriter, PublishWriter, publish_stream_writer, publish_writer
from .row_filter import JOB_OPTIONS, parse_filter
from .sink import Sink, begin
from .stream import EventsStream, PollOptions, Stream, TotalsStream
from .table_reader import PushdownReader, TableReader, WholePartition, takes_filters
from .user_schema import chosen_columns, is_full_schema, with_user_schema

TABLES: Mapping[str, Table[Any] | None] = {
    "jobs": JOBS,
    "findings": FINDINGS,
    "facts": FACTS,
    "keys": None,
    "entries": ENTRIES,
    "totals": TOTALS,
    "events": EVENTS,
}
READ_OPTIONS = frozenset(
    {"url", "table", "columns", "limit", "partitions", "fields", "by", "now", "throttle", "checksum", *JOB_OPTIONS}
)
STREAM_OPTIONS = frozenset({"url", "table", "every", "patience", "throttle", "state", "startingoffsets", "maxrowspertrigger"})
WRITE_OPTIONS = frozenset({"url", "lossy", "batch", "remember"})
STREAM_WRITE_OPTIONS = frozenset({"url", "remember", "checkpointlocation"})
KEY = pa.schema([("key", pa.binary())])
"""The columns of the table keys."""


class Ferryman(DataSource):  # type: ignore[misc]
    """The data source; Spark makes one for each table that is read or written."""

    @classmethod
    def name(cls) -> str:
        return "ferryman"

    def schema(self) -> str | StructType:
        table, projection = TABLES[_table(self.options)], _projection(self.options)
        if "columns" in self.options:
            return chosen_columns(self.options["columns"], _table(self.options), self._columns())
        if table is ENTRIES:
            return projection.schema
        return table.ddl if table else "key binary"

    def reader(self, schema: Any) -> DataSourceReader:
        table, reader = _table(self.options), self._reader()
        with_columns = partial(with_user_schema, wanted=schema, table=table, columns=self._columns())
        if not isinstance(reader, TableReader):
            return with_columns(reader)
        if isinstance(schema, StructType):
            reader = evolve(reader, columns=frozenset(schema.names))
        return PushdownReader(reader, with_columns) if takes_filters() else with_columns(reader)

    def _columns(self) -> pa.Schema:
        table, projection = TABLES[_table(self.options)], _projection(self.options)
        if table is ENTRIES:
            return ENTRIES.arrow if isinstance(projection.schema, str) else to_arrow_schema(projection.schema)
        return table.arrow if table else KEY

    def _reader(self) -> DataSourceReader:
        options.check_names(self.options, READ_OPTIONS)
        address = options.address_of(self.options)
        if not options.is_flag(self.options, "checksum", default=True):
            if address.kind is not Kind.RDB:
                raise UsageError(f"option 'checksum' is for snapshot files; {address.display()} is a server")
            address = address.unchecked()
        now = options.number(self.options, "now")
        projection, throttle = _projection(self.options), options.throttle_of(self.options)
        by_index = _is_by_index(self.options, address)
        limit = options.number(self.options, "limit")
        wanted = parse_filter(self.options, _table(self.options), limit)
        if limit is not None and _table(self.options) in ("facts", "keys", "entries"):
            raise UsageError("option 'limit' goes with the tables jobs, findings and totals; use .limit(…) with others")
        match _table(self.options):
            case "facts" | "keys" | "entries" as table:
                number = options.number(self.options, "partitions") or 1
                if by_index:
                    return IndexReader(address, projection, number, throttle)
                if address.kind is Kind.RDB:
                    return PieceReader(address, table, projection, number, now)
                return RangeReader(address, table, projection, number, throttle)
            case "events":
                raise UsageError("the table events is a stream: use spark.readStream")
            case table:
                return TableReader(address, table, now, throttle, wanted, by_index)

    def streamReader(self, schema: Any) -> Stream:  # noqa: N802 - Spark's name
        options.check_names(self.options, STREAM_OPTIONS)
        address = options.address_of(self.options)
        if address.kind is Kind.RDB:
            raise UsageError(f"{address.display()} is a snapshot, which never changes: use spark.read")
        table = _table(self.options)
        if not is_full_schema(schema, self._columns()):
            raise UsageError(f"a stream of the table {table} has all of its columns: leave .schema(…) out, and use .select(…)")
        every = options.seconds(self.options, "every", 60 if table == "events" else 5)
        patience = options.seconds(self.options, "patience", 30)
        polling = PollOptions(address, round(1000 * every), patience, options.throttle_of(self.options, "polite"))
        most_rows = options.most_rows(self.options, table)
        match table:
            case "totals":
                return TotalsStream(polling)
            case "events":
                start = self.options.get("startingOffsets", "earliest")
                if start not in ("earliest", "latest"):
                    raise UsageError(f"option 'startingOffsets' must be earliest or latest, not {start!r}")
                return EventsStream(
                    polling, options.required(self.options, "state"), silently=start == "latest", most_rows=most_rows
                )
            case _:
                raise UsageError(f"the table {table} is no stream; there are: totals, events")

    def writer(self, schema: Any, overwrite: bool) -> Sink | PublishWriter:
        options.check_names(self.options, WRITE_OPTIONS)
        if overwrite:
            raise UsageError("jobs can only be added: use .mode('append')")
        address, batch = options.address_of(self.options), self.options.get("batch")
        if batch is None:
            return begin(address, schema, lossy=options.is_flag(self.options, "lossy", default=False))
        if "lossy" in self.options:
            raise UsageError("option 'lossy' does not go with option 'batch': a job is published whole or not at all")
        return publish_writer(address, schema, batch, options.remember_ms(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> PublishStreamWriter:  # noqa: N802 - Spark's name
        options.check_names(self.options, STREAM_WRITE_OPTIONS)
        if overwrite:
            raise UsageError("jobs can only be added: use .outputMode('append')")
        return publish_stream_writer(options.address_of(self.options), schema, options.remember_ms(self.options))


@frozen
class RangePartition(InputPartition):  # type: ignore[misc]
    """The partition of one task of several."""

    range: ScanRange
    tasks: int
    """How many partitions there are."""
    owners: Mapping[int, Owner] | None = None
    """Of all slots of a cluster: keys may be missed if they change."""

    @contextlib.contextmanager
    def client(self, address: Address) -> Iterator[redis.Redis]:
        """The server of this partition. Raises ServerError, also when it is not the same at the end, or a slot has moved."""
        with self.range.client(address) as client, same_server(client, self.range.run_id):
            if self.owners is None:
                yield client
                return
            with Cluster(address) as cluster:
                cluster.must_own(self.owners)
                try:
                    yield client
                except REDIRECTIONS:
                    cluster.must_own(self.owners)
                    raise ServerError(f"{address.display()}: a slot was on the move during the scan; try again") from None
                cluster.must_own(self.owners)


@frozen
class RangeReader(DataSourceReader):  # type: ignore[misc]
    """Reads the tables that need no join: keys, entries and facts."""

    address: Address
    table: str
    projection: Projection
    """Of the table entries."""
    number: int
    throttle: Throttle
    """Of all tasks together."""

    def partitions(self) -> Sequence[RangePartition | WholePartition]:
        owners = None
        if self.address.kind is Kind.CLUSTER:
            if self.number == 1 and self.projection.redis_type is None:
                return [WholePartition()]
            with server_errors(self.address), Cluster(self.address) as cluster:
                owners = cluster.at_rest()
        ranges = scan_ranges(self.address, self.number)
        return [RangePartition(each, len(ranges), owners) for each in ranges]

    def read(self, partition: RangePartition | WholePartition) -> Iterator[pa.RecordBatch]:
        prepare_process()
        if isinstance(partition, WholePartition):
            yield from self._read_cluster()
            return
        with partition.client(self.address) as client:
            yield from self._read(client, partition.range.span, self.throttle.shared(partition.tasks))

    def _read(self, client: redis.Redis, span: Span, throttle: Throttle) -> Iterator[pa.RecordBatch]:
        family, prefix = self.address.key_family, self.address.prefix
        # Types that names don't tell the server must look up, which makes a scan half as dear again.
        redis_type = self.projection.redis_type if self.table == "entries" and not family.names_records else None
        pages = scan_range(client, span, family.globs(prefix), throttle.page(SCAN_COUNT), redis_type=redis_type)
        if self.table == "keys":
            for page in pages:
                yield pa.RecordBatch.from_arrays([pa.array(page, pa.binary())], ["key"])
            return
        if self.table == "entries":
            if span == EVERYTHING:
                pages = _distinct(pages)
            with open_pipeline(client) as pipe:
                replies = RespReader(pipe, no_ttls=nothing_expires(client, self.address.db))
                yield from self.projection.read(
                    replies, sorted_in_chunks(map(BinaryViews.of, pages)), throttle.pace(), self.address
                )
            return
        found = entries(client, family, prefix, span, throttle)
        facts = (fact for batch in found for entry in batch for fact in family.facts(entry, prefix))
        yield from batches(FACTS, facts, fact_bytes)

    def _read_cluster(self) -> Iterator[pa.RecordBatch]:
        """All nodes in one task, which sees to it that slots that move are not missed."""
        family, prefix = self.address.key_family, self.address.prefix
        with open_source(self.address, self.throttle) as source:
            for batch in source.entries(0):
                if self.table == "keys":
                    names = [entry.key for entry in batch if not entry.offset]
                    yield pa.RecordBatch.from_arrays([pa.array(names, pa.binary())], ["key"])
                elif self.table == "entries":
                    yield from batches(ENTRIES, batch, entry_bytes)
                else:
                    yield from batches(FACTS, (fact for entry in batch for fact in family.facts(entry, prefix)), fact_bytes)


@frozen
class FilePartition(InputPartition):  # type: ignore[misc]
    """The partition of one task, of a snapshot file."""

    path: str
    piece: Piece


@frozen
class PieceReader(DataSourceReader):  # type: ignore[misc]
    """The same tables from snapshot files."""

    address: Address
    table: str
    projection: Projection
    number: int
    now_ms: int | None

    def partitions(self) -> Sequence[FilePartition]:
        partitions = []
        for path in snapshot_paths(self.address):
            with open_file(path, self.address) as file:
                # Tasks can't tell one another what they have seen, and what one has given out can't be taken back.
                file.must_be_whole()
                partitions += [FilePartition(path, piece) for piece in file.pieces(self.number)]
        return partitions

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:
        prepare_process()
        family, prefix = self.address.key_family, self.address.prefix
        with open_file(partition.path, self.address) as file:
            now_ms = file.written_at_ms if self.now_ms is None else self.now_ms
            found = of_family(unproven(file, partition.piece, self.address.db, now_ms), family, prefix)
            try:
                match self.table:
                    case "keys":
                        entries_found = chain.from_iterable(map(entries_of, found))
                        names = pa.array([entry.key for entry in entries_found if not entry.offset], pa.binary())
                        proven = [pa.RecordBatch.from_arrays([names], ["key"])]
                    case "entries":
                        proven = list(self.projection.batches(found, self.address))
                    case _:
                        facts = (fact for each in found for entry in entries_of(each) for fact in family.facts(entry, prefix))
                        proven = list(batches(FACTS, facts, fact_bytes))
            except NotAPiece as error:
                raise ServerError(
                    f"{partition.path}: a part of the file can't be read on its own ({error}); use option partitions=1 or "
                    "ferryman.spark.frames, which find better parts by themselves"
                ) from None
        yield from proven


def _distinct(pages: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """The names that SCAN gives, each once."""
    seen: set[bytes] = set()
    for page in pages:
        fresh = [key for key in dict.fromkeys(page) if key not in seen]
        seen.update(fresh)
        yield fresh


def _projection(options: Mapping[str, str]) -> Projection:
    """What the rows of the table entries are."""
    text = options.get("fields")
    if text is None:
        return EntireKeys()
    if _table(options) != "entries":
        raise UsageError("option 'fields' goes with the table entries alone")
    return parse_fields(text)


def _is_by_index(options: Mapping[str, str], address: Address) -> bool:
    """Whether records are to be found by an index. Raises UsageError where they can't be."""
    match options.get("by", "scan"):
        case "scan":
            return False
        case "index":
            if address.kind in (Kind.RDB, Kind.CLUSTER):
                raise UsageError("option 'by' can be index for one server alone: snapshots and clusters are read by a scan")
            if _table(options) == "jobs":
                return True
            if options.get("fields") is None:
                raise UsageError(
                    "option 'by' goes with the table jobs, and with option 'fields': an index names the records of jobs, and no "
                    "other keys"
                )
            index_of(address)
            return True
        case text:
            raise UsageError(f"option 'by' must be scan or index, not {text!r}")


def _table(options: Mapping[str, str]) -> str:
    name = options.get("table", "jobs")
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}; there are: {', '.join(TABLES)}")
    return name
