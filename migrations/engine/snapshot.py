"""Snapshot: a keyspace read once, as those see it who work on its jobs.

A server that is read twice answers differently, so everything that is asked about a keyspace is asked of its snapshot. In files,
for any size: FileSnapshot; in memory, for small ones and where Arrow is not installed: MemorySnapshot. Called by carrier.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from attrs import field, frozen

from ...schema.connection.address import Address
from ...schema.family import Keyspace
from ...schema.rule import Finding
from ...schema.totals import Totals
from ..missing import not_found, other_prefixes
from ..source import open_source
from . import Census, Progress, silent
from .jobs import Jobs
from .output import Output, Results
from .runner import Runner
from .tables import Table

T = TypeVar("T")

Work = Callable[[str, Jobs], Output[T]]
"""What a task does with the jobs of a partition, by its name."""


@frozen
class Snapshot(ABC):
    """A keyspace that has been read."""

    runner: Runner = field(repr=False)
    address: Address
    now_ms: int
    tasks: int
    """Into how many partitions jobs are cut."""
    totals: Totals
    has_content: bool
    """The keyspace has a key that is more than a wake-up token or lock."""
    remarks: tuple[Finding, ...]
    """About the source itself."""
    left: Counter[str]
    """Keys that no migration carries (migrations/leftovers.py)."""
    accepted: Census
    """How many jobs there are in which no rule can find anything, and which ``check`` leaves out."""

    @property
    def keyspace(self) -> Keyspace:
        """What rules and readers may know."""
        return Keyspace(self.address.key_family, self.address.prefix, self.now_ms, self.totals)

    @property
    @abstractmethod
    def partitions(self) -> list[str]:
        """The names of all partitions that ``work`` may do, the same for each snapshot of this keyspace with so many tasks."""

    @abstractmethod
    def work(self, work: Work[T], table: Table[T], path: str, phase: str, progress: Progress = silent) -> Results[T]:
        """Does ``work`` on every job, partition by partition; rows go to the new folder ``path``, if to files.

        A partition without a job may be left out. Errors as for Runner.run.
        """

    @abstractmethod
    def check(self, work: Work[T], table: Table[T], path: str, progress: Progress = silent) -> Results[T]:
        """Does ``work`` on the jobs in which rules may find something."""

    def require_content(self) -> None:
        """Raises KeyspaceNotFound when the snapshot shows no keyspace."""
        others = other_prefixes(self.keyspace, has_content=self.has_content)
        if others is not None:
            with open_source(self.address) as source:
                raise not_found(source, others)
