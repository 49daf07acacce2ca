"""What a Prefilter says of one record, and jobs in columns as it takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from attrs import evolve, fields
from ferryman.schema.columnar.batch_prefilter import NOT_ACCEPTED, AcceptedColumns, BatchPrefilter
from ferryman.schema.columnar.binary_views import NO_NUMBER, BinaryViews
from ferryman.schema.columnar.jobtable import ENCODED, AcceptedJobs, BinaryLists, JobTable, Members, OwnedLists
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job
from ferryman.schema.prefilter import JobGroup, Member, Prefilter
from ferryman.schema.tagged_json import decode_tagged, encode_tagged
from ferryman.schema.text import to_bytes, to_text

ATTRIBUTES = tuple(each.name for each in fields(Job))


class AcceptedRecord(NamedTuple):
    """A job that it accepts."""

    group: JobGroup
    scores: tuple[float, ...]
    created_at: int


def accept(prefilter: Prefilter, record: Mapping[bytes, bytes], key: bytes = b"") -> AcceptedRecord | None:
    """None where the rules must look."""
    groups, scores, created_at, _ = prefilter.accept({name: [value] for name, value in record.items()}, [key])
    return None if groups[0] is None else AcceptedRecord(groups[0], tuple(column[0] for column in scores), created_at[0])


def numbers(found: Iterable[int | None]) -> list[int]:
    """Numbers of jobs as columns have them."""
    return [NO_NUMBER if number is None else number for number in found]


def accept_both(
    prefilter: Prefilter, batch: BatchPrefilter, records: Sequence[Mapping[bytes, bytes]]
) -> tuple[list[AcceptedRecord | None], AcceptedColumns]:
    """What a prefilter says of each record by itself, and ``batch``, made of it, of all of them: both accept the same ones."""
    expected = [accept(prefilter, record) for record in records]
    found = batch.accept({name: BinaryViews.of([record.get(name) for record in records]) for name in batch.fields})
    groups = [None if at == NOT_ACCEPTED else found.groups[at] for at in found.at.tolist()]
    assert groups == [None if accepted is None else accepted.group for accepted in expected]
    return expected, found


def without(records: Iterable[Mapping[bytes, bytes]], missing: Sequence[bytes | None]) -> list[Mapping[bytes, bytes]]:
    """Each record without one of the missing fields, in turn; None: with all that it has. None is left without any field."""
    those = [
        {name: value for name, value in record.items() if name != missing[row % len(missing)]}
        for row, record in enumerate(records)
    ]
    return [record for record in those if record]


class Keys(NamedTuple):
    """The keys of a sound job."""

    key: bytes
    record: Mapping[bytes, bytes]
    members: Sequence[Member]
    """In the same indexes in the same order for all jobs of a group."""
    owned_lists: Sequence[Entry] = ()


def accepted_jobs(jobs: Sequence[Keys]) -> AcceptedJobs:
    """Jobs of one group, whose records have the same fields, in columns."""
    columns = {name: BinaryViews.of([job.record[name] for job in jobs]) for name in jobs[0].record}
    indexes = {}
    for members in zip(*(job.members for job in jobs), strict=True):
        _, names, scores, ranks = zip(*members, strict=True)
        indexes[members[0].key] = Members(BinaryViews.of(names), np.array(scores, np.float64), np.array(ranks, np.int64))
    return AcceptedJobs(
        BinaryViews.of([job.key for job in jobs]), columns, indexes, owned_lists([job.owned_lists for job in jobs])
    )


def owned_lists(entries: Sequence[Sequence[Entry]]) -> OwnedLists:
    """The lists that belong to jobs: those of each."""
    those = list(chain.from_iterable(entries))
    are_scored = [entry.redis_type == "zset" for entry in those]
    values = [
        [member for member, _ in entry.value] if scored else entry.value for entry, scored in zip(those, are_scored, strict=True)
    ]
    scores = [entry.value[0][1] if scored else math.nan for entry, scored in zip(those, are_scored, strict=True)]
    return OwnedLists(
        BinaryViews.of([entry.key for entry in those]),
        np.array([entry.offset for entry in those], np.int64),
        np.array(list(map(len, values)), np.int64),
        BinaryViews.of(list(chain.from_iterable(values))),
        np.array(list(map(len, entries)), np.int64),
        np.array(scores) if any(are_scored) else None,
    )


TEXTS = {"id", "name", "error", "worker", "unique_key"}


def jobs_of(table: JobTable) -> list[Job]:
    """Each job of a table by itself."""
    columns = {name: list(_values(name, column)) for name, column in table.columns.items()}
    return [evolve(table.common, **dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _values(name: str, column: Any) -> Iterable[Any]:
    """The values of a column as Job has them."""
    match column:
        case BinaryLists():
            items = iter(column.items.to_list())
            return (tuple(next(items) for _ in range(count)) for count in column.counts.tolist())
        case BinaryViews() if name == "extra":
            return map(_decoded, column.to_list())
        case BinaryViews() if name in ENCODED:
            return map(tuple, map(_decoded, column.to_list()))
        case BinaryViews():
            return map(to_text, column.to_list()) if name in TEXTS else column.to_list()
    return column.tolist()


def _decoded(text: bytes) -> Any:
    """What ``encode_tagged`` has made a text of, be it a list."""
    return decode_tagged(b'{"":%b}' % text)[""]


def table_of(jobs: Sequence[Job]) -> JobTable | None:
    """Jobs of one queue and state as a table, if they can be one; what is the same in all has no column, but for their ids."""
    columns = {}
    for name in ATTRIBUTES:
        values = [getattr(job, name) for job in jobs]
        if name == "id" or any(repr(value) != repr(values[0]) for value in values):
            column = _column(name, values)
            if column is None:
                return None
            columns[name] = column
    families = frozenset(chain.from_iterable(job.extra for job in jobs)) if "extra" in columns else frozenset()
    return JobTable(np.ones(len(jobs), bool), jobs[0], columns, families)


def _column(name: str, values: Sequence[Any]) -> Any:
    """A column of these values, if they can be one."""
    if name == "logs":
        return BinaryLists(BinaryViews.of(list(chain.from_iterable(values))), np.array(list(map(len, values)), np.int64))
    if name in ENCODED:
        if name != "extra" and not all(values):
            return None  # none of the jobs of a table has nothing where there is a column
        encoded = list(map(encode_tagged, values))
        again = [type(value)(_decoded(text)) for value, text in zip(values, encoded, strict=True)]
        return BinaryViews.of(encoded) if repr(again) == repr(values) else None
    match {type(value) for value in values}:
        case kinds if kinds == {int}:
            return np.array(values) if max(map(abs, values)) < 2**63 else None
        case kinds if kinds == {float} and name == "progress":
            return np.array(values)
        case kinds if kinds == {str}:
            raw = list(map(to_bytes, values))
            return BinaryViews.of(raw) if list(map(to_text, raw)) == values else None
        case kinds if kinds == {bytes}:
            return BinaryViews.of(values)
    return None
