"""Profile: how long a chaos run is and how hard it hits. Pure values; ``plan`` makes the seeded list of what happens when."""

from __future__ import annotations

import random
from enum import StrEnum

from attrs import frozen


class Fault(StrEnum):
    """What the run does to a worker or to the server."""

    KILL = "SIGKILL"
    QUIT = "SIGQUIT"
    TERM = "SIGTERM"
    TERM_KILL = "SIGTERM then SIGKILL"
    RESTART = "server killed and restarted"
    FREEZE = "server frozen"


WORKER_FAULTS = (Fault.KILL, Fault.QUIT, Fault.TERM, Fault.TERM_KILL)
SERVER_FAULTS = (Fault.RESTART, Fault.FREEZE)


@frozen
class Profile:
    """Durations are seconds."""

    duration: float
    """How long tasks are published and faults happen."""
    rate: float
    """Tasks published a second."""
    pools: tuple[tuple[str, int], ...]
    """The workers that run at any time: (pool, concurrency)."""
    worker_fault_every: float
    server_fault_every: float
    freezes: tuple[float, ...]
    """How long the server may be frozen; above the lease, leases lapse."""
    patience: float
    """How long after the last fault every task must be done."""
    lease: float = 6.0


SHORT = Profile(
    duration=22.0,
    rate=12.0,
    pools=(("prefork", 2), ("threads", 4)),
    worker_fault_every=4.0,
    server_fault_every=8.0,
    freezes=(1.5,),
    patience=50.0,
)
LONG = Profile(
    duration=900.0,
    rate=20.0,
    pools=(("prefork", 2), ("threads", 4), ("prefork", 2), ("solo", 1)),
    worker_fault_every=6.0,
    server_fault_every=25.0,
    freezes=(1.0, 3.0, 8.0),
    patience=120.0,
)
PROFILES = {"short": SHORT, "long": LONG}


@frozen
class PlannedFault:
    """One fault: when (seconds from the start), to which worker (its number; None: the server), and for how long."""

    at: float
    fault: Fault
    worker: int | None
    seconds: float


def plan(profile: Profile, seed: int) -> list[PlannedFault]:
    """What happens when, the same for the same seed. Every kind of fault comes once before any comes again."""
    chance = random.Random(seed)
    planned = []
    for faults, every in ((WORKER_FAULTS, profile.worker_fault_every), (SERVER_FAULTS, profile.server_fault_every)):
        at = every * chance.uniform(0.8, 1.2)
        left: list[Fault] = []
        while at < profile.duration:
            if not left:
                left = chance.sample(faults, len(faults))
            fault = left.pop()
            worker = chance.randrange(len(profile.pools)) if fault in WORKER_FAULTS else None
            seconds = chance.choice(profile.freezes) if fault is Fault.FREEZE else chance.uniform(0.2, 1.5)
            planned.append(PlannedFault(at, fault, worker, seconds))
            at += every * chance.uniform(0.6, 1.4)
    return sorted(planned, key=lambda each: each.at)
