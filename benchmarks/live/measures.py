"""What is measured on one keyspace: publishing, consuming, and how soon a job is picked up, by whom and from whom."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median

from attrs import frozen

from ..broker.measure import Target, percentile, ratio_at_least, ratio_at_most
from ..server import Server
from .sides import SECONDS, Ours, System, running, said_by


@frozen
class Row:
    """One line of the table: what the original did and what ours did, and what was promised."""

    system: str
    name: str
    unit: str
    original: float
    ours: float
    target: Target | None = None

    @property
    def ratio(self) -> float:
        """Ours in terms of the original's."""
        return self.ours / self.original if self.original else float("inf")

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.met(self.ours, self.ratio)


# Publishing

PUBLISHED = 5000
AT_ONCE = 100
"""Publishes under way at once, where a side can do that: qless-py and reqless can't."""


def publish(system: System, server: Server, repeats: int) -> list[Row]:
    """Jobs per second that one process publishes: one after the other, and as fast as it can."""
    rates: dict[tuple[bool, int], list[float]] = {}
    for is_ours in _turns(repeats):
        side = Ours(system) if is_ours else system
        for at_once in (1, AT_ONCE) if is_ours else system.lanes:
            _flush(server)
            seconds = said_by(side.publisher(server, "empty", PUBLISHED, at_once))
            rates.setdefault((is_ours, at_once), []).append(PUBLISHED / seconds)
    one = {is_ours: rates[is_ours, 1] for is_ours in (True, False)}
    best = {True: rates[True, AT_ONCE], False: rates[False, system.lanes[-1]]}
    return [
        _row(system, "publish, one after the other", "jobs/s", one, None),
        _row(system, f"publish, {AT_ONCE} under way where it can", "jobs/s", best, ratio_at_least(2.0)),
    ]


# Consuming

CONSUMED = 1500
SOLO = ("-P", "solo", "--prefetch-multiplier", "4")
PREFORK = ("-P", "prefork", "-c", "2")
THREADS = ("-P", "threads", "-c", "2")
GEVENT = ("-P", "gevent", "-c", "2")
POOLS = {"solo": SOLO, "threads, 2": THREADS, "prefork, 2": PREFORK, "gevent, 2": GEVENT}


def consume(system: System, server: Server, repeats: int) -> list[Row]:
    """Empty jobs that one process takes and ends in a second."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for is_ours in _turns(repeats):
        side = Ours(system) if is_ours else system
        _fill(system, server)
        with running(side.consumer(server, "empty"), server):
            rates[is_ours].append(_rate(system, server))
    rows = [_row(system, "take and end empty jobs, one process", "jobs/s", rates, ratio_at_least(3.0))]
    for name, pool in POOLS.items():
        rates[True] = []
        for _ in range(repeats):
            _fill(system, server)
            with running(Ours(system).celery("empty", pool), server, Ours(system).url(server)):
                rates[True].append(_rate(system, server))
        rows.append(_row(system, f"the same by a Celery worker ({name})", "jobs/s", rates, None))
    return rows


def _fill(system: System, server: Server) -> None:
    _flush(server)
    said_by(Ours(system).publisher(server, "empty", CONSUMED, 100))


def _rate(system: System, server: Server) -> float:
    """Jobs per second between the first tenth of them and the last."""
    begin, start, deadline = CONSUMED // 10, 0.0, time.monotonic() + SECONDS
    first = 0
    with server.client() as client:
        while True:
            done, now = system.done(client), time.monotonic()
            if not first and done >= begin:
                first, start = done, now
            if done >= CONSUMED:
                return (done - first) / (now - start) if done > first else CONSUMED / 0.002
            if now > deadline:
                raise RuntimeError(f"only {done} of {CONSUMED} jobs are done")
            time.sleep(0.002)


# Being picked up


def pick_up(system: System, server: Server, _repeats: int) -> list[Row]:
    """From publishing a job to its first line, in a worker that has nothing else to do: many jobs, so once."""
    ours, queue = Ours(system), "stamp"
    theirs, own = system.sender(server, queue), ours.sender(server, queue)
    original = _picked_up(theirs, system.consumer(server, queue), system, server)
    to_client = _picked_up(theirs, ours.consumer(server, queue), system, server)
    to_threads = _picked_up(theirs, ours.celery(queue, THREADS), system, server)
    to_prefork = _picked_up(theirs, ours.celery(queue, PREFORK), system, server)
    from_ours = _picked_up(own, system.consumer(server, queue), system, server)
    target = ratio_at_most(1.5)

    def row(what: str, values: Sequence[float], share: float = 0.5) -> Row:
        name = f"pick-up, {what}, {'median' if share == 0.5 else f'p{share * 100:.0f}'}"
        return Row(system.name, name, "ms", _ms(original, share), _ms(values, share), target if share == 0.5 else None)

    return [
        row("the original's job by the Python client", to_client),
        row("the original's job by Celery, threads", to_threads),
        row("the original's job by Celery, prefork", to_prefork),
        row("our job by the original", from_ours),
        row("the original's job by Celery, prefork", to_prefork, 0.95),
    ]


def _picked_up(sender: Sequence[str], worker: Sequence[str], system: System, server: Server) -> list[float]:
    """Seconds from a job's sending to its begin, of each."""
    _flush(server)
    with running(worker, server, Ours(system).url(server)):
        return _latencies(sender, server, system)


def _latencies(sender: Sequence[str], server: Server, system: System) -> list[float]:
    """Seconds. The pauses between jobs vary, so that they keep no step with anybody's timers."""
    pauses, number = random.Random(1), system.jobs_timed
    with running(sender, server) as told, server.client(1) as ledger:
        for sent in range(1, number + 1):
            told.tell()
            deadline = time.monotonic() + SECONDS
            while int(ledger.llen("ledger")) < sent and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(pauses.uniform(0.01, system.longest_pause))
        # The first ones find processes that have imported nothing yet.
        return [float(value) for value in ledger.lrange("ledger", 0, -1)][number // 10 :]


def _ms(values: Sequence[float], share: float) -> float:
    return percentile(values, share) * 1000


def _turns(repeats: int) -> list[bool]:
    """Each side as often, in turn: noise hits both."""
    return [is_ours for repeat in range(repeats) for is_ours in ((False, True) if repeat % 2 == 0 else (True, False))]


def _flush(server: Server) -> None:
    with server.client() as client:
        client.flushall()


def _row(system: System, name: str, unit: str, values: dict[bool, list[float]], target: Target | None) -> Row:
    return Row(system.name, name, unit, median(values[False]), median(values[True]), target)


MEASURES = {"publish": publish, "consume": consume, "pick-up": pick_up}
