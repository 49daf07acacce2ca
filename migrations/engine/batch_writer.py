"""Batch writer: writes the jobs of a batch, as decided, into a part of a migration, in the order of the jobs.

Jobs of tables are written many at once, as commands that nobody takes apart; those between them one by one. Whichever way a job
goes, it has the same position among the jobs of its slot (migrations/partition_writer.py): another run may take the other way.
Called by migrate.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from attrs import frozen

from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.build import LengthPrefixed, concat_rows, scatter
from ...schema.connection.pipeline import PackedCommands
from ..packed_jobs import PackedJobs, PackedMembers, around_id, marked
from ..partition_writer import PartitionWriter
from ..plan import Decision
from ..store import Store
from . import Summary
from .jobs import JobBatch
from .outgoing import OutgoingJob, OutgoingTable


@frozen(eq=False)
class _Segment:
    """Some jobs of one slot."""

    rows: Any
    """Of the batch (indexes)."""
    decisions: Sequence[Decision]
    """Of each job, or one of all of them."""
    identities: BinaryViews
    """As ``marked`` has them."""
    commands: BinaryViews
    numbers: Any
    """How many commands each job has (int64), with that which makes it a member."""
    zset: bytes | None = None
    """The zset of which the jobs become members, if the commands don't make them so."""
    members: BinaryViews | None = None
    """As in CommandTable."""

    @classmethod
    def of_table(cls, rows: Any, outgoing: OutgoingTable) -> _Segment:
        """The jobs of a table."""
        decision, ids, table = outgoing
        assert decision.job is not None, "jobs in tables go over"
        before, after = around_id(decision.job)
        identities = concat_rows(len(ids), [LengthPrefixed(concat_rows(len(ids), [before, ids, after]))])
        numbers = np.full(len(ids), table.commands_per_job + 1)
        return cls(rows, [decision], identities, table.commands, numbers, table.zset, table.members)

    @classmethod
    def of_jobs(cls, those: Sequence[tuple[int, OutgoingJob]]) -> _Segment:
        """Jobs one by one."""
        rows, jobs = zip(*those, strict=True)
        packed = [PackedCommands.of(job.commands) for job in jobs]
        return cls(
            np.array(rows),
            [job.decision for job in jobs],
            BinaryViews.of([marked(job.identity) for job in jobs]),
            BinaryViews.of([bytes(each.data) for each in packed]),
            np.array([each.number for each in packed]),
        )

    def count(self, summary: Summary, are_new: Any) -> None:
        """Counts the jobs, of which some (bool) are new."""
        if len(self.decisions) == 1:
            for written, jobs in ((True, int(are_new.sum())), (False, int((~are_new).sum()))):
                if jobs:
                    summary.count(self.decisions[0], written=written, jobs=jobs)
            return
        for decision, is_new in zip(self.decisions, are_new.tolist(), strict=True):
            summary.count(decision, written=is_new)


def write_tables(writer: PartitionWriter, store: Store, batch: JobBatch[OutgoingJob, OutgoingTable], summary: Summary) -> None:
    """Writes the jobs of a batch that has tables, and counts them. Raises as ``PartitionWriter.put``."""
    singly = sorted(batch.singly, key=itemgetter(0))
    by_slot: dict[bytes | None, list[_Segment]] = defaultdict(list)
    for rows, table in batch.tables:
        first = PackedCommands(table.commands.commands[0], table.commands.commands_per_job)
        by_slot[store.tag(list(first.commands()))].append(_Segment.of_table(rows, table))
    by_tag: dict[bytes | None, list[tuple[int, OutgoingJob]]] = defaultdict(list)
    for row, job in singly:
        if job.commands:
            by_tag[store.tag(job.commands)].append((row, job))
        else:
            summary.count(job.decision, written=False)
    for tag, those in by_tag.items():
        by_slot[tag].append(_Segment.of_jobs(those))
    for tag, segments in by_slot.items():
        positions = _positions([segment.rows for segment in segments])
        first_new = writer.put_many(tag, _pack(segments, positions))
        for segment, positions_of_segment in zip(segments, positions, strict=True):
            segment.count(summary, positions_of_segment >= first_new)


def _positions(rows: Sequence[Any]) -> list[Any]:
    """The position of each of these rows among all of them in ascending order."""
    together = np.concatenate(rows)
    positions = np.empty(len(together), np.int64)
    positions[np.argsort(together)] = np.arange(len(together))
    found: list[Any] = np.split(positions, np.cumsum(list(map(len, rows)))[:-1])
    return found


def _pack(segments: Sequence[_Segment], positions: Sequence[Any]) -> PackedJobs:
    """The jobs of these segments, each at its position."""
    identities = scatter([segment.identities for segment in segments], positions)
    commands = scatter([segment.commands for segment in segments], positions)
    numbers = np.empty(len(commands), np.int64)
    for segment, positions_of_segment in zip(segments, positions, strict=True):
        numbers[positions_of_segment] = segment.numbers
    return PackedJobs(
        memoryview(identities.data),
        _offsets(identities.sizes),
        memoryview(commands.data),
        _offsets(commands.sizes),
        _offsets(numbers),
        _members(segments, positions),
    )


def _members(segments: Sequence[_Segment], positions: Sequence[Any]) -> list[PackedMembers]:
    """The jobs that become members, by the zset."""
    by_zset: dict[bytes, list[tuple[BinaryViews, Any]]] = defaultdict(list)
    for segment, positions_of_segment in zip(segments, positions, strict=True):
        if segment.zset is not None and segment.members is not None:
            by_zset[segment.zset].append((segment.members, positions_of_segment))
    found = []
    for zset, those in by_zset.items():
        members, rows = zip(*those, strict=True)
        packed = scatter(members, _positions(rows))
        found.append(PackedMembers(zset, np.sort(np.concatenate(rows)).tolist(), memoryview(packed.data), _offsets(packed.sizes)))
    return found


def _offsets(sizes: Any) -> list[int]:
    ends: list[int] = np.append(0, np.cumsum(sizes)).tolist()
    return ends
