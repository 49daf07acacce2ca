"""Decision tables: jobs about which a migration has decided one by one, as tables to be written. Called by migrate.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
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
    kinds: defaultdict[Any, list[tuple[int, Decision]]] = defaultdict(list)
    tables: list[tuple[Any, OutgoingTable]] = []
    left = []
    for row, decision in decisions:
        if decision.original is None or decision.job is None or decision.findings or not decision.is_alone:
            left.append((row, decision))
        else:
            kinds[decision.original.queue, decision.original.state].append((row, decision))
    for those in kinds.values():
        rows, alike = map(list, zip(*those, strict=True))
        are_left = np.ones(len(rows), bool)
        for table in tables_of([decision.job for decision in alike if decision.job is not None]):
            if writer.can_write_table(table):
                outgoing = write(Decision(alike[0].original, table.common, is_alone=True), table)
                if outgoing is not None:
                    tables.append((np.array(rows)[table.rows], outgoing))
                    are_left &= ~table.rows
        left += [those[index] for index in np.flatnonzero(are_left).tolist()]
    return tables, sorted(left, key=itemgetter(0))
