"""Run: one chaos run from the first worker to the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import define, field

from ..brokers import FERRYMAN, Broker
from ..server import Server
from .ledger import Ledger
from .profile import Fault, PlannedFault, Profile, plan
from .publisher import Publisher
from .verdict import Verdict, verdict_on
from .worker_pool import WorkerPool

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""What the server has answered for survives its own SIGKILL; with less, a restart may lose what was promised, whoever asked."""

LOOK_SECONDS = 1.0


@define
class Report:
    """What a run has shown."""

    verdict: Verdict
    left_over: tuple[str, ...]
    """Keys that stay when all is done and every worker has gone."""
    faults: Counter[Fault] = field(factory=Counter)
    hung: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the broker has kept every promise and cleaned up behind itself."""
        return self.verdict.holds and not self.left_over


def run(broker: Broker, profile: Profile, seed: int, kind: str, folder: Path, say: Callable[[str], None]) -> Report:
    """One run, whose ledger and logs are written to ``folder``; ``say`` hears of every fault as it happens."""
    began = time.monotonic()
    with Server(kind, DURABLE) as server:
        ledger = Ledger(folder / "ledger")
        workers = WorkerPool(broker, server, ledger, profile, folder)
        publisher = Publisher(broker, server, ledger, profile, seed)
        planned = plan(profile, seed)
        try:
            workers.start()
            publisher.start()
            _inject_all(planned, workers, server, ledger, say)
            publisher.join()
            say("the faults are over; waiting for the last tasks")
            _wait_until_done(workers, ledger, profile)
            time.sleep(2 * profile.lease + LOOK_SECONDS)  # the last killed workers are struck off: an idle one had two leases
            workers.stop()
        finally:
            workers.kill()
        return Report(
            verdict=verdict_on(ledger.read(), profile.lease),
            left_over=_left_over(broker, server),
            faults=Counter(each.fault for each in planned),
            hung=workers.hung,
            seconds=time.monotonic() - began,
        )


def _inject_all(
    planned: Sequence[PlannedFault], workers: WorkerPool, server: Server, ledger: Ledger, say: Callable[[str], None]
) -> None:
    """Carries out the plan: workers and server have a thread each, so that their troubles overlap."""
    start = time.monotonic()

    def inject_those(those: Sequence[PlannedFault]) -> None:
        for each in those:
            time.sleep(max(0.0, start + each.at - time.monotonic()))
            say(f"{each.at:6.1f} s  {each.fault}" + ("" if each.worker is None else f", worker {each.worker}"))
            if each.worker is None:
                _inject_into_server(each, server, ledger)
            else:
                workers.inject(each.worker, each.fault, each.seconds)
                workers.replace_ended()

    with ThreadPoolExecutor(2) as threads:
        halves = [[s for s in planned if s.worker is None], [s for s in planned if s.worker is not None]]
        for half in [threads.submit(inject_those, those) for those in halves]:
            half.result()


def _inject_into_server(planned: PlannedFault, server: Server, ledger: Ledger) -> None:
    at = time.time()
    if planned.fault is Fault.FREEZE:
        with server.frozen():
            time.sleep(planned.seconds)
    else:
        server.kill()
        time.sleep(planned.seconds)
        server.start()
    ledger.write("outage", at=at, until=time.time())


def _wait_until_done(workers: WorkerPool, ledger: Ledger, profile: Profile) -> None:
    deadline = time.monotonic() + profile.patience
    while verdict_on(ledger.read(), profile.lease).lost and time.monotonic() < deadline:
        workers.replace_ended()
        time.sleep(LOOK_SECONDS)


def _left_over(broker: Broker, server: Server) -> tuple[str, ...]:
    """Keys without an end that say more than which queues and bindings there are, and how much of what was dropped.

    The last counts replies to workers that were killed while they waited for them.
    """
    with server.client() as client:
        names = [key.decode("utf-8", "replace") for key in client.scan_iter(count=1000) if client.ttl(key) < 0]
    return tuple(sorted(name for name in names if not _describes(broker, name)))


def _describes(broker: Broker, name: str) -> bool:
    if broker == FERRYMAN:
        return name.endswith((":queues", ":meta", ":times", ":unroutable")) or ":exchange:" in name
    return name.startswith("_kombu.binding")
