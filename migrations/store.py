"""Store: the target as a migration writes to it, one server or all masters of a cluster, behind one face.

Whoever writes names a fence and commands; the store finds the node that applies both in one transaction. On one server any
commands go together. In a cluster those do whose keys share a hash tag, and their fence has keys with the same tag; a slot
that moves meanwhile is waited for. Called by partition_writer.py, journal.py and the engines.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import redis
from redis.crc import key_slot

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.connection.pipeline import PackedCommands, PipelineConnection, open_pipeline
from ..schema.connection.slot_map import REDIRECTIONS
from ..schema.errors import ServerError
from ..schema.family import Command, KeyFamily
from . import probes
from .cluster_scan import PAUSE, REST_SECONDS, Cluster
from .fence import Fence, WatchedFence, transact
from .slots import common_tag, keys_of, must_fit

T = TypeVar("T")


class Store(ABC):
    """Where jobs are written. Not for several threads."""

    @abstractmethod
    def tag(self, commands: Sequence[Command]) -> bytes | None:
        """The hash tag that the commands' keys share; None where it does not matter. Raises UsageError for several tags."""

    def apply(self, fence: Fence, commands: Sequence[Command]) -> list[Any]:
        """All commands at once, while the fence holds: see ``fence.transact``. In a cluster all keys lie in one slot."""
        return self.apply_packed(fence, [PackedCommands.of(commands)])

    @abstractmethod
    def apply_packed(self, fence: Fence, commands: Sequence[PackedCommands]) -> list[Any]:
        """``apply`` of all of these."""

    @abstractmethod
    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Commands without a fence, one reply each. In a cluster all keys lie in one slot. Raises the first error reply."""

    @abstractmethod
    def occupant(self, family: KeyFamily, prefix: str) -> bytes | None:
        """A key of the keyspace that speaks of a job or makes no sense; None if it is free for a migration."""

    @abstractmethod
    def clock_ms(self) -> int:
        """The server's time, Unix ms; in a cluster that of one master."""


class ServerStore(Store):
    """One server, or a Sentinel's master."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._watched = WatchedFence()

    def tag(self, commands: Sequence[Command]) -> bytes | None:
        return None

    def apply_packed(self, fence: Fence, commands: Sequence[PackedCommands]) -> list[Any]:
        with open_pipeline(self._client) as pipe:
            return transact(pipe, fence, commands, self._watched)

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        with open_pipeline(self._client) as pipe:
            return _replies(pipe, commands)

    def occupant(self, family: KeyFamily, prefix: str) -> bytes | None:
        return probes.occupant(self._client, family, prefix)

    def clock_ms(self) -> int:
        return probes.clock_ms(self._client)


class ClusterStore(Store):
    """All masters of a cluster."""

    def __init__(self, address: Address, cluster: Cluster) -> None:
        self._address = address
        self._cluster = cluster
        self._owners = cluster.refresh()

    def tag(self, commands: Sequence[Command]) -> bytes | None:
        return common_tag(commands)

    def apply_packed(self, fence: Fence, commands: Sequence[PackedCommands]) -> list[Any]:
        return self._at(fence[0].key, lambda pipe: transact(pipe, fence, commands))

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        return self._at(keys_of(commands[0])[0], lambda pipe: _replies(pipe, commands)) if commands else []

    def occupant(self, family: KeyFamily, prefix: str) -> bytes | None:
        return probes.first_occupant(self._cluster.entries(family.globs(prefix)), family, prefix)

    def clock_ms(self) -> int:
        return self._cluster.clock_ms()

    def _at(self, key: bytes, doing: Callable[[PipelineConnection], T]) -> T:
        """Does something at the node that has the key; if it turns out to have moved, at the one that has it then."""
        slot, deadline = key_slot(key), time.monotonic() + REST_SECONDS
        while True:
            owner = self._owners.get(slot)
            if owner is not None:
                with contextlib.suppress(*REDIRECTIONS), open_pipeline(self._cluster.client(owner)) as pipe:
                    return doing(pipe)
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self._address.display()}: slot {slot} has had no owner that takes writes for {REST_SECONDS:.0f} s; go on "
                    "with --resume when the cluster is sound"
                )
            time.sleep(PAUSE)
            self._owners = self._cluster.refresh()


def _replies(pipe: PipelineConnection, commands: Iterable[Command]) -> list[Any]:
    replies = pipe.call(commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


@contextlib.contextmanager
def open_store(address: Address) -> Iterator[Store]:
    """The target at an address, for the length of the block, in which a failing server is a ServerError that names the address.

    Raises UsageError for a cluster that can't hold the jobs of the address's family under its prefix.
    """
    if address.kind is Kind.CLUSTER:
        must_fit(address.key_family, address.prefix)
        with server_errors(address), Cluster(address) as cluster:
            yield ClusterStore(address, cluster)
        return
    with open_client(address) as client:
        yield ServerStore(client)
