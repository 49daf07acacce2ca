"""The jobs of a partition, by themselves and in tables, are the same, and come in the same order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from random import Random
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from ferryman.compat.kue import FAMILY as KUE
from ferryman.compat.kue.generate import generate
from ferryman.migrations import journal
from ferryman.migrations.engine import Progress, Summary, placement_check
from ferryman.migrations.engine.background import Cancelled, in_background
from ferryman.migrations.engine.job_digests import DIGESTS, JobDigest, digests_of
from ferryman.migrations.engine.job_hasher import JobHasher
from ferryman.migrations.engine.jobs import FactJobs
from ferryman.migrations.engine.key_row_jobs import KeyRowJobs
from ferryman.migrations.engine.key_rows import KeyRowWriter
from ferryman.migrations.engine.migrate import write_batch
from ferryman.migrations.engine.outgoing import OutgoingJob, OutgoingTable
from ferryman.migrations.engine.placement_check import KeyRows
from ferryman.migrations.fact_reader import ReadSummary
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.packed_jobs import identity
from ferryman.migrations.partition_writer import open_partition
from ferryman.migrations.plan import Plan, decide, decide_table
from ferryman.migrations.run import JOURNAL, Run
from ferryman.migrations.scan import entries
from ferryman.migrations.store import Store, open_store
from ferryman.schema.columnar.jobtable import JobTable
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry, Subject
from ferryman.schema.family import Keyspace, get_family
from ferryman.schema.job import Job, State
from ferryman.schema.jobnumber import number_of
from ferryman.schema.native import FAMILY as NATIVE
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import dump
from ferryman.testing.keyspaces import store as store_jobs

from ..support.prefiltering import jobs_of
from ..support.servers import Server

NOW = 1_800_000_000_000
JOBS = list(generate(400, 7, NOW))
BUCKETS = 3


@pytest.fixture(params=[False, True], ids=["large batches", "small batches"], autouse=True)
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few groups of many jobs, or many of a few."""
    if request.param:
        monkeypatch.setattr(placement_check, "BATCH_BYTES", 9_000)


def parts_of(address: Address, keys: list[Entry], folder: Path, seed: int = 0) -> list[KeyRowJobs]:
    """The verified jobs of a keyspace, in buckets, as two tasks leave them that have read the keys in some order."""
    words = []
    for number in range(2):
        writer = KeyRowWriter(address, NOW, str(folder), BUCKETS)
        for entry in Random(seed).sample(keys, len(keys)):
            if crc32(entry.key) % 2 == number:
                list(writer.facts(entry))
        list(writer.rest())
        words.append(json.dumps(writer.close().to_json()))
    summary = ReadSummary.of(words)
    key_rows = KeyRows.of(address, NOW, summary, BUCKETS)
    keyspace = Keyspace(get_family(address.family), address.prefix, NOW, summary.totals)
    return [KeyRowJobs(keyspace, key_rows, bucket) for bucket in range(BUCKETS)]


@pytest.fixture(params=["kue", "ferryman"])
def keyspace(request: pytest.FixtureRequest, server: Server) -> tuple[Address, list[Entry]]:
    """A keyspace of kue jobs, or the one to which they were migrated."""
    client, address = server.client(), Address.parse(server.url(0, family="kue"))
    store_jobs(client, KUE, "q", JOBS, NOW)
    client.hset("q:job:9", "workers_own", "x")  # a field that kue does not know
    if request.param == "ferryman":
        target = Address.parse(server.url(1))
        LocalEngine().migrate(address, target, Plan.between(address, target, NOW), lambda _: None)
        client, address = server.client(1), target
    family = get_family(address.family)
    return address, [entry for batch in entries(client, family, address.prefix) for entry in batch]


@pytest.fixture
def partitions(keyspace: tuple[Address, list[Entry]], tmp_path: Path) -> list[KeyRowJobs]:
    return parts_of(*keyspace, tmp_path)


def reader(partition: KeyRowJobs) -> Callable[[Subject], Job]:
    def read(subject: Subject) -> Job:
        job = partition.keyspace.family.read(subject, partition.keyspace)
        assert job is not None
        return job

    return read


def both(job: Job) -> tuple[str, int | None, int | None]:
    return repr(job), job.position, job.rank


def all_of(table: JobTable) -> list[tuple[str, int | None, int | None]]:
    return list(map(both, jobs_of(table)))


def alone(partition: KeyRowJobs) -> Callable[[Subject], tuple[str, int | None, int | None]]:
    """How a job is read that is in no table: an active one of a keyspace whose active jobs are in none."""

    def read(subject: Subject) -> tuple[str, int | None, int | None]:
        job = reader(partition)(subject)
        assert job.state is State.ACTIVE
        assert partition.key_rows.address.family != "kue"
        return both(job)

    return read


def test_jobs_of_tables_are_those_that_are_read_one_by_one(partitions: list[KeyRowJobs]) -> None:
    found = []
    for partition in partitions:
        singly = [both(job) for job in partition.in_order(reader(partition))]
        together = []
        for batch in partition.batches(alone(partition), all_of):
            rows = [
                *batch.singly,
                *((row, job) for rows, jobs in batch.tables for row, job in zip(rows.tolist(), jobs, strict=True)),
            ]
            assert sorted(row for row, _ in rows) == list(range(len(rows)))
            together += [job for _, job in sorted(rows)]
        assert together == singly
        assert sorted(partition.in_any_order(alone(partition), all_of)) == sorted(singly)
        found += singly
    is_kue = partitions[0].key_rows.address.family == "kue"
    placement_check = [job for job in JOBS if not (is_kue and job.state is State.ACTIVE and not job.ttl)]
    assert len(found) == len({name for name, *_ in found}) == len(placement_check)


def test_light_work_takes_more_jobs_at_once_and_the_same_ones(partitions: list[KeyRowJobs]) -> None:
    for partition in partitions:
        usual, light = (list(partition.batches(alone(partition), all_of, times)) for times in (1, 2))
        assert len(light) == 1 if len(usual) == 1 else len(light) <= len(usual) // 2 + 1 < len(usual)
        found = [sorted(partition.in_any_order(alone(partition), all_of, times)) for times in (1, 2)]
        assert found[0] == found[1]


def test_the_order_of_jobs_is_not_that_in_which_keys_were_read(keyspace: tuple[Address, list[Entry]], tmp_path: Path) -> None:
    orders = []
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        orders.append([list(partition.in_order(reader(partition))) for partition in parts_of(*keyspace, folder, seed)])
    assert orders[0] == orders[1]


def test_a_table_that_is_not_taken_is_read_one_by_one(partitions: list[KeyRowJobs]) -> None:
    def waiting(table: JobTable) -> list[tuple[str, int | None, int | None]] | None:
        return all_of(table) if table.common.state is State.WAITING else None

    for partition in partitions:
        together = []
        for batch in partition.batches(lambda subject, partition=partition: both(reader(partition)(subject)), waiting):
            rows = dict(batch.singly)
            assert not any("state=<State.WAITING" in job for job, *_ in rows.values())
            rows |= {row: job for those, jobs in batch.tables for row, job in zip(those.tolist(), jobs, strict=True)}
            together += [rows[row] for row in range(len(rows))]
        assert together == list(map(both, partition.in_order(reader(partition))))


def test_only_some_jobs(partitions: list[KeyRowJobs]) -> None:
    for partition in partitions:
        subjects = list(partition.in_order(lambda subject: subject))
        wanted = [(subject.scope, subject.job_id) for subject in subjects[::7]]
        chosen = KeyRowJobs(partition.keyspace, partition.key_rows, partition.bucket, wanted)
        assert list(chosen.in_order(lambda subject: subject)) == subjects[::7]


def test_digests_of_tables_are_those_of_their_jobs(partitions: list[KeyRowJobs]) -> None:
    hasher = JobHasher(NATIVE)
    for partition in partitions:
        for table in filter(None, partition.in_any_order(lambda _: None, lambda table: [table])):
            digests = [
                JobDigest(
                    number_of(job.queue, job.id),
                    job.queue,
                    job.id,
                    job.position if job.state is State.WAITING else None,
                    table.scope,
                    job.id,
                    "7",
                    hasher.digest(job),
                )
                for job in jobs_of(table)
            ]
            assert digests_of(table, "7", hasher).equals(DIGESTS.batch(digests))


@pytest.mark.parametrize("keyspace", ["kue"], indirect=True)
def test_jobs_written_from_tables_are_those_written_one_by_one(partitions: list[KeyRowJobs], server: Server) -> None:
    """And in the same order: a partition that was written one way takes the other way's jobs for those it has."""
    ways: list[Callable[[JobTable], bool]] = [lambda _: True, lambda table: table.common.state is State.WAITING, lambda _: False]
    summaries, stored = [], []
    for number, first in enumerate(ways, 1):
        there = Address.parse(server.url(number))
        plan = Plan.between(partitions[0].key_rows.address, there, NOW)
        with open_store(there) as store:
            run = journal.begin(store, partitions[0].key_rows.address, there, plan, "spark/3", None)
            for way in (first, *ways):
                summaries.append(carried_over(partitions, plan, store, run, way))
        stored.append({key: value for key, value in dump(server.client(number)).items() if not key.startswith(JOURNAL.encode())})
    assert summaries[0].written == sum(len(list(partition.in_order(lambda _: None))) for partition in partitions)
    assert all(summary == summaries[0] for summary in summaries)
    assert stored[0] == stored[1] == stored[2]


def carried_over(
    partitions: list[KeyRowJobs], plan: Plan, store: Store, run: Run, is_table: Callable[[JobTable], bool]
) -> Summary:
    """Puts all jobs into their partitions, some from tables."""
    written, summary = Totals(), Summary()

    def one(subject: Subject) -> OutgoingJob:
        decision = decide(subject, partitions[0].keyspace, plan)
        assert decision.job is not None
        return OutgoingJob(decision, identity(decision.job), plan.commands(decision.job, fresh=True))

    def many(table: JobTable) -> OutgoingTable | None:
        found = decide_table(table, plan)
        assert found is not None
        decision, outgoing = found
        commands = plan.commands_of_table(outgoing, written, fresh=True)
        assert commands is not None
        return OutgoingTable(decision, outgoing.ids, commands) if is_table(table) else None

    for jobs in partitions:
        with open_partition(store, run, str(jobs.bucket)) as writer:
            for batch in jobs.batches(one, many):
                write_batch(writer, store, batch, summary)
            writer.close()
    return summary


def test_little_is_held_of_jobs_that_a_slab_does_not_want(partitions: list[KeyRowJobs], monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[tuple[pa.Table, Any]] = []
    monkeypatch.setattr(KeyRows, "_groups", lambda _, key_rows, jobs, __: batches.append((key_rows, jobs)) or [])
    for partition in partitions:
        list(partition.in_order(lambda _: None))
    for key_rows, jobs in batches:
        sizes, wanted = key_rows["size"].to_numpy() + placement_check.ROW_BYTES, jobs != placement_check.NOT_HERE
        assert sizes[~wanted].sum() <= placement_check.COPY_THRESHOLD * sizes.sum()
    assert batches


def test_facts_are_no_tables() -> None:
    subjects = [Subject("1", "", ()), Subject("2", "", ())]
    jobs = FactJobs(Keyspace(KUE, "q", NOW, Totals()), subjects)
    assert list(jobs.in_order(lambda subject: subject.job_id)) == ["1", "2"]
    assert list(FactJobs(jobs.keyspace, subjects).in_any_order(lambda subject: subject.job_id, lambda _: None)) == ["1", "2"]


# Work in the background


def test_what_is_done_beside_gives_its_result() -> None:
    with in_background(lambda _: 42) as (doing, _):
        pass
    assert doing.result() == 42


def test_an_error_of_what_is_done_beside_is_raised_where_the_block_tells_its_progress() -> None:
    def fail(_progress: Progress) -> None:
        raise ValueError("no")

    def go_on() -> None:
        with in_background(fail) as (doing, progress):
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
        assert begun.wait(60)
        raise KeyError

    with pytest.raises(KeyError), in_background(_busy(begun)) as (doing, _):
        give_up()
    assert isinstance(doing.exception(), Cancelled)


def test_an_interrupt_while_the_rest_is_waited_for_stops_it_too() -> None:
    begun, shown = threading.Event(), []

    def interrupt(*shown_at: object) -> None:
        shown.append(shown_at)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), in_background(_busy(begun), interrupt) as (doing, _):
        begun.wait(60)
    assert shown == [("working", 1, 2)]
    assert isinstance(doing.exception(), Cancelled)


def test_a_bucket_whose_result_is_kept_is_not_checked_again(
    partitions: list[KeyRowJobs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_rows = partitions[0].key_rows
    first = [key_rows.verify(bucket) for bucket in range(BUCKETS)]
    kept = evolve(key_rows, verified=tuple(placement_check.keep(found, str(tmp_path)) for found in first))
    monkeypatch.setattr(placement_check, "read_bucket", None)
    again = [kept.verify(bucket) for bucket in range(BUCKETS)]
    assert sum(len(verified.numbers) for verified in first) > 0
    for verified, same in zip(first, again, strict=True):
        assert all(map(np.array_equal, verified, same))
