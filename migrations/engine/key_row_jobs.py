"""Key row jobs: the verified jobs of a bucket of key rows, as tables where a family makes these. Called by file_snapshot.py."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import numpy as np
from attrs import frozen

from ...schema.columnar.batch_prefilter import TableReader
from ...schema.family import Keyspace
from .jobs import JobBatch, Jobs, Many, One
from .placement_check import KeyRows

T = TypeVar("T")
M = TypeVar("M")


@frozen
class KeyRowJobs(Jobs):
    """The verified jobs of a bucket of key rows."""

    keyspace: Keyspace
    key_rows: KeyRows
    bucket: int
    only: Collection[tuple[str, str]] | None = None
    """These, by scope and id."""

    def batches(self, one: One[T], many: Many[M], times: int = 1) -> Iterator[JobBatch[T, M]]:
        prefilter, totals = self.key_rows.prefilter(), self.keyspace.totals
        address = self.key_rows.address
        reader = address.key_family.batch_prefilter(address.prefix, self.key_rows.now_ms) or prefilter
        for groups in self.key_rows.batches(self.bucket, self.only, times):
            singly: list[tuple[int, T]] = []
            tables: list[tuple[Any, M]] = []
            for rows, jobs in groups:
                left = np.ones(len(jobs), bool)
                for table in reader.tables(jobs, totals) if isinstance(reader, TableReader) else ():
                    made = many(table)
                    if made is not None:
                        tables.append((rows[table.rows], made))
                        left &= ~table.rows
                if left.any():
                    singly += zip(rows[left].tolist(), map(one, jobs.take(left).subjects(prefilter)), strict=True)
            yield JobBatch(singly, tables)
