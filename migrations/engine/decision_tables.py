"""Decision tables: jobs about which a migration has decided one by one, as tables to be written. Called by migrate.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from ...schema.columnar.jobtable import JobTable
from ...schema.columnar.tables_of_jobs import tables_of
from ...schema.family import KeyFamily
from ..plan import Decision
from .outgoing import OutgoingTable


def in_tables(
    decisions: Sequence[tuple[int, Decision]], writer: KeyFamily, write: Callable[[Decision, JobTable], OutgoingTable | None]
) -> tuple[list[tuple[Any, OutgoingTable]], list[tuple[int, Decision]]]:
    """Those that are written many at once, as ``write`` does it, with their rows (indexes); and all others, with theirs.

    ``write`` is given a decision that stands for each of the table.
    """
    able, jobs, groups, left = [], [], [], []
    for row, decision in decisions:
        original, job = decision.original, decision.job
        if original is None or job is None or decision.findings or not decision.is_alone:
            left.append((row, decision))
        else:
            able.append((row, decision))
            jobs.append(job)
            groups.append((original.queue, original.state))
    rows, are_left, tables = np.array([row for row, _ in able], np.int64), np.ones(len(able), bool), []
    for table in tables_of(jobs, groups):
        if writer.can_write_table(table):
            outgoing = write(able[table.rows.argmax()][1], table)
            if outgoing is not None:
                tables.append((rows[table.rows], outgoing))
                are_left &= ~table.rows
    return tables, sorted([*left, *compress(able, are_left)], key=itemgetter(0))
