"""Generate: writes generated keyspaces of any size, with injected faults, for tests, demos and benchmarks.

Jobs come from the family's own generator and go through its own writer, so what stands there afterwards is what a migration
would have written. The same arguments give the same keyspace, however many processes write it: each writes one
shard (``schema/sampling.py``). Never writes into a keyspace that has jobs. Called by ``ferryman generate``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from typing import Any

from attrs import define, field, frozen

from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import open_pipeline
from ..schema.errors import UsageError
from ..schema.family import Command, KeyFamily, Target
from ..schema.job import Job
from ..schema.sampling import BLOCK_SIZE, UNSHARDED, Shard
from ..schema.text import show
from ..schema.totals import Totals
from .bulk import Bulk
from .engine import Census, Progress, silent
from .partition_writer import send_last
from .probes import occupant
from .store import ServerStore

ALONE = 20_000
"""Up to so many jobs one process is faster: others take a moment to start."""
PATIENCE_S = 0.2
"""How often the progress of the processes is looked at."""


@frozen
class KeyspaceSpec:
    """What to generate."""

    jobs: int
    seed: int
    now_ms: int
    faults: Mapping[str, int] = field(factory=dict)
    """Rule -> at how many jobs it shall be broken."""

    def target(self, prefix: str) -> Target:
        """Where the jobs go."""
        return Target(prefix, self.now_ms, generated=True)


@define
class GeneratedKeyspace:
    """What was generated."""

    census: Census
    faults: Counter[str]
    """Rule -> at how many jobs it was broken: fewer than asked for, where there are not enough jobs that fit."""
    seconds: float


def generate_keyspace(
    address: Address, spec: KeyspaceSpec, progress: Progress = silent, processes: int | None = None
) -> GeneratedKeyspace:
    """Writes the keyspace. Raises UsageError where jobs stand already, and for a rule that can't be broken on purpose."""
    family = address.key_family
    check_injectable(family, spec.faults)
    if processes is None:
        processes = os.cpu_count() or 1 if spec.jobs > ALONE else 1
    started = time.monotonic()
    target = spec.target(address.prefix)
    with open_client(address) as client:
        found = occupant(client, family, address.prefix)
        if found is not None:
            raise UsageError(f"{address.display()} holds jobs already ({show(found, 60)}); generate into an empty keyspace")
        if processes == 1:
            written, census = _write_shard(address, spec, UNSHARDED, lambda done: progress("writing jobs", done, spec.jobs))
        else:
            written, census = _write_together(address, spec, processes, progress)
        injected: Counter[str] = Counter()
        send_last(family.finish(target, written), ServerStore(client).ask)
        with open_pipeline(client) as pipe:
            bulk = Bulk(pipe)
            for rule, commands in _faults(family, spec, target):
                bulk.put(commands)
                injected[rule] += 1
            bulk.finish()
    return GeneratedKeyspace(census, injected, time.monotonic() - started)


def check_injectable(family: KeyFamily, rules: Iterable[str]) -> None:
    """Raises UsageError for a rule that can't be broken on purpose, and names those that can."""
    for rule in rules:
        if rule not in family.injectable:
            known = ", ".join(each.id for each in family.rules if each.id in family.injectable) or "none"
            raise UsageError(f"{rule} of {family.name} can't be broken on purpose; rules that can be: {known}")


# Jobs


def _write_shard(address: Address, spec: KeyspaceSpec, shard: Shard, tell: Callable[[int], object]) -> tuple[Totals, Census]:
    """Writes the jobs of one shard; ``tell`` hears now and then how many there are."""
    family, target = address.key_family, spec.target(address.prefix)
    totals, census = Totals(), Census()
    with open_client(address) as client, open_pipeline(client) as pipe:
        bulk = Bulk(pipe)
        for job in family.generate_records(spec.jobs, spec.seed, spec.now_ms, shard):
            family.tally_written(job, totals)
            census.count(job)
            if bulk.put(family.write(job, target)):
                tell(census.jobs)
        bulk.finish()
    tell(census.jobs)
    return totals, census


def _write_together(address: Address, spec: KeyspaceSpec, processes: int, progress: Progress) -> tuple[Totals, Census]:
    """The same by several processes, of which this one is the first."""
    context = get_context("spawn")
    done = context.Array("q", processes)
    share = (address, spec, processes)
    with ProcessPoolExecutor(processes - 1, mp_context=context, initializer=_share_counts, initargs=(done,)) as pool:
        others = [pool.submit(_write_in_process, *share, number) for number in range(1, processes)]

        def tell(own: int) -> None:
            done[0] = own
            progress("writing jobs", sum(done[:]), spec.jobs)

        totals, census = _write_shard(address, spec, Shard(0, processes), tell)
        while _go_on(others):
            tell(census.jobs)
        for other in others:
            other_totals, other_census = other.result()
            totals.merge(Totals.from_json(other_totals))
            census.merge(other_census)
    progress("writing jobs", census.jobs, spec.jobs)
    return totals, census


def _go_on(others: Iterable[Future[tuple[str, Census]]]) -> bool:
    """Waits a moment; False as soon as all have ended or one has failed."""
    settled = wait(others, PATIENCE_S, FIRST_EXCEPTION)
    return bool(settled.not_done) and not any(future.exception() for future in settled.done)


_done: Any = None
"""In a process of ``_write_together``: how many jobs each of them has written."""


def _share_counts(done: Any) -> None:
    global _done
    _done = done


def _write_in_process(address: Address, spec: KeyspaceSpec, processes: int, number: int) -> tuple[str, Census]:
    totals, census = _write_shard(address, spec, Shard(number, processes), partial(_done.__setitem__, number))
    return totals.to_json(), census


# Faults


def _faults(family: KeyFamily, spec: KeyspaceSpec, target: Target) -> Iterator[tuple[str, list[Command]]]:
    """What breaks the rules: each at other jobs, which lie spread over the keyspace as far as there are enough that fit."""
    left = Counter({rule: number for rule, number in spec.faults.items() if number > 0})
    used: set[tuple[str, str]] = set()
    if not left:
        return
    for step in dict.fromkeys((max(1, spec.jobs // (4 * left.total())), 1)):
        shard = Shard(0, max(1, step // BLOCK_SIZE))
        for number, job in enumerate(family.generate(spec.jobs, spec.seed, spec.now_ms, shard)):
            if number % (step // shard.count) or (job.queue, job.id) in used:
                continue
            found = _breakable(family, left, job, target)
            if found is not None:
                used.add((job.queue, job.id))
                left[found[0]] -= 1
                left += Counter()  # drops what is done
                yield found
            if not left:
                return


def _breakable(family: KeyFamily, left: Counter[str], job: Job, target: Target) -> tuple[str, list[Command]] | None:
    """The first of the rules that can be broken at the job, with the commands."""
    for rule in left:
        commands = family.inject(rule, job, target)
        if commands:
            return rule, commands
    return None
