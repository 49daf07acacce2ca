"""Key scan: the names of a keyspace's keys, each once, in partitions for as many tasks.

    ranges of cursors -> keys, by the bucket of each (shuffle.py) -> distinct keys of a bucket, neighbours side by side

Two ranges may both find a key at their border, and what is read twice is counted twice: so no value is read before all keys are
known. Names that end alike in numbers that follow one another are of keys that were made one after the other, and lie side by
side in the server's memory, most likely: it answers a third sooner about them than about keys in the order of a scan. Only reads
from the server. Called by snapshot.py and by the data source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import redis
from attrs import define, field, frozen

from ...schema.columnar.binary_views import MOST_DIGITS, BinaryViews, concat, fnv1a
from ...schema.columnar.jit import BYTE_ARRAY, INT_ARRAY, OUT_INTS, helper, kernel
from ...schema.connection.address import Address, Kind
from ...schema.connection.connect import open_client, server_errors
from ...schema.connection.slot_map import Node
from ..cluster_scan import Cluster
from ..prefiltering_reader import has_prefilter
from ..scan import SCAN_COUNT, Span, node, same_server, scan_range, split
from ..source import open_source
from ..throttle import Throttle
from . import Progress, silent, storage
from .failures import located, work_errors
from .runner import Runner, Task
from .shuffle import ShuffleFile, read_bucket

KEYS_A_TASK = 20_000
PREFILTERED_KEYS_A_TASK = 75_000
"""How many keys a task reads, or jobs it works on, as long as that makes no more than MAX_TASKS; more where most cost little."""
DIGEST_FACTOR = 2
"""How many times as large the batches of a verification are (placement_check.py): it keeps a digest of each job, and not its
commands. What is done once for all jobs alike in a batch is a sixth of Python's work."""
DIGEST_SHARE = 4 / 3
"""How many times as many prefiltered ones a task of a verification has: most often no more than one of its batches holds."""
BYTES_A_KEY = 1_400
"""What a job fills of a server's memory, about. Where few keys hold many jobs this tells how many tasks there should be, up to
MOST_BY_BYTES: other keys may be what fills it."""
LEAST_KEYS_A_PROCESS = 5_000
"""Keys for which one more process takes no longer to begin than it spares."""
MAX_TASKS = 1024
MOST_BY_BYTES = 64
ROWS = 40_000
"""Keys that go to a file at once."""
PAGE = 10_000
"""Keys that are read together."""
KEYS_SORTED_TOGETHER = 250_000
"""Keys that are asked for when so many have been named, in the order of the server's memory: of a range with many of a
keyspace's keys the server sends them a third sooner so."""
SCHEMA = pa.schema([("number", pa.int64()), ("key", pa.binary())])
"""``number``: that of a neighbourhood."""
BLOCK = 256
"""Keys whose names end in so many numbers that follow one another are neighbours."""


@frozen
class KeyList:
    """All keys. A plain value: it travels to executors."""

    folder: str
    files: tuple[str, ...]
    partitions: int

    def of(self, partition: int) -> Iterator[BinaryViews]:
        """The keys of a partition, a page at a time."""
        found = [rows.column("key") for rows in read_bucket(self.files, partition, self.partitions, SCHEMA)]
        # As Arrow's texts they take little more than their bytes.
        distinct = BinaryViews.from_arrow(pa.chunked_array(found, pa.binary()).unique())
        del found  # and with it the files
        ordered = in_memory_order(distinct)
        for start in range(0, len(ordered), PAGE):
            yield ordered.slice(start, start + PAGE)

    def remove(self) -> None:
        """Deletes them."""
        storage.delete_folder(self.folder)


def list_keys(
    runner: Runner, address: Address, throttle: Throttle, folder: str, tasks: int, progress: Progress = silent
) -> KeyList:
    """Scans a keyspace by about so many tasks, and cuts its keys into as many partitions.

    The keys are in the new ``folder``, which the executors share. Raises ServerError.
    """
    with work_errors(folder):
        storage.make_folder(folder)
    ranges = scan_ranges(address, tasks)
    task = _scan_task(address, throttle, ranges, folder, tasks)
    files = runner.run(task, len(ranges), f"scanning {address.family} keys", progress)
    return KeyList(folder, tuple(sorted(files)), tasks)


def _scan_task(address: Address, throttle: Throttle, ranges: list[ScanRange], folder: str, buckets: int) -> Task:
    """The task that scans a range, and leaves its keys in a file; it returns the path of the file."""
    globs = address.key_family.globs(address.prefix)
    count = throttle.page(SCAN_COUNT)

    def scan(index: int) -> str:
        path = storage.new_name(folder)
        with work_errors(folder), contextlib.closing(ShuffleFile(path, SCHEMA, buckets)) as file:
            keys: list[bytes] = []
            each = ranges[index]
            work = f"scanning range {index + 1} of {len(ranges)} of {each.display(address)}"
            with located(work), each.client(address) as client, same_server(client, each.run_id):
                for page in scan_range(client, each.span, globs, count):
                    keys += page
                    if len(keys) >= ROWS:
                        file.write(_batch(keys))
                        keys = []
            file.write(_batch(keys))
        return path

    return scan


def _batch(keys: list[bytes]) -> pa.RecordBatch:
    column = pa.array(keys, pa.binary())
    views = BinaryViews.from_arrow(column)
    neighbourhoods = views.fill(np.empty(len(views), np.int64), _neighbourhoods)
    return pa.RecordBatch.from_arrays([pa.array(neighbourhoods), column], schema=SCHEMA)


def in_memory_order(keys: BinaryViews) -> BinaryViews:
    """The keys in the order in which they lie in the server's memory, most likely."""
    return keys.take(np.argsort(_numbers(keys), kind="stable"))


def sorted_in_chunks(pages: Iterable[BinaryViews]) -> Iterator[BinaryViews]:
    """The keys of many pages at once, neighbours side by side."""
    keys: list[BinaryViews] = []
    for page in pages:
        keys.append(page)
        if sum(map(len, keys)) >= KEYS_SORTED_TOGETHER:
            yield in_memory_order(concat(keys))
            keys = []
    if keys:
        yield in_memory_order(concat(keys))


def merge_streams(streams: Iterable[Iterator[BinaryViews]]) -> Iterator[BinaryViews]:
    """The keys of all streams, neighbours side by side where the numbers of each stream rise. Keeps some pages of each."""
    those = list(map(_Stream, streams))
    while those := [stream for stream in those if stream.has_keys()]:
        bound = min(int(stream.numbers.max()) for stream in those)
        yield in_memory_order(concat([stream.up_to(bound) for stream in those]))


@define
class _Stream:
    """Pages of keys, of which the next one is read when those of the last have been taken."""

    pages: Iterator[BinaryViews]
    keys: BinaryViews = field(factory=lambda: BinaryViews.of([]))
    numbers: Any = None

    def has_keys(self) -> bool:
        """Whether there are any that have not been taken."""
        while not len(self.keys):
            page = next(self.pages, None)
            if page is None:
                return False
            self.keys, self.numbers = page, _numbers(page)
        return True

    def up_to(self, bound: int) -> BinaryViews:
        """Takes those with a number up to this one."""
        are_due = self.numbers <= bound
        due = self.keys.take(are_due)
        self.keys, self.numbers = self.keys.take(~are_due), self.numbers[~are_due]
        return due


def _numbers(names: BinaryViews) -> Any:
    return names.fill(np.empty(len(names), np.int64), _trailing_numbers)


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _trailing_numbers(data: Any, starts: Any, sizes: Any, numbers: Any) -> None:
    """Fills in the last digits of each name as a number; 18 of them count."""
    for row in range(len(starts)):
        _, numbers[row] = _trailing_number(data, starts[row], sizes[row])


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _neighbourhoods(data: Any, starts: Any, sizes: Any, neighbourhoods: Any) -> None:
    """Fills in the neighbourhood of each name."""
    for row in range(len(starts)):
        first, number = _trailing_number(data, starts[row], sizes[row])
        # With the same text before them, these are whole numbers in a row, which buckets take in turn.
        before = fnv1a(data, starts[row], first)
        neighbourhoods[row] = np.int64(before >> np.uint64(2)) + number // BLOCK


@helper
def _trailing_number(data: Any, start: int, size: int) -> Any:
    """How many bytes of a name stand before its last digits (all, if it has none), and the number that these are."""
    end = start + size
    while end > start and not 48 <= data[end - 1] <= 57:
        end -= 1
    if end == start:
        return size, np.int64(0)
    first = end
    while first > start and end - first < MOST_DIGITS and 48 <= data[first - 1] <= 57:
        first -= 1
    number = np.int64(0)
    for index in range(first, end):
        number = number * 10 + (data[index] - 48)
    return first - start, number


def task_count(address: Address, times: float = 1) -> int:
    """Into how many partitions the work on a keyspace is best cut. ``times``: of so many times as many prefiltered keys."""
    with open_source(address) as source:
        share = int(times * PREFILTERED_KEYS_A_TASK) if has_prefilter(address) else KEYS_A_TASK
        by_bytes = min(MOST_BY_BYTES, source.memory() // (share * BYTES_A_KEY))
        return min(MAX_TASKS, max(source.size() // share, by_bytes) + 1)


def round_to_cores(tasks: int, cores: int) -> int:
    """About so many tasks, of which all cores have the same number: three on two cores take as long as four."""
    return tasks if tasks <= cores else (tasks + (cores - 1) // 2) // cores * cores


def parts_for_cores(address: Address, cores: int) -> int:
    """How many cores have enough to do in a keyspace, where a task more costs no more than a process: at least one."""
    with open_source(address) as source:
        return min(cores, source.size() // LEAST_KEYS_A_PROCESS) or 1


@frozen
class ScanRange:
    """What one task scans: a span of the keys of one node."""

    span: Span
    run_id: str | None
    node: Node | None = None
    """None: the one server of the address."""

    def display(self, address: Address) -> str:
        """Where it lies, for people."""
        return ":".join(map(str, self.node)) if self.node else address.display()

    @contextlib.contextmanager
    def client(self, address: Address) -> Iterator[redis.Redis]:
        """A client for the node."""
        if self.node is None:
            with open_client(address) as client:
                yield client
            return
        with server_errors(address), Cluster(address) as cluster:
            yield cluster.client(self.node)


def scan_ranges(address: Address, number: int) -> list[ScanRange]:
    """The ranges, about this many, that together find every key: at least one for each master of a cluster."""
    if address.kind is not Kind.CLUSTER:
        with open_client(address) as client:
            run_id = node(client).run_id
            return [ScanRange(span, run_id) for span in split(client, number)]
    with server_errors(address), Cluster(address) as cluster:
        masters = cluster.masters()
        share = number // len(masters) + 1
        run_ids = {name: node(cluster.client(name)).run_id for name in masters}
        return [ScanRange(span, run_ids[name], name) for name in masters for span in cluster.spans(name, share)]
