"""The jobs of a part, by themselves and in tables, are the same, and come in the same order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from random import Random
from typing import NoReturn
from zlib import crc32

import pytest
from ferryman.compat.kue import FAMILY as KUE
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Progress
from ferryman.migrations.intake import Outline
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.scan import entries
from ferryman.schema.address import Address
from ferryman.schema.fact import Entry, Subject
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.jobtable import JobTable
from ferryman.schema.native import FAMILY as NATIVE
from ferryman.schema.rule import Keyspace
from ferryman.schema.totals import Totals
from ferryman.spark import sound
from ferryman.spark.jobs import BucketJobs, FactJobs
from ferryman.spark.sound import Traces
from ferryman.spark.stage import Stopped, beside
from ferryman.spark.stands import STANDS, Stand, digest, number_of, stands_of
from ferryman.spark.traces import Tracing, pack_names, unpack_names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.keyspace import store
from ..support.servers import Server
from ..support.vouching import jobs_of

NOW = 1_800_000_000_000
JOBS = list(generate(400, 7, NOW))
BUCKETS = 3


@pytest.fixture(params=[False, True], ids=["large slabs", "small slabs"], autouse=True)
def slabs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few groups of many jobs, or many of a few."""
    if request.param:
        monkeypatch.setattr(sound, "JOBS", 3)
        monkeypatch.setattr(sound, "SLAB_BYTES", 9_000)


def parts_of(address: Address, keys: list[Entry], folder: Path, seed: int = 0) -> list[BucketJobs]:
    """The sound jobs of a keyspace, in buckets, as two tasks leave them that have read the keys in some order."""
    outline = Outline()
    for number in range(2):
        tracing = Tracing(address, NOW, str(folder), BUCKETS)
        for entry in Random(seed).sample(keys, len(keys)):
            if crc32(entry.key) % 2 == number:
                list(tracing.facts(entry))
        list(tracing.rest())
        told = tracing.close()
        outline.totals.merge(told.totals)
        outline.homes.update(told.homes)
        outline.files += told.files
    traces = Traces.of(address, NOW, outline, BUCKETS)
    keyspace = Keyspace(get_family(address.family), address.prefix, NOW, outline.totals)
    return [BucketJobs(keyspace, traces, bucket) for bucket in range(BUCKETS)]


@pytest.fixture(params=["kue", "ferryman"])
def keyspace(request: pytest.FixtureRequest, server: Server) -> tuple[Address, list[Entry]]:
    """A keyspace of kue jobs, or the one to which they were migrated."""
    client, address = server.client(), Address.parse(server.url(0, family="kue"))
    store(client, KUE, "q", JOBS, NOW)
    client.hset("q:job:9", "workers_own", "x")  # a field that kue does not know
    if request.param == "ferryman":
        target = Address.parse(server.url(1))
        LocalEngine().migrate(address, target, Plan.between(address, target, NOW), lambda _: None)
        client, address = server.client(1), target
    family = get_family(address.family)
    return address, [entry for batch in entries(client, family, address.prefix) for entry in batch]


@pytest.fixture
def parts(keyspace: tuple[Address, list[Entry]], tmp_path: Path) -> list[BucketJobs]:
    return parts_of(*keyspace, tmp_path)


def reader(part: BucketJobs) -> Callable[[Subject], Job]:
    def read(subject: Subject) -> Job:
        job = part.keyspace.family.read(subject, part.keyspace)
        assert job is not None
        return job

    return read


def both(job: Job) -> tuple[str, int | None, int | None]:
    return repr(job), job.position, job.rank


def test_jobs_of_tables_are_those_that_are_read_one_by_one(parts: list[BucketJobs]) -> None:
    found = []
    for part in parts:
        tables: list[JobTable] = []

        def many(table: JobTable, tables: list[JobTable] = tables) -> list[Job]:
            tables.append(table)
            return jobs_of(table)

        singly = list(map(both, part.in_order(reader(part))))
        assert list(map(both, part.in_order(reader(part), many))) == singly
        assert sum(map(len, tables)) == len(singly)
        assert sorted(map(both, part.in_any_order(reader(part), many))) == sorted(singly)
        found += singly
    active = sum(job.state is State.ACTIVE for job in JOBS)
    assert (
        len(found) == len({name for name, *_ in found}) == len(JOBS) - (active if parts[0].traces.address.family == "kue" else 0)
    )


def test_the_order_of_jobs_is_not_that_in_which_keys_were_read(keyspace: tuple[Address, list[Entry]], tmp_path: Path) -> None:
    orders = []
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        orders.append([list(part.in_order(reader(part))) for part in parts_of(*keyspace, folder, seed)])
    assert orders[0] == orders[1]


def test_a_table_that_is_not_taken_is_read_one_by_one(parts: list[BucketJobs]) -> None:
    for part in parts:
        waiting = [job for job in part.in_order(reader(part)) if job.state is State.WAITING]
        taken = part.in_order(lambda _: None, lambda table: jobs_of(table) if table.like.state is State.WAITING else None)
        assert [job for job in taken if job is not None] == waiting
        more = list(part.in_any_order(lambda _: 0, lambda table: [1, 1] if table.like.state is State.WAITING else None))
        assert more.count(0) + len(waiting) == len(list(part.in_order(reader(part))))


def test_only_some_jobs(parts: list[BucketJobs]) -> None:
    for part in parts:
        subjects = list(part.in_order(lambda subject: subject))
        wanted = [(subject.scope, subject.job_id) for subject in subjects[::7]]
        chosen = BucketJobs(part.keyspace, part.traces, part.bucket, wanted)
        assert list(chosen.in_order(lambda subject: subject)) == subjects[::7]


def test_stands_of_tables_are_those_of_their_jobs(parts: list[BucketJobs]) -> None:
    for part in parts:
        for table in part.in_any_order(lambda _: pytest.fail("not a table"), lambda table: [table]):
            stands = [
                Stand(
                    number_of(job.queue, job.id),
                    job.queue,
                    job.id,
                    job.position if job.state is State.WAITING else None,
                    table.scope,
                    job.id,
                    "7",
                    digest(job, NATIVE),
                )
                for job in jobs_of(table)
            ]
            assert stands_of(table, "7", NATIVE).equals(STANDS.batch(stands))


def test_facts_are_no_tables() -> None:
    subjects = [Subject("1", "", ()), Subject("2", "", ())]
    jobs = FactJobs(Keyspace(KUE, "q", NOW, Totals()), subjects)
    assert list(jobs.in_order(lambda subject: subject.job_id, lambda _: None)) == ["1", "2"]
    assert list(jobs.in_any_order(lambda subject: subject.job_id, lambda _: None)) == ["1", "2"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary()))
def test_names_of_any_bytes_come_back(names: list[bytes]) -> None:
    assert unpack_names(pack_names(names)) == names


# Work beside other work


def test_what_is_done_beside_gives_its_result() -> None:
    with beside(lambda _: 42) as (doing, _):
        pass
    assert doing.result() == 42


def test_an_error_of_what_is_done_beside_is_raised_where_the_block_tells_its_progress() -> None:
    def fail(_progress: Progress) -> None:
        raise ValueError("no")

    def go_on() -> None:
        with beside(fail) as (doing, progress):
            wait([doing])
            progress("", 0, None)
            pytest.fail("went on")

    with pytest.raises(ValueError, match="no"):
        go_on()


def _busy(begun: threading.Event) -> Callable[[Progress], None]:
    def work(progress: Progress) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            progress("working", 1, 2)
            begun.set()

    return work


def test_an_error_stops_what_is_done_beside() -> None:
    begun = threading.Event()

    def give_up() -> NoReturn:
        assert begun.wait(10)
        raise KeyError

    with pytest.raises(KeyError), beside(_busy(begun)) as (doing, _):
        give_up()
    assert isinstance(doing.exception(), Stopped)


def test_an_interrupt_while_the_rest_is_waited_for_stops_it_too() -> None:
    begun, shown = threading.Event(), []

    def interrupt(*told: object) -> None:
        shown.append(told)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), beside(_busy(begun), interrupt) as (doing, _):
        begun.wait(10)
    assert shown == [("working", 1, 2)]
    assert isinstance(doing.exception(), Stopped)
