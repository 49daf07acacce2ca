"""A Redis Cluster of three masters with a replica each, whose slots can be moved and whose masters can be killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from attrs import define
from redis.crc import key_slot

from .servers import ServerKind, free_port
from .topologies import Daemon, durable, wait_until

MASTERS = 3
SLOTS = 16384


@define
class Cluster:
    """The running nodes: masters first, then their replicas in the same order, as they were at the start."""

    nodes: list[Daemon]

    def url(self, **options: str | int | float) -> str:
        """The ``ferryman+cluster://`` address, by two of the nodes."""
        hosts = ",".join(f"127.0.0.1:{daemon.server.port}" for daemon in (self.nodes[0], self.nodes[-1]))
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"ferryman+cluster://{hosts}/0" + (f"?{query}" if query else "")

    def say(self, node: Daemon, *words: str | int | bytes) -> object:
        """One command to one node; the reply is what the server sent."""
        with node.server.client() as client:
            # Without the client's own reading of CLUSTER replies, which has changed between versions.
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def id_of(self, node: Daemon) -> bytes:
        reply = self.say(node, "CLUSTER", "MYID")
        assert isinstance(reply, bytes)
        return reply

    def owner(self, key: bytes) -> Daemon:
        """The running node that has a key, by what some running node says."""
        running = [node for node in self.nodes if node.process is not None]
        ranges = self.say(running[0], "CLUSTER", "SLOTS")
        assert isinstance(ranges, list)
        slot = key_slot(key)
        port = next(int(master[1]) for first, last, master, *_ in ranges if first <= slot <= last)
        return next(node for node in self.nodes if node.server.port == port)

    def move(self, key: bytes, target: Daemon) -> None:
        """Moves the slot of a key, with all its keys, to another master, as resharding does."""
        slot, source = key_slot(key), self.owner(key)
        self.say(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.say(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        while names := self.say(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            assert isinstance(names, list)
            self.say(source, "MIGRATE", "127.0.0.1", target.server.port, "", 0, 5000, "KEYS", *names)
        for node in (target, source, *(node for node in self.nodes[:MASTERS] if node not in (source, target))):
            self.say(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def wait_until_healthy(self, seconds: float = 120.0) -> None:
        """Returns when every running node says that the cluster works."""
        running = [node for node in self.nodes if node.process is not None]
        wait_until(lambda: all(b"cluster_state:ok" in self._info(node) for node in running), seconds)

    def _info(self, node: Daemon) -> bytes:
        reply = self.say(node, "CLUSTER", "INFO")
        assert isinstance(reply, bytes)
        return reply


@contextlib.contextmanager
def cluster(kind: ServerKind, folder: Path) -> Iterator[Cluster]:
    """A running cluster."""
    with contextlib.ExitStack() as stack:
        nodes, buses = [], []
        for number in range(2 * MASTERS):
            bus = free_port()
            options = ["--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "1000"]
            nodes.append(stack.enter_context(durable(kind, folder / f"node{number}", *options)))
            buses.append(bus)
        running = Cluster(nodes)
        for number, node in enumerate(nodes[:MASTERS]):
            first, last = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            running.say(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for number, node in enumerate(nodes, 1):
            # As redis-cli does. Epochs that are the same change by themselves, which looks as if a slot had moved.
            running.say(node, "CLUSTER", "SET-CONFIG-EPOCH", number)
        for node, bus in zip(nodes[1:], buses[1:], strict=True):
            running.say(nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.server.port, bus)
        known = f"cluster_known_nodes:{len(nodes)}".encode()
        wait_until(lambda: all(known in running._info(node) for node in nodes))
        for master, replica in zip(nodes, nodes[MASTERS:], strict=False):
            running.say(replica, "CLUSTER", "REPLICATE", running.id_of(master))
        running.wait_until_healthy()
        for replica in nodes[MASTERS:]:
            wait_until(lambda replica=replica: b"connected" in running.say(replica, "ROLE"))  # type: ignore[misc]
        yield running
