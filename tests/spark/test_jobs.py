"""The jobs of a part, by themselves and in tables, are the same, and come in the same order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Progress
from ferryman.migrations.intake import Outline
from ferryman.migrations.scan import entries
from ferryman.schema.address import Address
from ferryman.schema.fact import Subject
from ferryman.schema.job import Job, State
from ferryman.schema.jobtable import JobTable
from ferryman.schema.rule import Keyspace
from ferryman.schema.totals import Totals
from ferryman.spark.jobs import BucketJobs, FactJobs
from ferryman.spark.sound import Traces
from ferryman.spark.stage import Stopped, beside
from ferryman.spark.traces import Tracing, pack_names, unpack_names
from hypothesis import given
from hypothesis import strategies as st

from ..support.keyspace import store
from ..support.servers import Server

NOW = 1_800_000_000_000
JOBS = list(generate(400, 7, NOW))
BUCKETS = 3


@pytest.fixture
def parts(server: Server, tmp_path: Path) -> list[BucketJobs]:
    """The sound jobs of a keyspace, in buckets."""
    client = server.client()
    store(client, FAMILY, "q", JOBS, NOW)
    client.hset("q:job:9", "workers_own", "x")  # a field that kue does not know
    address = Address.parse(server.url(0, family="kue"))
    words = []
    for number in range(2):  # two tasks, each with half of the keys
        tracing = Tracing(address, NOW, str(tmp_path), BUCKETS)
        for batch in entries(client, FAMILY, "q"):
            for entry in batch:
                if hash(entry.key) % 2 == number:
                    list(tracing.facts(entry))
        list(tracing.rest())
        words.append(tracing.close())
    outline = Outline()
    for word in words:
        outline.totals.merge(word.totals)
        outline.homes.update(word.homes)
        outline.files += word.files
    traces = Traces.of(address, NOW, outline, BUCKETS)
    keyspace = Keyspace(FAMILY, "q", NOW, outline.totals)
    return [BucketJobs(keyspace, traces, bucket) for bucket in range(BUCKETS)]


def read(subject: Subject) -> Job:
    job = FAMILY.read(subject, Keyspace(FAMILY, "q", NOW, Totals()))
    assert job is not None
    return job


def both(job: Job) -> tuple[str, int | None, int | None]:
    return repr(job), job.position, job.rank


def test_jobs_of_tables_are_those_that_are_read_one_by_one(parts: list[BucketJobs]) -> None:
    found = []
    for part in parts:
        tables: list[JobTable] = []

        def many(table: JobTable, tables: list[JobTable] = tables) -> list[Job]:
            tables.append(table)
            return list(table.jobs())

        singly = list(map(both, part.each(read)))
        assert list(map(both, part.each(read, many))) == singly
        assert sum(map(len, tables)) == len(singly)
        assert sorted(map(both, part.some(read, many))) == sorted(singly)
        found += singly
    assert len(found) == len({name for name, *_ in found}) == sum(job.state is not State.ACTIVE for job in JOBS)


def test_a_table_that_is_not_taken_is_read_one_by_one(parts: list[BucketJobs]) -> None:
    for part in parts:
        waiting = [job for job in part.each(read) if job.state is State.WAITING]
        taken = part.each(lambda _: None, lambda table: None if table.like.state is not State.WAITING else list(table.jobs()))
        assert [job for job in taken if job is not None] == waiting
        more = list(part.some(lambda _: 0, lambda table: [1, 1] if table.like.state is State.WAITING else None))
        assert more.count(0) + len(waiting) == len(list(part.each(read)))


def test_only_some_jobs(parts: list[BucketJobs]) -> None:
    for part in parts:
        subjects = list(part.each(lambda subject: subject))
        wanted = [(subject.scope, subject.job_id) for subject in subjects[::7]]
        chosen = BucketJobs(part.keyspace, part.traces, part.bucket, wanted)
        assert list(chosen.each(lambda subject: subject)) == subjects[::7]


def test_facts_are_no_tables() -> None:
    subjects = [Subject("1", "", ()), Subject("2", "", ())]
    jobs = FactJobs(Keyspace(FAMILY, "q", NOW, Totals()), subjects)
    assert list(jobs.each(lambda subject: subject.job_id, lambda _: None)) == ["1", "2"]
    assert list(jobs.some(lambda subject: subject.job_id, lambda _: None)) == ["1", "2"]


@given(st.lists(st.binary()))
def test_names_of_any_bytes_come_back(names: list[bytes]) -> None:
    assert unpack_names(pack_names(names)) == names


# Work beside other work


def test_what_is_done_beside_gives_its_result() -> None:
    with beside(lambda _: 42) as doing:
        pass
    assert doing.result() == 42


def test_an_error_of_what_is_done_beside_is_told_to_who_asks() -> None:
    def fail(_progress: Progress) -> None:
        raise ValueError("no")

    with beside(fail) as doing:
        pass
    with pytest.raises(ValueError, match="no"):
        doing.result()


def test_an_error_stops_what_is_done_beside() -> None:
    begun = threading.Event()

    def work(progress: Progress) -> None:
        while True:
            progress("", 0, None)
            begun.set()

    def give_up() -> NoReturn:
        assert begun.wait(10)
        raise KeyError

    with pytest.raises(KeyError), beside(work) as doing:
        give_up()
    assert isinstance(doing.exception(), Stopped)
