"""What a Voucher says of one record, and jobs in columns as it takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from attrs import evolve
from ferryman.schema.columnvoucher import NOBODY, UNDATED, VouchedColumns
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job
from ferryman.schema.jobtable import JobTable
from ferryman.schema.texts import NO_NUMBER, Texts
from ferryman.schema.voucher import Home, Member, Members, SoundJobs, Vouched, Voucher
from hypothesis import assume, event


class Sound(NamedTuple):
    """A job for which it vouches."""

    home: Home
    scores: tuple[float, ...]
    created_at: int


def vouch(voucher: Voucher, record: Mapping[bytes, bytes]) -> Sound | None:
    """None where the rules must look."""
    homes, scores, created_at = voucher.vouch({name: [value] for name, value in record.items()})
    return None if homes[0] is None else Sound(homes[0], tuple(column[0] for column in scores), created_at[0])


def numbers(found: Iterable[int | None]) -> list[int]:
    """Numbers of jobs as columns have them."""
    return [NO_NUMBER if number is None else number for number in found]


def vouch_both(voucher: Voucher, records: Sequence[Mapping[bytes, bytes]], missing: Set[bytes]) -> tuple[Vouched, VouchedColumns]:
    """What a voucher says of the fields that all records have but for the missing ones, and the same said of columns.

    Both vouch for the same jobs, with the same homes; where all are doubted the columns need say no more.
    """
    shared = set.intersection(*map(set, records)) - missing
    assume(shared)
    columns = {name: [record[name] for record in records] for name in sorted(shared)}
    vouched = voucher.vouch(columns)
    found = voucher.columns().vouch({name: Texts.of(column) for name, column in columns.items()})
    event(f"all doubted: {found is None}")
    if found is None:
        found = VouchedColumns((), np.full(len(records), NOBODY), (), np.full(len(records), UNDATED))
    assert [None if at == NOBODY else found.homes[at] for at in found.at.tolist()] == vouched.homes
    return vouched, found


class Keys(NamedTuple):
    """The keys of a sound job."""

    key: bytes
    record: Mapping[bytes, bytes]
    members: Sequence[Member]
    """In the same places in the same order for all jobs of a home."""
    attached: Sequence[Entry] = ()


def sound_jobs(jobs: Sequence[Keys]) -> SoundJobs:
    """Jobs of one home, whose records have the same fields, in columns."""
    columns = {name: [job.record[name] for job in jobs] for name in jobs[0].record}
    places = {}
    for members in zip(*(job.members for job in jobs), strict=True):
        places[members[0].key] = Members(*([getattr(each, name) for each in members] for name in ("member", "score", "rank")))
    return SoundJobs([job.key for job in jobs], columns, places, [job.attached for job in jobs])


def jobs_of(table: JobTable) -> list[Job]:
    """Each job of a table by itself."""
    names = list(table.columns)
    return [evolve(table.like, **dict(zip(names, row, strict=True))) for row in zip(*table.columns.values(), strict=True)]
