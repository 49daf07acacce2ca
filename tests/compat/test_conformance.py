"""The conformance suite for every family of this project, on each kind of server; and for one that somebody else has written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from ferryman.compat import bee, kickq, kombu, kue, pjq, qless
from ferryman.schema import native
from ferryman.schema.connection.address import Address
from ferryman.schema.job import Job, State
from ferryman.testing.families import FamilyConformance

from ..conftest import SERVERS
from ..schema.native import strategies as of_native
from ..support.servers import Server
from .bee import strategies as of_bee
from .kickq import strategies as of_kickq
from .kombu import strategies as of_kombu
from .kue import strategies as of_kue
from .pjq import strategies as of_pjq
from .qless import strategies as of_qless

pytestmark = pytest.mark.in_turn

FIRST_TIME = 1_900_000_000_000
"""Later than whatever else drawn jobs tell, Unix ms."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "family"


class OnEachServer(FamilyConformance):
    """On the servers that all tests share; what carries keyspaces on one of them: its make says nothing there."""

    @pytest.fixture
    def keyspace_address(self, server: Server) -> Address:
        return Address.parse(server.url())

    @pytest.fixture(scope="class")
    @classmethod
    def carried_address(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
        with SERVERS[-1].start(tmp_path_factory.mktemp("carried")) as server:
            yield Address.parse(server.url())


class TestNative(OnEachServer):
    family = native.FAMILY
    entries = of_native.entries()


class TestKue(OnEachServer):
    family = kue.FAMILY
    # An active job of kue names no worker that could be looked for.
    shown = ("KUE-15",)
    # Times may contradict each other, jobs may be late, held or out of attempts at the source already.
    shown_of_any_job = ("KUE-9", "KUE-14", "KUE-16", "KUE-17", "KUE-18", "KUE-21", "KUE-22", "KUE-23", "KUE-30")
    jobs = of_kue.jobs()
    entries = of_kue.entries("q")
    fault_jobs = 25

    def plausible(self, job: Job) -> Job:
        """A delay is no time before the job was made."""
        return job if job.due_at is None or job.due_at > FIRST_TIME else evolve(job, due_at=FIRST_TIME)


class TestKombu(OnEachServer):
    family = kombu.FAMILY
    # Times may be long over, or far ahead, at the source already; exchanges may be bound nowhere, and an eta be none.
    shown_of_any_job = ("KOMBU-4", "KOMBU-5", "KOMBU-6", "KOMBU-10")
    prefixes = ("", "app1:")
    jobs = of_kombu.jobs()
    entries = of_kombu.entries()
    fault_jobs = 60

    def equal_jobs(self, jobs: Collection[Job]) -> Collection[Job]:
        """Where an unacked message came from is told by bindings alone."""
        return [job for job in jobs if job.state is not State.ACTIVE or of_kombu.is_sent_by_name(job)]


class TestQless(OnEachServer):
    family = qless.FAMILY
    # Workers may be late at the source already, and jobs may wait for some that are nowhere; clocks may differ.
    shown_of_any_job = ("QLESS-12", "QLESS-21", "QLESS-22", "QLESS-25", "QLESS-36")
    # Takes two running jobs that share a throttle; and what is no inject.
    not_injectable = ("QLESS-35", "QLESS-RECUR")
    jobs = of_qless.jobs()
    entries = of_qless.entries()

    def plausible(self, job: Job) -> Job:
        """A score holds no time that is further away, in the past or to come."""
        return job if job.due_at is None else evolve(job, due_at=max(0, min(job.due_at, 2**53)))

    def finding_names(self, job: Job) -> Collection[str]:
        """Its tags, its failure group, its worker."""
        return (*job.tags, (job.error or "").partition(": ")[0], job.worker or "")


class TestKickq(OnEachServer):
    family = kickq.FAMILY
    # A worker may have had a job for too long, or a time be none or no score's, at the source already.
    shown_of_any_job = ("KICKQ-11", "KICKQ-18", "KICKQ-20")
    # A state that is an application's own is left to it.
    not_mended = ("KICKQ-3",)
    jobs = of_kickq.jobs()
    # Few jobs are in processing.
    fault_jobs = 60


class TestPjq(OnEachServer):
    family = pjq.FAMILY
    # A job of another system may have a payload that tells no time.
    shown_of_any_job = ("PJQ-28",)
    # Of a program that is no longer the current one.
    not_injectable = ("PJQ-26",)
    # A worker from which a job is taken stays among the busy ones for a while, which an audit tells.
    not_mended = tuple(pjq.FAMILY.choosable)
    jobs = of_pjq.jobs()
    entries = of_pjq.entries()
    fault_jobs = 60


class TestBee(OnEachServer):
    family = bee.FAMILY
    # Nothing tells whether the worker of a running job lives.
    shown = ("BEE-16",)
    # Jobs may wait for nobody, be out of retries, or held, at the source already.
    shown_of_any_job = ("BEE-22", "BEE-32")
    # Come with another one always.
    not_injectable = ("BEE-14", "BEE-16")
    jobs = of_bee.jobs()
    entries = of_bee.entries()

    def plausible(self, job: Job) -> Job:
        """Ended and due times of a sound job are times; one that ended longer ago than it may stay starts to stay anew."""
        soon = self.now_ms + 1_000_000
        ended, created = self.now_ms - 1, self.now_ms - 5000
        return evolve(job, history=(), created_at=created, due_at=soon, finished_at=ended, lease_expires_at=soon)

    def equal_jobs(self, jobs: Collection[Job]) -> Collection[Job]:
        """Who waits for whom is written to both sides: a job learns of it as bee's jobs do."""
        awaited = {needed for job in jobs for needed in job.depends_on}
        return [job for job in jobs if job.id not in awaited]


@pytest.mark.servers
def test_somebody_elses_family_passes_by_three_lines(tmp_path: Path) -> None:
    metadata = tmp_path / "ferryman_toy-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ferryman-toy\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[ferryman.families]\ntoy = toy:TOY\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE), str(EXAMPLE)]
    paths = os.pathsep.join([str(tmp_path), str(EXAMPLE)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
