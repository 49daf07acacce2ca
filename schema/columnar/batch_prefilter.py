"""BatchPrefilter: what a Prefilter (prefilter.py) says of one job, said of thousands at once, whose values are BinaryViews.

A family that has one has a Prefilter that says the same, job by job, for engines without the extra ``columnar``; a test holds the
one against the other. Pure. Implemented in a family's ``columnar/batch_prefilter.py``, called by spark/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from attrs import frozen

from ..prefilter import IndexKey, JobGroup
from ..totals import Totals
from .binary_views import BinaryViews
from .jobtable import AcceptedJobs, JobTable

UNDATED = -(2**63)
"""Stands for the moment of creation where nothing tells it."""
NOT_ACCEPTED = -1
"""Stands for the group of a job at which the rules must look."""


@frozen(eq=False)
class AcceptedColumns:
    """As Accepted, of so many jobs."""

    groups: Sequence[JobGroup]
    """Each once."""
    at: Any
    """The index of each job's group among these (int64); NOT_ACCEPTED: all other columns mean nothing."""
    scores: Sequence[Any]
    """For each index of a group, the scores there (float64)."""
    created_at: Any
    """int64; UNDATED where nothing tells."""

    def take(self, rows: Any) -> AcceptedColumns:
        """Some of the jobs (bool)."""
        return AcceptedColumns(self.groups, self.at[rows], [score[rows] for score in self.scores], self.created_at[rows])


@frozen(eq=False)
class IndexMemberColumns:
    """As IndexMembers."""

    key: IndexKey
    numbers: Any
    """int64, NO_NUMBER for None."""
    group: JobGroup | None = None


@runtime_checkable
class TableReader(Protocol):
    """A BatchPrefilter; or a Prefilter whose family makes tables of jobs that were accepted one by one."""

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """The jobs that ``KeyFamily.read`` would make of the subjects of these, read with these totals.

        Each is in one table at most; those that take a closer look are in none.
        """


class BatchPrefilter(ABC):
    """The same keyspace at the same moment as that of the Prefilter to which it belongs."""

    @abstractmethod
    def records(self, keys: BinaryViews) -> Any:
        """``Prefilter.record`` of each key (int64), NO_NUMBER for None."""

    @abstractmethod
    def owners(self, keys: BinaryViews) -> Any:
        """``Prefilter.owner`` of each key (int64), NO_NUMBER for None."""

    fields: ClassVar[Sequence[bytes]]
    """The fields at which ``accept`` looks."""

    @abstractmethod
    def accept(self, records: Mapping[bytes, BinaryViews]) -> AcceptedColumns:
        """``Prefilter.accept`` of records, of which these are all ``fields``: nulls where one has no such field."""

    @abstractmethod
    def tally_accepted(self, keys: BinaryViews, numbers: Any, totals: Totals) -> None:
        """``Prefilter.tally_accepted`` of the records with these keys, of jobs with these numbers."""

    @abstractmethod
    def index_members(self, key: bytes, members: BinaryViews, scores: Any) -> IndexMemberColumns | None:
        """``Prefilter.index_members`` of some members of a zset that does not expire, with these scores (float64)."""

    @abstractmethod
    def tally_index(self, key: bytes, scores: Any, totals: Totals) -> None:
        """``Prefilter.tally_index`` of the members of an index that have a number; ``scores``: theirs (float64)."""

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """See TableReader."""
        return iter(())
