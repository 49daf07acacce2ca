"""ClusterLink: the link to a Redis Cluster. Each call goes to the node that owns its keys; the nodes' redirections are followed.

All keys of a queue share a slot, and so do those of every other call, so a call is one node's business. While a slot moves from
one node to another, its nodes say TRYAGAIN: the link waits as long as it would for a reply. A node that can't be
reached is a connection error of the whole link, and the next one reads the map of slots anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from ...schema.connection.call import Argument, Call, Command
from ...schema.connection.slot_map import REDIRECTIONS, Node, SlotMap
from ...schema.text import to_bytes
from ..errors import CONNECTION_ERRORS, Unavailable
from .link import AnyCall, NodeLink, ServerLink

RETRY_INTERVAL = 0.05
"""Seconds between attempts while a slot is on the move."""


class ClusterLink(ServerLink):
    """A connection to each node that is needed."""

    def __init__(self, seeds: Sequence[Node], client_of: Callable[[str, int], redis.Redis], timeout: float) -> None:
        super().__init__()
        self._slots = SlotMap(seeds)
        self._client_of = client_of
        self._timeout = timeout
        """Seconds for which calls may be sent from one node to another."""
        self._links: dict[Node, NodeLink] = {}

    @property
    def slots_version(self) -> int:
        """Grows with each change of the map of slots."""
        return self._slots.version

    def replies(self, calls: Sequence[AnyCall]) -> list[Any]:
        with self._lock:
            found: dict[int, Any] = {}
            pending = list(range(len(calls)))
            deadline = time.monotonic() + self._timeout
            while pending:
                self._send_to_owners(calls, pending, found)
                pending = [at for at in pending if isinstance(found[at], REDIRECTIONS)]
                if pending and time.monotonic() > deadline:
                    raise Unavailable(f"the cluster did not come to rest: {found[pending[0]]}")
                self._follow(calls, pending, found)
                pending = [at for at in pending if isinstance(found[at], REDIRECTIONS)]
            return [found[at] for at in range(len(calls))]

    def run_confirmed(self, calls: Sequence[AnyCall], confirmation: Command[int]) -> tuple[list[Any], int]:
        with self._lock:
            results = self.run_all(calls)
            nodes = {self.owner(key_of(call)) for call in calls}
            replies = [reply for node in sorted(nodes) for reply in self._send_to(node, [confirmation])]
            self._raise_first(replies)
        return results, min(map(confirmation.parse, replies))

    def _send_to_owners(self, calls: Sequence[AnyCall], which: Sequence[int], found: dict[int, Any]) -> None:
        by_node: dict[Node, list[int]] = {}
        for at in which:
            by_node.setdefault(self.owner(key_of(calls[at])), []).append(at)
        for node, those in by_node.items():
            found.update(zip(those, self._send_to(node, [calls[at] for at in those]), strict=True))

    def _follow(self, calls: Sequence[AnyCall], which: Sequence[int], found: dict[int, Any]) -> None:
        """Does what the redirections say; those that only say TRYAGAIN stay as they are."""
        errors = [found[at] for at in which]
        for at, error in zip(which, errors, strict=True):
            if isinstance(error, AskError) and not isinstance(error, MovedError):
                call = calls[at]
                words = call.eval() if isinstance(call, Call) else call.words
                _, found[at] = self._send_to((error.host, error.port), [_plain("ASKING"), _plain(*words)])
        if any(isinstance(error, (TryAgainError, ClusterDownError)) for error in errors):
            time.sleep(RETRY_INTERVAL)
        if any(isinstance(error, (MovedError, ClusterDownError)) for error in errors):
            self._read_map()

    def _send_to(self, node: Node, calls: Sequence[AnyCall]) -> list[Any]:
        try:
            return self._link(node).replies(calls)
        except CONNECTION_ERRORS:
            self.failed = True
            raise

    def _link(self, node: Node) -> NodeLink:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = NodeLink(self._client_of(*node))
        return link

    def owner(self, key: bytes) -> Node:
        """The node that has a key. Raises connection errors."""
        with self._lock:
            if not self._slots.owners:
                self._read_map()
            slot = key_slot(key)
            if slot not in self._slots.owners:
                raise Unavailable(f"slot {slot} of the cluster belongs to no node")
            return self._slots.owners[slot]

    def _read_map(self) -> None:
        """Asks any node for the owners of all slots. Raises the last connection error when none answers."""
        try:
            self._slots.refresh(self._ask_slots, known=self._links)
        except CONNECTION_ERRORS:
            self.failed = True
            raise

    def _ask_slots(self, node: Node) -> Sequence[Any]:
        link = NodeLink(self._client_of(*node))
        try:
            ranges: Sequence[Any] = link.command("CLUSTER", "SLOTS")
            return ranges
        finally:
            link.close()

    def scan(self, pattern: str) -> Iterator[bytes]:
        with self._lock:
            if not self._slots.owners:
                self._read_map()
            nodes = self._slots.masters()
        for node in nodes:
            yield from self._link(node).scan(pattern)

    def reopen(self) -> None:
        with self._lock:
            self.close()
            self.failed = False
            self._read_map()

    def close(self) -> None:
        with self._lock:
            for link in self._links.values():
                link.close()
            self._links.clear()


def key_of(call: AnyCall) -> bytes:
    """A key that stands for all keys of a call: they share a slot."""
    if isinstance(call, Call):
        return call.keys[0]
    words = call.words
    word = words[words.index("STREAMS") + 1] if words[0] == "XREAD" else words[1]
    return word if isinstance(word, bytes) else to_bytes(str(word))


def _plain(*words: Argument) -> Command[Any]:
    return Command(words, lambda reply: reply)
