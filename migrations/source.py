"""Source: where a keyspace is read from, a server, a cluster or snapshot files, behind one face.

Engines that read serially, and whoever only asks for the time, need not know which it is. Spark, which reads in parts side by
side, does know, and uses ``scan`` and ``rdbfile`` themselves. Only reads.
"""

from __future__ import annotations

import contextlib
import glob
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import redis

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.errors import KeyspaceNotFound, UsageError
from ..schema.fact import Entry
from ..schema.rule import Finding, Severity
from .cluster_scan import Cluster
from .probes import clock_ms, memory, nothing_found, size
from .rdbfile import NEWEST, RdbFile
from .reading import Guess, no_guess
from .scan import POSITIONS, Cursors, entries, node, position
from .throttle import UNTHROTTLED, Throttle


class Source(ABC):
    """One keyspace that can be read."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._share: float | None = None

    @abstractmethod
    def clock_ms(self) -> int:
        """The moment to which what is read belongs, Unix ms."""

    @abstractmethod
    def size(self) -> int:
        """About how many keys there are to read, those of others included."""

    def memory(self) -> int:
        """About how many bytes of servers' memory hold these; 0 where nobody says."""
        return 0

    @abstractmethod
    def entries(self, now_ms: int, is_hash: Guess = no_guess) -> Iterator[list[Entry]]:
        """Every key of the family's keyspace, each once, and perhaps others; large ones in several entries.

        ``now_ms``: what times to live are counted from in a snapshot. ``is_hash``: as for ``read_entries``. Raises ServerError
        when the source proves not to be whole.
        """

    def share(self) -> float | None:
        """How much of all there is to read has been read, from 0 to 1; None while nobody can say."""
        return self._share

    def _pass(self, share: float) -> None:
        self._share = share

    def expected(self, keys: int) -> int | None:
        """About how many keys the keyspace has, when so many have been read: what progress is measured by."""
        share = self.share()
        return max(keys, round(keys / share)) if share else None

    def remarks(self) -> list[Finding]:
        """What there is to say of the source itself, after all entries have been read."""
        return []

    @abstractmethod
    def nothing_found(self) -> KeyspaceNotFound:
        """The error for a keyspace without a key."""


class LiveSource(Source):
    """A server."""

    def __init__(self, address: Address, client: redis.Redis, throttle: Throttle) -> None:
        super().__init__(address)
        self._client = client
        self._throttle = throttle

    def clock_ms(self) -> int:
        return clock_ms(self._client)

    def size(self) -> int:
        return size(self._client)

    def memory(self) -> int:
        return memory(self._client)

    def entries(self, now_ms: int, is_hash: Guess = no_guess) -> Iterator[list[Entry]]:
        family, prefix = self.address.key_family, self.address.prefix
        # Keys of others are scanned too and not seen: the position of the scan tells better than any number of keys.
        passed = self._pass_cursor if node(self._client).cursors is Cursors.POSITIONS else None
        return entries(self._client, family, prefix, throttle=self._throttle, passed=passed, is_hash=is_hash)

    def _pass_cursor(self, cursor: int) -> None:
        self._pass(position(cursor) / POSITIONS if cursor else 1.0)

    def nothing_found(self) -> KeyspaceNotFound:
        return nothing_found(self._client, self.address)


class ClusterSource(Source):
    """All masters of a cluster."""

    def __init__(self, address: Address, cluster: Cluster) -> None:
        super().__init__(address)
        self._cluster = cluster

    def clock_ms(self) -> int:
        return self._cluster.clock_ms()

    def size(self) -> int:
        return self._cluster.size()

    def memory(self) -> int:
        return self._cluster.memory()

    def entries(self, now_ms: int, is_hash: Guess = no_guess) -> Iterator[list[Entry]]:
        return self._cluster.entries(self.address.key_family.globs(self.address.prefix), is_hash, self._pass)

    def nothing_found(self) -> KeyspaceNotFound:
        address = self.address
        return KeyspaceNotFound(
            f"{address.display()}: no {address.family} keys under prefix {address.prefix!r} among the {self.size()} keys of the "
            "cluster; check prefix and family"
        )


class FileSource(Source):
    """Snapshot files: one, or those of all shards of a cluster."""

    def __init__(self, address: Address, files: list[RdbFile]) -> None:
        super().__init__(address)
        self._files = files

    def clock_ms(self) -> int:
        return max(file.written_at_ms for file in self._files)

    def size(self) -> int:
        return sum(file.size for file in self._files)

    def entries(self, now_ms: int, is_hash: Guess = no_guess) -> Iterator[list[Entry]]:
        for file in self._files:
            yield from file.entries(self.address.db, now_ms)

    def share(self) -> float | None:
        return sum(file.passed for file in self._files) / sum(file.length for file in self._files)

    def remarks(self) -> list[Finding]:
        newer = [remark for file in self._files for remark in newer_version(file)]
        return [*newer, *(remark for file in self._files for remark in unread_keys(file.path, file.announced, file.keys))]

    def nothing_found(self) -> KeyspaceNotFound:
        address = self.address
        return KeyspaceNotFound(
            f"{address.display()}: no {address.family} keys under prefix {address.prefix!r} in database {address.db} of "
            f"{len(self._files)} snapshot file(s); check prefix, family and database number (?db=)"
        )


def snapshot_paths(address: Address) -> list[str]:
    """The files that an ``ferryman+rdb://`` address names: its path may be a pattern. Raises UsageError if there are none."""
    paths = [address.path] if not glob.has_magic(address.path) else sorted(glob.glob(address.path))
    if not paths:
        raise UsageError(f"{address.display()}: no file fits this pattern")
    return paths


def open_file(path: str, address: Address) -> RdbFile:
    """One of the files that an address names. Raises UsageError and ServerError."""
    return RdbFile(path, is_checked=address.options.get("checksum", True))


@contextlib.contextmanager
def open_source(address: Address, throttle: Throttle = UNTHROTTLED) -> Iterator[Source]:
    """The source at an address, open for the length of the block; files know no throttle.

    Raises UsageError and ServerError that name it.
    """
    if address.kind is Kind.RDB:
        with contextlib.ExitStack() as stack:
            yield FileSource(address, [stack.enter_context(open_file(path, address)) for path in snapshot_paths(address)])
        return
    if address.kind is Kind.CLUSTER:
        with server_errors(address), Cluster(address, throttle) as cluster:
            yield ClusterSource(address, cluster)
        return
    with open_client(address) as client:
        yield LiveSource(address, client, throttle)


def unread_keys(path: str | Path, announced: int, keys: int) -> list[Finding]:
    """The remark that a file holds more keys than could be read; nothing if it does not."""
    unread = announced - keys
    if unread <= 0:
        return []
    are = "key of {} is a stream, an array or of a module" if unread == 1 else "keys of {} are streams, arrays or of modules"
    return [
        Finding("RDB-1", Severity.INFO, None, "", None, f"{unread} {are.format(path)}: not read; no queue keeps jobs in these")
    ]


def newer_version(file: RdbFile) -> list[Finding]:
    """The remark that a newer server has written a file than ferryman knows; nothing for any other file."""
    if not file.is_newer:
        return []
    detail = f"{file.path} has RDB version {file.version}; ferryman knows 1 to {NEWEST}, and each record that it has read"
    return [Finding("RDB-2", Severity.WARNING, None, "", None, detail)]
