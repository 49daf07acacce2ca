"""Putting: what was decided about the jobs of a batch goes into a part of a migration, in the order of the jobs.

Jobs of tables are put many at once, as commands that nobody takes apart; those between them by themselves. Whichever way a job
goes, it has the same place among the jobs of its slot (migrations/partition_writer.py): another run may take the other way.
Called by migrate.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from attrs import frozen

from ..migrations.engine import Summary
from ..migrations.packed_jobs import PackedJobs, PackedMembers, around_id, marked
from ..migrations.partition_writer import PartitionWriter
from ..migrations.plan import Decision
from ..migrations.store import Store
from ..schema.columnar.binary_views import BinaryViews
from ..schema.columnar.build import LengthPrefixed, concat_rows, scatter
from ..schema.columnar.jobtable import CommandTable
from ..schema.connection.pipeline import PackedCommands
from ..schema.family import Command
from .jobs import JobBatch


class Single(NamedTuple):
    """What becomes of one job."""

    decision: Decision
    identity: bytes = b""
    commands: Sequence[Command] = ()
    """None for a job that stays at the source."""


class Tabled(NamedTuple):
    """What becomes of each job of a table."""

    decision: Decision
    ids: BinaryViews
    commands: CommandTable


@frozen(eq=False)
class _Piece:
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
    place: bytes | None = None
    """The zset of which the jobs become members, if the commands don't make them so."""
    members: BinaryViews | None = None
    """As in CommandTable."""

    @classmethod
    def of_table(cls, rows: Any, tabled: Tabled) -> _Piece:
        """The jobs of a table."""
        decision, ids, table = tabled
        assert decision.job is not None, "jobs in tables go over"
        before, after = around_id(decision.job)
        identities = concat_rows(len(ids), [LengthPrefixed(concat_rows(len(ids), [before, ids, after]))])
        numbers = np.full(len(ids), table.commands_per_job + 1)
        return cls(rows, [decision], identities, table.commands, numbers, table.zset, table.members)

    @classmethod
    def of_singles(cls, those: Sequence[tuple[int, Single]]) -> _Piece:
        """Jobs by themselves."""
        rows, singles = zip(*those, strict=True)
        packed = [PackedCommands.of(single.commands) for single in singles]
        return cls(
            np.array(rows),
            [single.decision for single in singles],
            BinaryViews.of([marked(single.identity) for single in singles]),
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


def put(writer: PartitionWriter, store: Store, batch: JobBatch[Single, Tabled], summary: Summary) -> None:
    """Puts the jobs of a batch, and counts them. Raises as ``PartitionWriter.put``."""
    singly = sorted(batch.singly, key=itemgetter(0))
    if not batch.tables:
        for _, single in singly:
            summary.count(single.decision, written=bool(single.commands) and writer.put(single.identity, single.commands))
        return
    lanes: dict[bytes | None, list[_Piece]] = defaultdict(list)
    for rows, tabled in batch.tables:
        first = PackedCommands(tabled.commands.commands[0], tabled.commands.commands_per_job)
        lanes[store.tag(list(first.commands()))].append(_Piece.of_table(rows, tabled))
    by_tag: dict[bytes | None, list[tuple[int, Single]]] = defaultdict(list)
    for row, single in singly:
        if single.commands:
            by_tag[store.tag(single.commands)].append((row, single))
        else:
            summary.count(single.decision, written=False)
    for tag, those in by_tag.items():
        lanes[tag].append(_Piece.of_singles(those))
    for tag, pieces in lanes.items():
        places = _places([piece.rows for piece in pieces])
        stood = writer.put_many(tag, _packed(pieces, places))
        for piece, its_places in zip(pieces, places, strict=True):
            piece.count(summary, its_places >= stood)


def _places(rows: Sequence[Any]) -> list[Any]:
    """Where each of these rows stands among all of them in ascending order."""
    together = np.concatenate(rows)
    places = np.empty(len(together), np.int64)
    places[np.argsort(together)] = np.arange(len(together))
    found: list[Any] = np.split(places, np.cumsum(list(map(len, rows)))[:-1])
    return found


def _packed(pieces: Sequence[_Piece], places: Sequence[Any]) -> PackedJobs:
    """The jobs of these pieces, each at its place."""
    identities = scatter([piece.identities for piece in pieces], places)
    commands = scatter([piece.commands for piece in pieces], places)
    numbers = np.empty(len(commands), np.int64)
    for piece, its_places in zip(pieces, places, strict=True):
        numbers[its_places] = piece.numbers
    return PackedJobs(
        memoryview(identities.data),
        _bounds(identities.sizes),
        memoryview(commands.data),
        _bounds(commands.sizes),
        _bounds(numbers),
        _members(pieces, places),
    )


def _members(pieces: Sequence[_Piece], places: Sequence[Any]) -> list[PackedMembers]:
    """The jobs that become members, by the zset."""
    by_zset: dict[bytes, list[tuple[BinaryViews, Any]]] = defaultdict(list)
    for piece, its_places in zip(pieces, places, strict=True):
        if piece.place is not None and piece.members is not None:
            by_zset[piece.place].append((piece.members, its_places))
    found = []
    for zset, those in by_zset.items():
        members, rows = zip(*those, strict=True)
        words = scatter(members, _places(rows))
        found.append(PackedMembers(zset, np.sort(np.concatenate(rows)).tolist(), memoryview(words.data), _bounds(words.sizes)))
    return found


def _bounds(sizes: Any) -> list[int]:
    ends: list[int] = np.append(0, np.cumsum(sizes)).tolist()
    return ends
