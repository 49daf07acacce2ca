"""LongKeys: the second step of a snapshot: keys of so many items that one task alone would read them for long.

The task that meets such a key does not read it; it leaves the key's splits (migrations/key_splits.py) in its summary row. When
all other keys have been read, the splits are, one by each task. Called by snapshot.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import define, field
from pyspark.sql import SparkSession
from redis.crc import key_slot

from ..migrations.cluster_scan import Cluster
from ..migrations.engine import Progress
from ..migrations.fact_reader import NewFactReader
from ..migrations.key_splits import KeySplit, cut, read_split
from ..migrations.scan import Cursors, node
from ..migrations.throttle import Throttle
from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.connection.slot_map import REDIRECTIONS
from ..schema.errors import ServerError
from ..schema.fact import Fact
from ..schema.text import to_text
from .failures import located
from .key_rows import KeyRowWriter
from .resp_views import RespReader
from .step import Batches, Results, run_step, with_summary
from .tables import FACTS, batches, fact_bytes
from .zsets import read_members


def cursors_are_positions(address: Address) -> bool:
    """Whether the cursors of a server, or of all masters, are positions, so that sets and hashes can be cut."""
    if address.kind is not Kind.CLUSTER:
        with open_client(address) as client:
            return node(client).cursors is not Cursors.UNKNOWN
    with server_errors(address), Cluster(address) as cluster:
        return all(node(cluster.client(name)).cursors is not Cursors.UNKNOWN for name in cluster.masters())


@define
class LongKeys:
    """The long keys that one task has met."""

    by_cursor: bool
    """See ``cursors_are_positions``."""
    _splits: dict[bytes, list[KeySplit]] = field(factory=dict)

    def set_aside(self, pipe: PipelineConnection, key: bytes, redis_type: str, ttl_ms: int | None) -> bool:
        """Cuts a key into splits for the second step, if that can be done."""
        # A batch of keys may be read a second time, when a slot has moved.
        self._splits[key] = cut(pipe, key, redis_type, ttl_ms, by_cursor=self.by_cursor)
        return bool(self._splits[key])

    def to_json(self) -> dict[str, Any]:
        """For the summary row of the task."""
        return {"parts": [split.to_json() for splits in self._splits.values() for split in splits]}


def read_long_keys(
    spark: SparkSession, address: Address, throttle: Throttle, facts: Results[Fact], new_reader: NewFactReader, progress: Progress
) -> None:
    """Reads all keys that the tasks behind ``facts`` have set aside, and adds what they state."""
    splits = [KeySplit.from_json(split) for summary in map(json.loads, facts.summaries()) for split in summary["parts"]]
    if splits:
        steps = spark.range(0, len(splits), 1, len(splits))
        run_step(
            steps, _read_task(address, throttle, splits, new_reader), FACTS, facts.path, "reading long keys", progress, more=True
        )


def _read_task(
    address: Address, throttle: Throttle, splits: Sequence[KeySplit], new_reader: NewFactReader
) -> Callable[[Batches], Batches]:
    """The task that reads the splits whose numbers it is given, for a FactReader to make facts of."""

    def read(rows: Batches) -> Batches:
        reader = new_reader()

        def facts() -> Iterator[Fact]:
            pace = throttle.pace()
            for index in (index for row in rows for index in row.column("id").to_pylist()):
                split = splits[index]
                with _pipeline(address, split) as pipe:
                    if split.redis_type == "zset" and isinstance(reader, KeyRowWriter):
                        for zset in pace.through(read_members(RespReader(pipe), split, throttle.sizes)):
                            yield from reader.zset(zset)
                        continue
                    for entry in pace.through(read_split(pipe, split, throttle.sizes)):
                        yield from reader.facts(entry)
            yield from reader.rest()

        def summary() -> str:
            return json.dumps(reader.close().to_json() | {"parts": []})

        yield from with_summary(batches(FACTS, facts(), fact_bytes), FACTS, summary)

    return read


@contextlib.contextmanager
def _pipeline(address: Address, split: KeySplit) -> Iterator[PipelineConnection]:
    """A pipeline to the server that has the key. Raises ServerError that names the split."""
    name = f"{to_text(split.key)!r}"
    with located(f"reading part {split.number + 1} of {split.of} of {name}"):
        if address.kind is not Kind.CLUSTER:
            with open_client(address) as client, open_pipeline(client) as pipe:
                yield pipe
            return
        with server_errors(address), Cluster(address) as cluster:
            try:
                with open_pipeline(cluster.owner_of(key_slot(split.key))) as pipe:
                    yield pipe
            except REDIRECTIONS:
                raise ServerError(f"{address.display()}: {name} moves to another node; try again when it has settled") from None
