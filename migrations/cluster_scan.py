"""ClusterScan: every key of a Redis Cluster, each once, also while slots move from one node to another.

Each master is scanned in turn, and each key is read from the node that owns it then. A slot that moves during the scan may
move past it: from a node that is still to be scanned to one that has been. So the map of slots is compared before and after,
and the slots that have moved are looked at again, at their new owners, until the map has stood still meanwhile. A slot whose
move is under way belongs to two nodes: the scan waits for its end, and says so when none comes.

Only reads. Raises ServerError that names what did not come to rest. Called by source.py and by Spark tasks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import redis
from redis.crc import key_slot

from ..schema.connection.address import Address
from ..schema.connection.connect import connect_node
from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.connection.slot_map import REDIRECTIONS, Node, SlotMap
from ..schema.errors import ServerError
from ..schema.fact import Entry
from ..schema.text import to_text
from .globs import covering
from .probes import clock_ms, memory, size
from .reading import BATCH, Guess, SetAside, keep, no_guess, read_all
from .scan import EVERYTHING, SCAN_COUNT, Cursors, Span, node, same_server, scan_range, split, split_slots
from .throttle import UNTHROTTLED, Throttle

Owner = tuple[Node, int]
"""A master, and the epoch of its slots: it begins a new one when it takes one over, so that a slot that has been away tells."""

REST_SECONDS = 30.0
"""For so long a scan waits for slots that are on the move."""
PAUSE = 0.1
FLAGS, EPOCH = 2, 6
"""Where these stand in a line of CLUSTER NODES (https://redis.io/docs/latest/commands/cluster-nodes/)."""


class Cluster:
    """The nodes of a cluster, as one reader sees them. A context manager; not for several threads."""

    def __init__(self, address: Address, throttle: Throttle = UNTHROTTLED) -> None:
        self._address = address
        self._pace = throttle.pace()
        self._clients: dict[Node, redis.Redis] = {}
        self._slots = SlotMap(address.hosts)

    def __enter__(self) -> Cluster:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def client(self, name: Node) -> redis.Redis:
        """A client for one node."""
        if name not in self._clients:
            self._clients[name] = connect_node(self._address, name)
        return self._clients[name]

    def owner_of(self, slot: int) -> redis.Redis:
        """A client for the node that owns a slot. Raises ServerError if none does."""
        return self.client(self._owner_of(slot))

    def refresh(self) -> Mapping[int, Node]:
        """Slot -> owner, as some node says it now. Raises UsageError when it is no node of a cluster."""
        return self._slots.refresh(self._ask_slots, known=self._clients)

    def _ask_slots(self, name: Node) -> Sequence[Any]:
        with open_pipeline(self.client(name)) as pipe:
            ranges: Sequence[Any] = pipe.ask("CLUSTER", "SLOTS")
            return ranges

    def masters(self) -> list[Node]:
        """Every node that owns slots."""
        return self._slots.masters()

    def clock_ms(self) -> int:
        """The clock of one of the masters."""
        return clock_ms(self.client(self.masters()[0]))

    def size(self) -> int:
        """How many keys all masters have."""
        return self._sum(size)

    def memory(self) -> int:
        """About how many bytes of memory they fill; 0 where they don't say."""
        return self._sum(memory)

    def _sum(self, ask: Callable[[redis.Redis], int]) -> int:
        """A number of all masters. Raises TimeoutError with the name of the one that does not answer."""
        total = 0
        for name in self.masters():
            try:
                total += ask(self.client(name))
            except redis.exceptions.TimeoutError as error:
                raise redis.exceptions.TimeoutError(f"no reply from {name[0]}:{name[1]}") from error
        return total

    def spans(self, name: Node, number: int) -> Sequence[Span]:
        """The keys of a node in at most about this many spans, which can be scanned side by side."""
        client = self.client(name)
        if node(client).cursors is Cursors.SLOTS:
            with open_pipeline(client) as pipe:
                return split_slots(pipe, [slot for slot, owner in self._slots.owners.items() if owner == name], number)
        return split(client, number)

    # Reading

    def entries(
        self, globs: Iterable[str], is_hash: Guess = no_guess, passed: Callable[[float], None] | None = None
    ) -> Iterator[list[Entry]]:
        """Every key that one of the globs fits, each once, large ones in several entries.

        ``is_hash``: as for ``read_entries``. ``passed`` is called after each node with the share of all nodes that has been read.
        """
        wanted = tuple(globs)
        is_wanted = covering(wanted)
        seen: set[bytes] = set()
        count = self._pace.throttle.page(SCAN_COUNT)
        before = self.at_rest()
        with contextlib.ExitStack() as stack:
            for name in self.masters():
                stack.enter_context(same_server(self.client(name)))
            masters = self.masters()
            for number, name in enumerate(masters, 1):
                for page in scan_range(self.client(name), EVERYTHING, wanted, count):
                    yield from self._fresh(page, seen, is_hash)
                if passed:
                    passed(number / len(masters))
        while moved := self.moved_since(before):
            before = self.at_rest()
            for slot in moved:
                yield from self._fresh(filter(is_wanted, self.keys_in(slot)), seen, is_hash)

    def _fresh(self, names: Iterable[bytes], seen: set[bytes], is_hash: Guess) -> Iterator[list[Entry]]:
        fresh = [name for name in dict.fromkeys(names) if name not in seen]
        seen.update(fresh)
        yield from self.read(fresh, is_hash)

    def read(self, names: Iterable[bytes], is_hash: Guess = no_guess, set_aside: SetAside = keep) -> Iterator[list[Entry]]:
        """The values of keys, from whichever nodes own them now; those that are gone are left out.

        ``is_hash``, ``set_aside``: as for ``read_entries``.
        """
        waiting = list(names)
        deadline = time.monotonic() + REST_SECONDS
        while waiting:
            by_node: dict[Node, list[bytes]] = {}
            for name in waiting:
                by_node.setdefault(self._owner(name), []).append(name)
            waiting = []
            for owner, those in by_node.items():
                with open_pipeline(self.client(owner)) as pipe:
                    for start in range(0, len(those), BATCH):
                        batch = those[start : start + BATCH]
                        found = self._read_together(pipe, batch, is_hash, set_aside)
                        if found is None:
                            waiting += batch
                        else:
                            yield from found
            if waiting:
                if time.monotonic() > deadline:
                    raise self._still_moving(f"slot {key_slot(waiting[0])}")
                time.sleep(PAUSE)
                self.refresh()

    def _read_together(
        self, pipe: PipelineConnection, names: Sequence[bytes], is_hash: Guess, set_aside: SetAside
    ) -> list[list[Entry]] | None:
        """The entries of these keys; None if one of them is elsewhere, and then nothing of any is given out."""
        try:
            return list(read_all(pipe, names, self._pace, is_hash, set_aside))
        except REDIRECTIONS:
            return None

    def _owner(self, name: bytes) -> Node:
        return self._owner_of(key_slot(name))

    def _owner_of(self, slot: int) -> Node:
        if slot not in self._slots.owners:
            raise ServerError(f"{self._address.display()}: slot {slot} belongs to no node; is the cluster down?")
        return self._slots.owners[slot]

    # Slots that move

    def at_rest(self) -> Mapping[int, Owner]:
        """The map of slots at a moment when none was on the move."""
        deadline = time.monotonic() + REST_SECONDS
        while True:
            owners = self.refresh()
            described = {name: self._of_itself(name) for name in self.masters()}
            moving = [name for name, words in described.items() if any(word.startswith("[") for word in words)]
            if not moving:
                return {slot: (name, int(described[name][EPOCH])) for slot, name in owners.items()}
            if time.monotonic() > deadline:
                raise self._still_moving(f"a slot of {moving[0][0]}:{moving[0][1]}")
            time.sleep(PAUSE)

    def moved_since(self, before: Mapping[int, Owner]) -> list[int]:
        """The slots that have other owners than they had, or may have had meanwhile."""
        after = self.at_rest()
        return [slot for slot, owner in after.items() if before.get(slot) != owner]

    def must_own(self, before: Mapping[int, Owner]) -> None:
        """Raises ServerError if slots have, or have had, other owners: who scans node by node may have missed their keys."""
        after = self.at_rest()
        if after == before:
            return
        moved = sum(slot not in after or after[slot][0] != name for slot, (name, _) in before.items())
        described = f"{moved} slots have moved" if moved else "a slot has moved away and back"
        raise ServerError(f"{self._address.display()}: {described} during the scan; try again when they have settled")

    def keys_in(self, slot: int) -> list[bytes]:
        """The names of all keys in a slot."""
        with open_pipeline(self.client(self._slots.owners[slot])) as pipe:
            number = pipe.ask("CLUSTER", "COUNTKEYSINSLOT", slot)
            names: list[bytes] = pipe.ask("CLUSTER", "GETKEYSINSLOT", slot, number + 1000)
            return names

    def _of_itself(self, name: Node) -> Sequence[str]:
        """The words in which a node describes itself; slots that it gives away or takes over are in brackets."""
        with open_pipeline(self.client(name)) as pipe:
            nodes = to_text(pipe.ask("CLUSTER", "NODES"))
        return next(words for words in map(str.split, nodes.splitlines()) if "myself" in words[FLAGS])

    def _still_moving(self, what: str) -> ServerError:
        return ServerError(
            f"{self._address.display()}: {what} has been on the move for {REST_SECONDS:.0f} s; try again when resharding is over"
        )
