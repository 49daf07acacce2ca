"""Fill: writes generated keyspaces of any size, with planted damage, for tests, demos and benchmarks.

Jobs come from the family's own generator and go through its own writer, so what stands there afterwards is what a migration
would have written. The same arguments give the same keyspace. Large ones are written by several processes, of which each
makes all jobs and writes its share. Never writes into a keyspace that has jobs. Called by ``ferryman generate``.
"""

from __future__ import annotations

import os
import queue
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol

from attrs import define, field, frozen

from ..schema.address import Address
from ..schema.connect import open_client
from ..schema.errors import ServerError, UsageError
from ..schema.family import Command, KeyFamily, Target, get_family
from ..schema.job import Job
from ..schema.text import show
from ..schema.totals import Totals
from .engine import Census, Progress, silent
from .survey import occupant
from .wire import Wire, wire

BATCH_COMMANDS = 1000
ALONE = 20_000
"""Up to so many jobs one process is faster: others take a moment to start."""
PATIENCE_S = 0.2
"""How often the progress of the processes is looked at."""


@frozen
class Filling:
    """What to generate."""

    jobs: int
    seed: int
    now_ms: int
    damage: Mapping[str, int] = field(factory=dict)
    """Rule -> at how many jobs it shall be broken."""


@define
class Filled:
    """What was generated."""

    census: Census
    damage: Counter[str]
    """Rule -> at how many jobs it was broken: fewer than asked for, where there are not enough jobs that fit."""
    seconds: float


def fill(address: Address, filling: Filling, progress: Progress = silent, processes: int | None = None) -> Filled:
    """Writes the keyspace. Raises UsageError where jobs stand already, and for a rule that can't be broken on purpose."""
    family = get_family(address.family)
    check_damage(family, filling.damage)
    if processes is None:
        processes = os.cpu_count() or 1 if filling.jobs > ALONE else 1
    started = time.monotonic()
    target = Target(address.prefix, filling.now_ms)
    with open_client(address) as client:
        found = occupant(client, family, address.prefix)
        if found is not None:
            raise UsageError(f"{address.display()} holds jobs already ({show(found, 60)}); generate into an empty keyspace")
        if processes == 1:
            written, census = _write_share(address, filling, 0, 1, lambda done: progress("writing jobs", done, filling.jobs))
        else:
            written, census = _write_together(address, filling, processes, progress)
        with wire(client) as line:
            _send(line, family.finish(target, written))
            planted: Counter[str] = Counter()
            for rule, commands in _damage(family, filling, target):
                _send(line, commands)
                planted[rule] += 1
    return Filled(census, planted, time.monotonic() - started)


def check_damage(family: KeyFamily, damage: Mapping[str, int]) -> None:
    """Raises UsageError for a rule that can't be broken on purpose, and names those that can."""
    for rule in damage:
        if rule not in family.plantable:
            known = ", ".join(each.id for each in family.rules if each.id in family.plantable) or "none"
            raise UsageError(f"{rule} of {family.name} can't be broken on purpose; rules that can be: {known}")


# Jobs


class _Tell(Protocol):
    def __call__(self, done: int, /) -> object: ...


def _write_share(address: Address, filling: Filling, share: int, shares: int, tell: _Tell) -> tuple[Totals, Census]:
    """Writes every job whose number falls to this share."""
    family, target = get_family(address.family), Target(address.prefix, filling.now_ms)
    totals, census = Totals(), Census()
    jobs = islice(family.generate(filling.jobs, filling.seed, filling.now_ms), share, None, shares)
    with open_client(address) as client, wire(client) as line:
        batch: list[Command] = []
        for job in jobs:
            family.tally_written(job, totals)
            census.count(job)
            batch += family.write(job, target)
            if len(batch) >= BATCH_COMMANDS:
                _send(line, batch)
                batch.clear()
                tell(census.jobs)
        _send(line, batch)
    tell(census.jobs)
    return totals, census


def _write_together(address: Address, filling: Filling, processes: int, progress: Progress) -> tuple[Totals, Census]:
    """The same by several processes."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        told = manager.Queue()
        futures = [pool.submit(_write_in_process, address, filling, share, processes, told) for share in range(processes)]
        _follow(futures, told, filling.jobs, progress)
        totals, census = Totals(), Census()
        for future in futures:
            part_totals, part_census = future.result()
            totals.merge(Totals.from_json(part_totals))
            census.merge(part_census)
    return totals, census


def _write_in_process(address: Address, filling: Filling, share: int, shares: int, told: Any) -> tuple[str, Census]:
    totals, census = _write_share(address, filling, share, shares, lambda done: told.put((share, done)))
    return totals.to_json(), census


def _follow(futures: list[Future[tuple[str, Census]]], told: Any, jobs: int, progress: Progress) -> None:
    """Shows the progress of the processes until all are done or one has failed."""
    done: dict[int, int] = {}
    while not all(future.done() for future in futures) and not any(future.done() and future.exception() for future in futures):
        try:
            share, number = told.get(timeout=PATIENCE_S)
        except queue.Empty:
            continue
        done[share] = number
        progress("writing jobs", sum(done.values()), jobs)


# Damage


def _damage(family: KeyFamily, filling: Filling, target: Target) -> Iterator[tuple[str, list[Command]]]:
    """What breaks the rules: each at other jobs, which lie spread over the keyspace as far as there are enough that fit."""
    left = Counter({rule: number for rule, number in filling.damage.items() if number > 0})
    used: set[int] = set()
    if not left:
        return
    for step in dict.fromkeys((max(1, filling.jobs // (4 * left.total())), 1)):
        for number, job in enumerate(family.generate(filling.jobs, filling.seed, filling.now_ms)):
            if number % step or number in used:
                continue
            found = _breakable(family, left, job, target)
            if found is not None:
                used.add(number)
                left[found[0]] -= 1
                left += Counter()  # drops what is done
                yield found
            if not left:
                return


def _breakable(family: KeyFamily, left: Counter[str], job: Job, target: Target) -> tuple[str, list[Command]] | None:
    """The first of the rules that can be broken at the job, with the commands."""
    for rule in left:
        commands = family.damage(rule, job, target)
        if commands:
            return rule, commands
    return None


def _send(line: Wire, commands: list[Command]) -> None:
    """Raises ServerError naming the command that the server refuses."""
    for command, reply in zip(commands, line.call(commands), strict=True):
        if isinstance(reply, Exception):
            raise ServerError(f"the server refuses {command[0]!s} {show(str(command[1]), 80)}: {show(str(reply), 160)}")
