"""LongKeys: the second step of a snapshot: keys of so many items that one task alone would read them for long.

The task that meets such a key does not read it; it leaves the key's splits (migrations/key_splits.py) in its summary. When
all other keys have been read, the splits are, one by each task. Called by snapshot.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field
from redis.crc import key_slot

from ...schema.connection.address import Address, Kind
from ...schema.connection.connect import open_client, server_errors
from ...schema.connection.pipeline import PipelineConnection, open_pipeline
from ...schema.connection.slot_map import REDIRECTIONS
from ...schema.errors import ServerError
from ...schema.fact import Fact
from ...schema.text import to_text
from ..cluster_scan import Cluster
from ..columnar.resp_views import RespReader
from ..columnar.zsets import read_members
from ..fact_reader import NewFactReader
from ..key_splits import KeySplit, cut, read_split
from ..scan import Cursors, node
from ..throttle import Throttle
from . import Progress
from .fact_files import WriteFacts
from .failures import located
from .key_rows import KeyRowWriter
from .runner import Runner, Task


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
        """For the summary of the task."""
        return {"parts": [split.to_json() for splits in self._splits.values() for split in splits]}


def read_long_keys(
    runner: Runner,
    address: Address,
    throttle: Throttle,
    summaries: Sequence[str],
    new_reader: NewFactReader,
    write: WriteFacts,
    progress: Progress,
) -> list[str]:
    """Reads all keys that the tasks with these summaries have set aside; returns the summaries of those that do."""
    splits = [KeySplit.from_json(split) for summary in map(json.loads, summaries) for split in summary["parts"]]
    if not splits:
        return []
    return runner.run(_read_task(address, throttle, splits, new_reader, write), len(splits), "reading long keys", progress)


def _read_task(
    address: Address, throttle: Throttle, splits: Sequence[KeySplit], new_reader: NewFactReader, write: WriteFacts
) -> Task:
    """The task that reads a split, for a FactReader to make facts of."""

    def read(index: int) -> str:
        reader, split = new_reader(), splits[index]

        def facts() -> Iterator[Fact]:
            pace = throttle.pace()
            with _pipeline(address, split) as pipe:
                if split.redis_type == "zset" and isinstance(reader, KeyRowWriter):
                    for zset in pace.through(read_members(RespReader(pipe), split, throttle.sizes)):
                        yield from reader.zset(zset)
                else:
                    for entry in pace.through(read_split(pipe, split, throttle.sizes)):
                        yield from reader.facts(entry)
            yield from reader.rest()

        return json.dumps(write(facts(), reader) | {"parts": []})

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
