"""Spill: groups the facts of a whole keyspace by job within one task, on its disk instead of in its memory.

Facts go to one of many bucket files by a hash of their job, then each bucket, which holds all facts of its jobs, is read and
grouped in memory. Used where Spark's own shuffle can't be: inside the data source, whose tasks only read.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from zlib import crc32

import pyarrow as pa

from ..migrations.engine.tables import FACTS, fact_bytes
from ..schema.fact import Fact, Subject, join

MEMORY = 64 << 20
"""Bytes of facts that wait to be written, about."""
ROW_BYTES = 500
"""What a fact costs in memory beside its values, about."""


class Spill:
    """Facts on disk, for the length of a ``with`` block."""

    def __init__(self, buckets: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ferryman-")
        self._files = [pa.OSFile(str(Path(self._folder.name, str(index))), "wb") for index in range(buckets)]
        self._streams = [pa.ipc.new_stream(file, FACTS.arrow) for file in self._files]
        self._waiting: defaultdict[int, list[Fact]] = defaultdict(list)
        self._size = 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def add(self, fact: Fact) -> None:
        """Takes a fact about a job."""
        name = f"{fact.scope}\0{fact.job_id}".encode("utf-8", "surrogatepass")
        self._waiting[crc32(name) % len(self._files)].append(fact)
        self._size += ROW_BYTES + fact_bytes(fact)
        if self._size > MEMORY:
            self._write()

    def subjects(self) -> Iterator[Subject]:
        """The subjects of all facts that were added; after this none can be."""
        self._write()
        for stream, file in zip(self._streams, self._files, strict=True):
            stream.close()
            file.close()
        for index in range(len(self._files)):
            yield from self._bucket(index)

    def _bucket(self, index: int) -> Iterator[Subject]:
        groups: defaultdict[tuple[str, str | None], list[Fact]] = defaultdict(list)
        with pa.OSFile(str(Path(self._folder.name, str(index)))) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                for fact in FACTS.rows(batch):
                    groups[fact.scope, fact.job_id].append(fact)
        for name in sorted(groups):
            yield join(groups[name])

    def _write(self) -> None:
        for index, facts in self._waiting.items():
            self._streams[index].write_batch(FACTS.batch(facts))
        self._waiting.clear()
        self._size = 0
