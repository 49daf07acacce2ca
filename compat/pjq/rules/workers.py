"""The rules of pjq keyspaces about workers. What is wrong with several workers of a queue is one finding.

They see only totals (``reader.tally``), so they cost the same for any number of jobs. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, span
from ...rulebook import Rulebook
from ..keys import EARLIEST, LATEST, LEASE_MS, TICK_MS, layout
from ..view import View, view_of
from ..workers import Workers, all_workers, is_misfit

NAMED = 5
"""Most workers that one finding names."""

book: Rulebook[View] = Rulebook(view_of)


def unknown_to_purge(workers: Workers) -> set[str]:
    """Workers that nothing ever forgets."""
    return {worker for worker in workers.idle | workers.busy if worker not in workers.seen}


def nowhere(workers: Workers) -> set[str]:
    """Workers that gave signs, and are neither idle nor busy."""
    return {worker for worker in workers.seen if worker not in workers.idle and worker not in workers.busy}


def from_the_future(workers: Workers, now_ms: int) -> set[str]:
    """Workers whose clock is ahead. A time in milliseconds is another fault."""
    latest = (now_ms + TICK_MS) / 1000
    return {worker for worker, seen in workers.seen.items() if latest < seen <= LATEST}


def out_of_range(workers: Workers) -> set[str]:
    """Workers whose last sign is no time in seconds."""
    return {worker for worker, seen in workers.seen.items() if not EARLIEST <= seen <= LATEST}


def _violations(keyspace: Keyspace, queue: str, role: str, workers: Iterable[str], detail: str) -> Iterator[Violation]:
    """One violation that names the first workers; none without workers."""
    found = sorted(workers)
    if found:
        named = ", ".join(show(worker, 60) for worker in found[:NAMED]) + (" …" if len(found) > NAMED else "")
        count = f"{len(found)} workers" if len(found) > 1 else "worker"
        yield Violation(f"{count} {named}: {detail}", layout(keyspace.prefix).key(role, queue=queue), queue)


@book.about_keyspace(
    "PJQ-13",
    "No worker is both idle and busy",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="remove it from the idle ones: it will say so when it is",
)
def idle_or_busy(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        yield from _violations(keyspace, queue, "idle", workers.idle & workers.busy, "idle and busy, will get a second job")


@book.about_keyspace(
    "PJQ-14",
    "Every worker has a last sign",
    Severity.ERROR,
    Harm.LATE,
    repair="give it one now: it is forgotten 9 s later, unless it is there",
)
def worker_can_be_forgotten(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        if not is_misfit("seen", queue, keyspace):
            role = "idle" if unknown_to_purge(workers) & workers.idle else "busy"
            detail = "without a last sign, so never forgotten; each job that it gets is late by 9 s"
            yield from _violations(keyspace, queue, role, unknown_to_purge(workers), detail)


@book.about_keyspace(
    "PJQ-15",
    "A worker that gave a sign is idle or busy",
    Severity.INFO,
    Harm.COSMETIC,
    repair="remove its last sign",
)
def sign_has_worker(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        if not is_misfit("idle", queue, keyspace) and not is_misfit("busy", queue, keyspace):
            yield from _violations(keyspace, queue, "seen", nowhere(workers), "a last sign, but neither idle nor busy")


@book.about_keyspace(
    "PJQ-16",
    "No worker's last sign is in the future",
    Severity.WARNING,
    Harm.LATE,
    repair="set it to the present: the worker is forgotten 9 s later, unless it is there",
)
def clocks_agree(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        ahead = from_the_future(workers, keyspace.now_ms)
        if ahead:
            seconds = max(workers.seen[worker] for worker in ahead) - keyspace.now_ms / 1000
            detail = f"clock ahead by {span(seconds * 1000)}; should it die, it is not forgotten before then"
            yield from _violations(keyspace, queue, "seen", ahead, detail)


@book.about_keyspace(
    "PJQ-20",
    "Times in sorted sets are seconds",
    Severity.ERROR,
    Harm.LATE,
    repair="set it to the present: the worker is forgotten 9 s later, unless it is there",
)
def signs_are_seconds(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        yield from _violations(keyspace, queue, "seen", out_of_range(workers), "its last sign is no time in seconds")


@book.about_keyspace("PJQ-21", "A queue has no more busy workers than jobs at work", Severity.INFO, Harm.COSMETIC)
def busy_workers_have_jobs(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, workers in all_workers(keyspace.totals):
        jobs = keyspace.totals.sums["dispatched", queue] + keyspace.totals.sums["processing", queue]
        misfit = is_misfit("dispatched", queue, keyspace) or is_misfit("processing", queue, keyspace)
        if len(workers.busy) > jobs and not misfit:
            detail = f"busy, with {jobs} jobs at work; gets no job for {LEASE_MS // 1000} s"
            yield from _violations(keyspace, queue, "busy", workers.busy, detail)
