"""ColumnVoucher: what a Voucher (prefilter.py) says of one job, said of thousands at once, whose values are Texts.

A family that has one has a Voucher that says the same, job by job, for engines without the extra ``spark``; a test holds the one
against the other. Pure. Implemented in a family's ``columnar/batch_prefilter.py``, called by spark/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from attrs import frozen

from ..prefilter import Home, Place
from ..totals import Totals
from .binary_views import Texts
from .jobtable import JobTable, SoundJobs

UNDATED = -(2**63)
"""Stands for the moment of creation where nothing tells it."""
NOBODY = -1
"""Stands for the home of a job at which the rules must look."""


@frozen(eq=False)
class VouchedColumns:
    """As Vouched, of so many jobs."""

    homes: Sequence[Home]
    """Each once."""
    at: Any
    """The index of each job's home among these (int64); NOBODY: all other columns mean nothing."""
    scores: Sequence[Any]
    """For each place of a home, the scores there (float64)."""
    created_at: Any
    """int64; UNDATED where nothing tells."""

    def take(self, rows: Any) -> VouchedColumns:
        """Some of the jobs (bool)."""
        return VouchedColumns(self.homes, self.at[rows], [score[rows] for score in self.scores], self.created_at[rows])


@frozen(eq=False)
class StandingColumns:
    """As Standing."""

    place: Place
    numbers: Any
    """int64, NO_NUMBER for None."""
    home: Home | None = None


class ColumnVoucher(ABC):
    """The same keyspace at the same moment as that of the Voucher to which it belongs."""

    @abstractmethod
    def records(self, keys: Texts) -> Any:
        """``Voucher.record`` of each key (int64), NO_NUMBER for None."""

    @abstractmethod
    def attached(self, keys: Texts) -> Any:
        """``Voucher.attached`` of each key (int64), NO_NUMBER for None."""

    fields: ClassVar[Sequence[bytes]]
    """The fields at which ``vouch`` looks."""

    @abstractmethod
    def vouch(self, records: Mapping[bytes, Texts]) -> VouchedColumns:
        """``Voucher.vouch`` of records, of which these are all ``fields``: nulls where one has no such field."""

    @abstractmethod
    def tally_vouched(self, keys: Texts, numbers: Any, totals: Totals) -> None:
        """``Voucher.tally_vouched`` of the records with these keys, of jobs with these numbers."""

    @abstractmethod
    def standing(self, key: bytes, members: Texts, scores: Any) -> StandingColumns | None:
        """``Voucher.standing`` of some members of a zset that does not expire, with these scores (float64)."""

    @abstractmethod
    def tally_standing(self, key: bytes, scores: Any, totals: Totals) -> None:
        """``Voucher.tally_standing`` of the members of a place that have a number; ``scores``: theirs (float64)."""

    def tables(self, jobs: SoundJobs, totals: Totals) -> Iterator[JobTable]:
        """The jobs that ``KeyFamily.read`` would make of the subjects of these, read with these totals.

        Each is in one table at most; those that take a closer look are in none.
        """
        return iter(())
