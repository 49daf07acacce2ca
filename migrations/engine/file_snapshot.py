"""FileSnapshot: a keyspace read key by key in parallel, and kept as files of facts and of key rows, by job.

    keys (key_scan.py) -> values -> facts (fact_files.py) and key rows (key_rows.py), and totals -> jobs of a partition (jobs.py)
    pieces of RDB files (files.py) -------^

No task holds more than a batch, and nothing but totals passes through the driver. Only reads from the server.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from attrs import evolve, frozen

from ...schema.columnar.binary_views import BinaryViews
from ...schema.connection.address import Address, Kind
from ...schema.connection.connect import open_client, server_errors
from ...schema.connection.pipeline import PipelineConnection, open_pipeline
from ...schema.errors import ServerError
from ...schema.fact import Fact
from ...schema.family import Keyspace
from ...schema.rule import Finding
from ...schema.totals import Totals
from ..cluster_scan import Cluster
from ..columnar.hashes import read_hashes, read_lists
from ..columnar.resp_views import RespReader
from ..columnar.zsets import read_zset
from ..fact_reader import FactReader, NewFactReader, ReadSummary
from ..prefiltering_reader import facts_of_mismatches, has_prefilter
from ..reading import SetAside, no_guess, read_all
from ..scan import node, nothing_expires
from ..throttle import UNTHROTTLED, Throttle
from . import Census, Progress, silent, storage
from .fact_files import BY_JOB, FactFiles, FactWriter, WriteFacts
from .failures import work_errors
from .job_selection import JobSelection
from .jobs import FactJobs
from .key_row_jobs import KeyRowJobs
from .key_rows import KeyRowWriter
from .key_scan import KeyList, list_keys
from .longkeys import LongKeys, cursors_are_positions, read_long_keys
from .output import Output
from .placement_check import KeyRows, keep
from .resume import COMPLETE, SUMMARIES
from .runner import Runner, Task
from .snapshot import Snapshot, Work
from .step import RowsInFiles, run_step
from .tables import Table

T = TypeVar("T")

ACCEPTED_PREFIX = "sound-"
"""Before the number of a partition, where its jobs are no facts."""
TOGETHER = 10_000
"""Jobs of facts that are held at once: enough for tables of most kinds."""


@frozen
class FileSnapshot(Snapshot):
    """The facts of a keyspace in a folder, and the key rows of the jobs that became none."""

    facts: FactFiles
    has_facts: bool = False
    """There are facts about jobs."""
    key_rows: KeyRows | None = None
    """Of jobs in which no rule can find anything, and which are no facts (placement_check.py)."""

    @property
    def partitions(self) -> list[str]:
        partitions = self._of_facts
        return [*partitions, *map(ACCEPTED_PREFIX.__add__, partitions)] if has_prefilter(self.address) else partitions

    @property
    def _of_facts(self) -> list[str]:
        return [str(partition) for partition in range(self.tasks)]

    def known(self) -> Callable[[], Keyspace]:
        """What a task knows of the keyspace, as a plain value that travels to executors."""
        return partial(_known, self.address, self.now_ms, self.totals.to_json())

    def work(
        self,
        work: Work[T],
        table: Table[T],
        path: str,
        phase: str,
        progress: Progress = silent,
        only: JobSelection | None = None,
    ) -> RowsInFiles[T]:
        """See Snapshot.work. ``only``: on these jobs. Jobs that are facts and those that are none are partitions of their own."""
        return self._work(self._not_accepted + self._accepted, work, table, path, phase, progress, only)

    def check(self, work: Work[T], table: Table[T], path: str, progress: Progress = silent) -> RowsInFiles[T]:
        return self._work(self._not_accepted, work, table, path, "checking jobs", progress)

    @property
    def _not_accepted(self) -> list[str]:
        return self._of_facts if self.has_facts else []

    @property
    def _accepted(self) -> list[str]:
        return [] if self.key_rows is None else list(map(ACCEPTED_PREFIX.__add__, self._of_facts))

    def _work(
        self,
        partitions: Sequence[str],
        work: Work[T],
        table: Table[T],
        path: str,
        phase: str,
        progress: Progress,
        only: JobSelection | None = None,
    ) -> RowsInFiles[T]:
        known, facts, key_rows, tasks = self.known(), self.facts, self.key_rows, self.tasks  # the runner stays here

        def task(part: int) -> Output[T]:
            name, bucket = partitions[part], part % tasks
            ids = None if only is None else only.ids(name)
            if key_rows is not None and name.startswith(ACCEPTED_PREFIX):
                return work(name, KeyRowJobs(known(), key_rows, bucket, ids))
            subjects = facts.subjects(bucket)
            if ids is not None:
                subjects = (subject for subject in subjects if (subject.scope, subject.job_id) in ids)
            return work(name, FactJobs(known(), subjects, TOGETHER))

        return run_step(self.runner, task, len(partitions), table, path, phase, progress)


def take(
    runner: Runner,
    address: Address,
    now_ms: int,
    path: str,
    tasks: int,
    progress: Progress = silent,
    throttle: Throttle = UNTHROTTLED,
    *,
    prefiltering: bool = True,
    for_transfer: bool = False,
) -> FileSnapshot:
    """Reads a keyspace into the new folder ``path`` by about so many tasks, a server no faster than ``throttle``.

    ``prefiltering``: jobs in which no rule can find anything need not become facts, or, if ``for_transfer``, no rule that
    refuses. Raises ServerError when the source fails or is replaced meanwhile.
    """
    remarks: list[Finding] = []
    with work_errors(path):
        storage.make_folder(path)
    new_reader: NewFactReader = partial(FactReader, address)
    if prefiltering and has_prefilter(address):
        new_reader = partial(KeyRowWriter, address, now_ms, path, tasks, for_transfer=for_transfer)
    write = FactWriter(path, tasks)
    if address.kind is Kind.RDB:
        from .files import read_files  # its kernels take a tenth of a second to load

        summaries, remarks = read_files(runner, address, now_ms, tasks, progress, new_reader, write)
    else:
        with _same_servers(address), _at_rest(address):
            share = throttle.shared(runner.cores)
            keys = list_keys(runner, address, throttle, storage.join(path, "names"), tasks, progress)
            task = _read_task(address, share, new_reader, write, keys, cursors_are_positions(address))
            summaries = runner.run(task, keys.partitions, f"reading {address.family} keys", progress)
            with work_errors(path):
                keys.remove()
            summaries += read_long_keys(runner, address, share, summaries, new_reader, write, progress)
    with work_errors(path):
        storage.write(storage.join(path, SUMMARIES), json.dumps(summaries).encode())
        storage.write(storage.join(path, COMPLETE), b"")
    return snapshot_of(runner, address, now_ms, tasks, path, summaries, remarks, progress)


def reopen(runner: Runner, address: Address, now_ms: int, tasks: int, path: str) -> FileSnapshot:
    """The snapshot in a folder, as it was taken for the same address, moment and number of tasks."""
    with work_errors(path):
        summaries = json.loads(storage.read(storage.join(path, SUMMARIES)))
    return snapshot_of(runner, address, now_ms, tasks, path, summaries)


def snapshot_of(
    runner: Runner,
    address: Address,
    now_ms: int,
    tasks: int,
    path: str,
    summaries: Sequence[str],
    remarks: Sequence[Finding] = (),
    progress: Progress = silent,
) -> FileSnapshot:
    """The snapshot in the files of which the summaries of those who read it tell."""
    read_summary = ReadSummary.of(summaries)
    snapshot = FileSnapshot(
        runner,
        address,
        now_ms,
        tasks,
        read_summary.totals,
        read_summary.has_content,
        tuple(remarks),
        read_summary.left,
        Census(),
        FactFiles.of(read_summary.facts, tasks),
        read_summary.about_jobs > 0,
    )
    if read_summary.files:
        snapshot = _with_key_rows(snapshot, KeyRows.of(address, now_ms, read_summary, tasks), path, progress)
    if read_summary.references:
        snapshot = evolve(snapshot, facts=snapshot.facts.with_references(runner, address, path, progress))
    return snapshot


def _with_key_rows(snapshot: FileSnapshot, key_rows: KeyRows, path: str, progress: Progress) -> FileSnapshot:
    """The snapshot with jobs that pass the placement check as key rows; those that don't are facts."""
    verify = partial(_verify, key_rows, path)
    found = list(map(json.loads, snapshot.runner.run(verify, snapshot.tasks, "comparing places", progress, light=True)))
    accepted = Census()
    for each in found:
        accepted.merge(Census.from_json(each["census"]))
    files = sorted(path for each in found for path in each["facts"])
    facts = snapshot.facts.plus(files)
    key_rows = evolve(key_rows, verified=tuple(each["verified"] for each in found))
    return evolve(snapshot, key_rows=key_rows, facts=facts, accepted=accepted, has_facts=snapshot.has_facts or bool(files))


def _verify(key_rows: KeyRows, path: str, bucket: int) -> str:
    """Finds and counts the verified jobs of a bucket, and makes facts of its mismatches."""
    verified = key_rows.verify(bucket)
    facts = facts_of_mismatches(key_rows.mismatches(bucket, verified), key_rows.address, key_rows.prefilter())
    files = BY_JOB.write(facts, path, key_rows.buckets)
    return json.dumps({"census": key_rows.census(verified).to_json(), "facts": files, "verified": keep(verified, path)})


@contextlib.contextmanager
def _same_servers(address: Address) -> Iterator[None]:
    """Checks that who answers after the block is who answered before it: what tasks read in between may come from either.

    Raises ServerError if not.
    """
    before = _run_ids(address)
    yield
    if _run_ids(address) != before:
        raise ServerError(
            f"{address.display()}: the server was restarted or failed over while it was read, so keys may be missing; try again"
        )


def _run_ids(address: Address) -> set[str | None]:
    """Of the server, or of all masters of a cluster."""
    if address.kind is not Kind.CLUSTER:
        with open_client(address) as client:
            return {node(client).run_id}
    with server_errors(address), Cluster(address) as cluster:
        return {node(cluster.client(name)).run_id for name in cluster.masters()}


@contextlib.contextmanager
def _at_rest(address: Address) -> Iterator[None]:
    """Checks that no slot of a cluster moves during the block: its keys may have been missed. Raises ServerError if one does."""
    if address.kind is not Kind.CLUSTER:
        yield
        return
    with server_errors(address), Cluster(address) as cluster:
        before = cluster.at_rest()
        yield
        cluster.must_own(before)


def _known(address: Address, now_ms: int, totals: str) -> Keyspace:
    return Keyspace(address.key_family, address.prefix, now_ms, Totals.from_json(totals))


def _read_task(
    address: Address, throttle: Throttle, new_reader: NewFactReader, write: WriteFacts, keys: KeyList, by_cursor: bool
) -> Task:
    """The task that reads the keys of a partition, for a FactReader to make facts of; long keys it sets aside."""

    def read(partition: int) -> str:
        reader, longs = new_reader(), LongKeys(by_cursor)

        def facts() -> Iterator[Fact]:
            reading = _of_cluster if address.kind is Kind.CLUSTER else _of_server
            yield from reading(address, throttle, keys.of(partition), reader, longs)
            yield from reader.rest()

        return json.dumps(write(facts(), reader) | longs.to_json())

    return read


def _of_server(
    address: Address, throttle: Throttle, pages: Iterator[BinaryViews], reader: FactReader, longs: LongKeys
) -> Iterator[Fact]:
    pace = throttle.pace()
    with open_client(address) as client, open_pipeline(client) as pipe:
        replies = RespReader(pipe, no_ttls=nothing_expires(client, address.db))
        for keys in pages:
            others: list[bytes] = []
            if isinstance(reader, KeyRowWriter):
                are_records, are_lists = reader.guess(keys)
                for hashes, left in read_hashes(replies, keys.take(are_records), pace):
                    yield from reader.hashes(hashes)
                    others += left
                for lists, left in read_lists(replies, keys.take(are_lists), pace):
                    yield from reader.lists(lists)
                    others += left
                keys = keys.take(~(are_records | are_lists))
            others += keys.to_list()
            zsets: list[tuple[bytes, int | None]] = []
            for entry in chain.from_iterable(read_all(pipe, others, pace, no_guess, _setting_aside(longs, reader, zsets))):
                yield from reader.facts(entry)
            if isinstance(reader, KeyRowWriter):
                for key, ttl_ms in zsets:
                    for chunk in pace.through(read_zset(replies, key, ttl_ms, throttle.sizes)):
                        yield from reader.zset(chunk)


def _setting_aside(longs: LongKeys, reader: FactReader, zsets: list[tuple[bytes, int | None]]) -> SetAside:
    """Sets long keys aside, and leaves zsets of more than a chunk to who can read them as columns."""

    def set_aside(pipe: PipelineConnection, key: bytes, redis_type: str, ttl_ms: int | None) -> bool:
        if longs.set_aside(pipe, key, redis_type, ttl_ms):
            return True
        if redis_type != "zset" or not isinstance(reader, KeyRowWriter):
            return False
        zsets.append((key, ttl_ms))
        return True

    return set_aside


def _of_cluster(
    address: Address, throttle: Throttle, pages: Iterator[BinaryViews], reader: FactReader, longs: LongKeys
) -> Iterator[Fact]:
    with server_errors(address), Cluster(address, throttle) as cluster:
        for page in pages:
            for entry in chain.from_iterable(cluster.read(page.to_list(), is_hash=reader.is_record, set_aside=longs.set_aside)):
                yield from reader.facts(entry)
