"""LocalEngine: carries a keyspace on this machine, a small one in this process, a large one with all cores.

Both ways take the same steps (engine/carrier.py). The second needs what the extra ``columnar`` installs; without it everything
goes the first way, slower and in memory. Called by the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from ..schema.columnar.cache_folder import has_kernels
from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client
from ..schema.connection.permission import is_forbidden
from ..schema.errors import ServerError, UsageError
from ..schema.job import Job, State
from ..schema.rule import Finding
from . import journal, probes
from .engine import Census, Difference, Progress, Report, Summary, Verification, silent
from .engine.carrier import Carrier
from .engine.memory_engine import MemoryEngine
from .engine.memory_snapshot import PARTITION
from .engine.storage import is_url
from .plan import Plan
from .prefiltering_reader import has_prefilter
from .queues import QueueStatus
from .source import open_source
from .store import open_store
from .throttle import UNTHROTTLED, Throttle

PART = PARTITION
"""The only part of a migration of a small keyspace, and its layout."""
SMALL_KEYS = 8_000
SMALL_BYTES = 32 << 20
"""Up to so many keys, in so much of a server's memory, are carried before processes have loaded what they need, for a second."""
SMALL_AUDIT = 2
"""How many times as many are audited meanwhile, where a prefilter spares the rules most jobs."""
UNCOMPILED = 2
"""How many times as many are carried meanwhile, where processes would have to compile what they need as well."""
COLUMNAR = ("numpy", "numba", "pyarrow")
"""What the extra ``columnar`` installs."""


class LocalEngine:
    """The engine of ``--engine local``. ``throttle``: how fast it reads a server; ``work``, ``tasks``: as for Carrier."""

    name = "local"

    def __init__(self, throttle: Throttle = UNTHROTTLED, work: str | None = None, tasks: int | None = None) -> None:
        if work is not None and is_url(work):
            # Processes are forked, and Arrow's clients of object stores don't outlive that; nor need one machine share its disk.
            raise UsageError("a work folder in an object store is for --engine spark; let --work name a path")
        self.throttle = throttle
        self._work = work
        self._tasks = tasks

    def audit(self, source: Address, now_ms: int, report: Report[Finding], progress: Progress = silent) -> Census:
        """See Engine.audit."""
        return self._for(source, times=SMALL_AUDIT if has_prefilter(source) else 1).audit(source, now_ms, report, progress)

    def migrate(
        self,
        source: Address,
        target: Address,
        plan: Plan,
        report: Report[Finding],
        progress: Progress = silent,
        *,
        dry_run: bool = False,
        resume: bool = False,
    ) -> Summary:
        """See Engine.migrate."""
        with open_store(target) as store:
            earlier = journal.find(store, plan)
        in_memory = None if earlier is None or earlier.finished else not earlier.layout.startswith(f"{PART}:")
        carrier = self._for(source, in_memory=in_memory)
        return carrier.migrate(source, target, plan, report, progress, dry_run=dry_run, resume=resume)

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        return self._for(source, target).verify(source, target, plan, report, progress)

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        yield from self._for(source).jobs(source, now_ms, queue, state)

    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """See Engine.queues."""
        return self._for(source).queues(source, now_ms)

    def _for(self, source: Address, *others: Address, in_memory: bool | None = None, times: int = 1) -> Carrier:
        """Who carries these. ``in_memory``: as an earlier run did. ``times``: of so many times as many keys."""
        is_by_processes = in_memory is False
        if in_memory is None:
            times *= 1 if has_kernels() else UNCOMPILED
            in_memory = not (self._work or self._tasks) and all(_is_small(address, times) for address in (source, *others))
        if is_by_processes and not has_columnar():
            raise UsageError("the unfinished migration was begun by processes, which need pip install 'ferryman[columnar]'")
        if in_memory or not has_columnar():
            return MemoryEngine(throttle=self.throttle)
        from .engine.process_engine import ProcessEngine

        return ProcessEngine(self._work, self._tasks, self.throttle)


def has_columnar() -> bool:
    """Whether the extra ``columnar`` is installed."""
    return all(map(find_spec, COLUMNAR))


def _is_small(address: Address, times: int) -> bool:
    """Whether it is, or must be carried as if it were: one may not ask for its size, or not read it in parts (docs/access.md)."""
    try:
        with open_source(address) as source:
            if source.size() <= times * SMALL_KEYS and source.memory() <= times * SMALL_BYTES:
                return True
        if address.kind not in (Kind.RDB, Kind.CLUSTER):
            with open_client(address) as client:
                probes.must_read_in_parts(client, address.key_family.globs(address.prefix)[0])
    except ServerError as error:
        if is_forbidden(error):
            return True
        raise
    return False
