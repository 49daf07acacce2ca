"""Index scan: the records of jobs, found by an index that has all of them (schema/job_index.py), instead of by a scan.

A scan costs the server half as much for each key of a keyspace as its record does; an index costs next to nothing. Slices of it
(migrations/index_slices.py) bring records in the order in which they lie in the server's memory, most likely. What an index lacks
is not read: a record that it has lost is for audits to find. Only reads from the server. Called by the data source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import redis
from attrs import frozen
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..migrations.columnar.resp_views import RespReader
from ..migrations.columnar.zsets import read_members
from ..migrations.engine.key_scan import merge_streams
from ..migrations.engine.worker import prepare_process
from ..migrations.index_slices import IndexSlice, cut_slices
from ..migrations.key_splits import KeySplit
from ..migrations.long_keys import Sizes
from ..migrations.scan import node, nothing_expires, same_server
from ..migrations.throttle import Pace, Throttle
from ..schema.columnar.binary_views import BinaryViews
from ..schema.columnar.build import concat_rows
from ..schema.columnar.jit import BYTE_ARRAY, INT, INT_ARRAY, OUT_INTS, kernel
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import open_pipeline
from ..schema.errors import ServerError, UsageError
from ..schema.family import family_names, get_family
from ..schema.job_index import JobIndex
from ..schema.text import to_text
from .projection import Projection

SPARE = 100
"""Members for which a chunk has room besides: others may have come since the index was cut."""


def index_of(address: Address) -> JobIndex:
    """The index of a keyspace. Raises UsageError for a family that has none."""
    index = address.key_family.job_index(address.prefix)
    if index is None:
        those = [name for name in family_names() if get_family(name).job_index("") is not None]
        raise UsageError(
            f"the family {address.family} keeps no index of all jobs, by which to read their records ({', '.join(those)} does): "
            "leave out option 'by'"
        )
    return index


def cut_index(client: redis.Redis, address: Address, number: int) -> list[IndexSlice]:
    """At most so many slices of the index. Raises ServerError when there is none."""
    index = index_of(address)
    with open_pipeline(client) as pipe:
        if pipe.ask("TYPE", index.key) not in (b"zset", "zset"):
            raise ServerError(
                f"{address.display()}: there is no sorted set {to_text(index.key)!r}, by which to find records; check db and "
                "prefix, or leave out option 'by' to look for them among all keys"
            )
        return cut_slices(pipe, index.key, number)


def keys_by_index(replies: RespReader, index_slice: IndexSlice, address: Address, pace: Pace) -> Iterator[BinaryViews]:
    """The keys of the records of all members of a slice of the index, some thousands at a time.

    Whoever is in the index all the while, with the same score, comes once.
    """
    return merge_streams(_keys(replies, split, address, pace) for split in index_slice)


def _keys(replies: RespReader, split: KeySplit, address: Address, pace: Pace) -> Iterator[BinaryViews]:
    index, most = index_of(address), pace.throttle.sizes.members
    # In chunks of one size the last is not much larger than what is left.
    sizes = Sizes(members=min(most, split.count // (split.count // most + 1) + SPARE))
    for found in pace.through(read_members(replies, split, sizes)):
        members = found.members
        begins = members.fill(np.empty(len(members), np.int64), _after_separator, index.separator)
        ids = BinaryViews(members.data, begins, members.sizes - (begins - members.starts))
        yield concat_rows(len(ids), [index.prefix, ids])


@frozen
class IndexPartition(InputPartition):  # type: ignore[misc]
    """The partition of one task, of an index."""

    index_slice: IndexSlice
    tasks: int
    """How many slices there are."""
    run_id: str | None


@frozen
class IndexReader(DataSourceReader):  # type: ignore[misc]
    """Reads the records that the index of a keyspace names: of the table entries, with option fields."""

    address: Address
    projection: Projection
    number: int
    throttle: Throttle
    """Of all tasks together."""

    def partitions(self) -> Sequence[IndexPartition]:
        with open_client(self.address) as client:
            index_slices = cut_index(client, self.address, self.number)
            return [IndexPartition(index_slice, len(index_slices), node(client).run_id) for index_slice in index_slices]

    def read(self, partition: IndexPartition) -> Iterator[pa.RecordBatch]:
        prepare_process()
        pace = self.throttle.shared(partition.tasks).pace()
        with open_client(self.address) as client, same_server(client, partition.run_id), open_pipeline(client) as pipe:
            replies = RespReader(pipe, no_ttls=nothing_expires(client, self.address.db))
            yield from self.projection.read(
                replies, keys_by_index(replies, partition.index_slice, self.address, pace), pace, self.address
            )


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, INT)
def _after_separator(data: Any, starts: Any, sizes: Any, begins: Any, mark: int) -> None:
    """Fills in where the rest of each text begins behind the first such byte, or the text itself if it has none."""
    for row in range(len(starts)):
        begins[row] = starts[row]
        for at in range(starts[row], starts[row] + sizes[row]):
            if data[at] == mark:
                begins[row] = at + 1
                break
