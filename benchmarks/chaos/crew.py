"""Crew: the Celery workers of a run. Each is killed in one of four ways, and another one takes its place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from attrs import define, field

from ..brokers import Broker
from ..server import Server
from .ledger import Ledger
from .profile import Fault, Profile
from .tasks import BROKER, LEDGER, OPTIONS

READY_SECONDS = 60.0
STOP_SECONDS = 25.0
"""Seconds for a warm or cold shutdown: more than the longest task takes."""


@define
class Member:
    """One worker process, the leader of its own process group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


@define
class Crew:
    """As many workers as the profile has pools, at any time but while one is being replaced."""

    broker: Broker
    server: Server
    ledger: Ledger
    profile: Profile
    folder: Path
    hung: int = 0
    """Workers that a shutdown did not end."""
    _members: list[Member] = field(factory=list)
    _generations: int = 0

    def start(self) -> None:
        """Starts every worker and returns when all consume."""
        self._members = [self._recruit(pool, concurrency) for pool, concurrency in self.profile.pools]
        deadline = time.monotonic() + READY_SECONDS
        for member in self._members:
            while b" ready." not in member.log.read_bytes():
                if member.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"worker {member.name} did not get ready:\n{member.log.read_text()}")
                time.sleep(0.05)

    def strike(self, at: int, fault: Fault, seconds: float) -> None:
        """Ends one worker and starts the next; ``seconds`` lie between SIGTERM and SIGKILL where both come."""
        member = self._members[at]
        match fault:
            case Fault.KILL:
                self._kill(member)
            case Fault.TERM_KILL:
                self._ask_to_stop(member)
                if not _ended(member, seconds):
                    self._kill(member)
            case Fault.QUIT:
                self.ledger.write("killed", worker=member.name)
                member.process.send_signal(signal.SIGQUIT)
                self._see_off(member)
            case _:
                self._ask_to_stop(member)
                self._see_off(member)
        self._members[at] = self._recruit(*self.profile.pools[at])

    def mend(self) -> None:
        """Replaces workers that have ended by themselves, as a supervisor would."""
        for at, member in enumerate(self._members):
            if member.process.poll() is not None:
                self._kill(member)
                self._members[at] = self._recruit(*self.profile.pools[at])

    def stop(self) -> None:
        """A warm shutdown of all."""
        for member in self._members:
            self._ask_to_stop(member)
        for member in self._members:
            self._see_off(member)

    def kill(self) -> None:
        """Ends all at once, whatever they do; the end of a run that failed."""
        for member in self._members:
            _kill_group(member)

    def _ask_to_stop(self, member: Member) -> None:
        self.ledger.write("stopping", worker=member.name)
        member.process.send_signal(signal.SIGTERM)

    def _see_off(self, member: Member) -> None:
        """Waits for a shutdown, and ends what does not end."""
        if not _ended(member, STOP_SECONDS):
            self.hung += 1
            self._kill(member)

    def _kill(self, member: Member) -> None:
        # Written first: what the worker does after this line may happen again.
        self.ledger.write("killed", worker=member.name)
        _kill_group(member)

    def _recruit(self, pool: str, concurrency: int) -> Member:
        self._generations += 1
        name = f"{pool}{self._generations}@chaos"
        log = self.folder / f"{self._generations:04}-{pool}.log"
        environment = {
            **os.environ,
            BROKER: self.broker.url(self.server),
            OPTIONS: json.dumps(self.broker.options(self.profile.lease)),
            LEDGER: str(self.ledger.path),
        }
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.chaos.tasks", "worker", "-l", "INFO"]
        command += ["-P", pool, "-c", str(concurrency), "-n", name]
        with log.open("ab") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        return Member(name, process, log)


def _ended(member: Member, seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        member.process.wait(seconds)
    return member.process.poll() is not None


def _kill_group(member: Member) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(member.process.pid, signal.SIGKILL)
    member.process.wait()
