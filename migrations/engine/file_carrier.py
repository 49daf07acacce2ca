"""FileCarrier: a Carrier for keyspaces of any size, whose snapshots are in files, and whose parts a Runner does."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial

from ...schema.connection.address import Address
from ...schema.errors import MigrationRefused
from ...schema.job import Job, State
from .. import journal
from ..plan import Plan
from ..run import journal_glob
from . import Difference, Progress, Report, Verification, silent, storage
from .carrier import Carrier
from .file_snapshot import FileSnapshot, reopen, take
from .key_scan import DIGEST_SHARE, round_to_cores, task_count
from .resume import SNAPSHOT
from .runner import Runner
from .sorted_jobs import list_jobs


class FileCarrier(Carrier):
    """See Carrier. Subclasses say who runs parts."""

    @abstractmethod
    def _session(
        self, source: Address, progress: Progress, found: str | None = None
    ) -> contextlib.AbstractContextManager[tuple[Runner, str]]:
        """Who runs parts of work on the source, and a folder that is gone after the block.

        ``found``: a folder that is there already. Such a one stays when an error ends the block.
        """

    @abstractmethod
    def _cores(self) -> int:
        """How many tasks work side by side; 1 where that is not known yet."""

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        # Whose kernels nothing else needs.
        from .comparison import SideDigests, compare_keyspaces, digest_side
        from .job_digests import ActualView, ExpectedView, SideView
        from .job_hasher import JobHasher

        started = time.monotonic()
        with self._session(source, progress) as (runner, folder):
            hasher, buckets = JobHasher(plan.writer), self._number(source, DIGEST_SHARE)

            def digest(address: Address, tasks: int, view: SideView, name: str, progress: Progress) -> SideDigests:
                throttle = self.throttle.shared(2)
                snapshot = take(
                    runner, address, plan.now_ms, storage.join(folder, name), tasks, progress, throttle, for_transfer=True
                )
                if address is source:
                    snapshot.require_content()
                return digest_side(snapshot, view, name, hasher, folder, buckets, progress)

            expected, actual = runner.together(
                partial(digest, source, buckets, ExpectedView(plan), "source"),
                partial(digest, target, self._number(target, DIGEST_SHARE), ActualView(), "target"),
                progress,
            )
            outcome = compare_keyspaces(expected, actual, plan, folder, report, progress)
        outcome.seconds = time.monotonic() - started
        return outcome

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            yield from list_jobs(snapshot, storage.join(folder, "jobs"), queue, state)

    def _number(self, address: Address, times: float = 1) -> int:
        return self._tasks or round_to_cores(task_count(address, times), self._cores())

    def _layout(self, tasks: int) -> str:
        return f"{self.name}:{tasks}"

    def _tasks_of(self, earlier: journal.Record) -> int | None:
        name, colon, number = earlier.layout.partition(":")
        if earlier.layout.startswith(f"{self.name}/") and not earlier.finished:
            raise MigrationRefused(
                f"the unfinished migration was begun by an earlier version of ferryman ({earlier.layout}), which shares the jobs "
                f"out in another way; finish it with that version, or delete the target's keys and the keys "
                f"{journal_glob(earlier.plan.epoch)}, then migrate again"
            )
        return int(number) if colon and name == self.name and number.isdigit() else None

    @contextlib.contextmanager
    def _snapshot(
        self,
        source: Address,
        now_ms: int,
        progress: Progress,
        tasks: int | None = None,
        found: str | None = None,
        *,
        for_transfer: bool = False,
        checking: bool = False,
    ) -> Iterator[tuple[FileSnapshot, str]]:
        with self._session(source, progress, found) as (runner, folder):
            path, tasks = storage.join(folder, SNAPSHOT), tasks or self._number(source)
            if found is not None:
                snapshot = reopen(runner, source, now_ms, tasks, path)
            else:
                snapshot = take(runner, source, now_ms, path, tasks, progress, self.throttle, for_transfer=for_transfer)
            snapshot.require_content()
            yield snapshot, folder
