"""Tables of jobs that were read one by one: what is made of many at once need not be made of each.

Called by whoever writes jobs or makes digests of them. tests/schema/columnar/test_tables_of_jobs.py. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from attrs import fields

from ..errors import MalformedValue
from ..job import Job
from ..tagged_json import encode_tagged
from ..text import to_bytes, to_text
from .binary_views import BinaryViews
from .jobtable import ENCODED, AcceptedJobs, BinaryLists, Column, JobKeys, JobTable

FEWEST = 50
"""Jobs of a kind. Of fewer a table takes longer than they do one by one."""
NAMES = tuple(each.name for each in fields(Job))
_values = attrgetter(*NAMES)
_place = itemgetter(NAMES.index("queue"), NAMES.index("state"))
_containers = attrgetter("tags", "depends_on", "logs", "history", "extra")


def tables_of(jobs: Sequence[Job], groups: Sequence[Hashable], fewest: int = FEWEST) -> Iterator[JobTable]:
    """Tables of those of which there are so many of a kind; each is in one at most.

    A kind is of one group, which is given for each job, of one queue and state, and has values of the same types.
    """
    values = list(map(_values, jobs))
    kinds: defaultdict[Any, list[int]] = defaultdict(list)
    for row, (job, group, those) in enumerate(zip(jobs, groups, values, strict=True)):
        kinds[group, _place(those), tuple(map(type, those)), tuple(map(bool, _containers(job)))].append(row)
    for (_, _, types, _), rows in kinds.items():
        if len(rows) < fewest:
            continue
        cells = dict(zip(NAMES, zip(*map(values.__getitem__, rows), strict=True), strict=True))
        try:
            columns = {name: _column(name, kind, cells[name]) for name, kind in zip(NAMES, types, strict=True)}
        except (_NoColumn, MalformedValue, OverflowError):
            continue
        are_here = np.zeros(len(jobs), bool)
        are_here[rows] = True
        families = frozenset(chain.from_iterable(cells["extra"]))
        there = {name: column for name, column in columns.items() if column is not None}
        yield JobTable(are_here, jobs[rows[0]], there, families)


def tables_of_accepted(jobs: AcceptedJobs, read: Callable[[JobKeys], Job]) -> Iterator[JobTable]:
    """The tables of accepted jobs, of which ``read`` makes what ``KeyFamily.read`` would, without all that this prepares."""
    found = list(map(read, jobs.keys_of_each()))
    return tables_of(found, [None] * len(found))


class _NoColumn(Exception):
    """Values of an attribute that can't be a column."""


def _column(name: str, kind: type, cells: Sequence[Any]) -> Column | None:
    """The values of an attribute that are all of a type, as a column; None where they are all the same. Raises _NoColumn."""
    if kind is type(None) or ((name in ENCODED or kind is tuple) and not cells[0]):
        return None
    if name in ENCODED:
        return BinaryViews.of(list(map(encode_tagged, cells)))
    if kind is str or isinstance(cells[0], str):
        return None if name != "id" and len(set(cells)) == 1 else _texts(cells)
    if kind is bytes:
        return BinaryViews.of(cells)
    if kind is tuple:  # logs
        return BinaryLists(BinaryViews.of(list(chain.from_iterable(cells))), np.array(list(map(len, cells)), np.int64))
    if kind is int:
        numbers = np.array(cells, np.int64)
        if (numbers != np.iinfo(np.int64).min).all():
            return numbers
    if kind is float and name == "progress":
        return np.array(cells)
    raise _NoColumn


def _texts(texts: Sequence[str]) -> BinaryViews:
    raw = list(map(to_bytes, texts))
    for text, those in zip(texts, raw, strict=True):
        if not text.isascii() and to_text(those) != text:  # it has surrogates that no bytes have made
            raise _NoColumn
    return BinaryViews.of(raw)
