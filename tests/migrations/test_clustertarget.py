"""A cluster as a target: each job whole in one slot, behind a fence of that slot, while slots move and writers die."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ferryman.transport
import pytest
from ferryman.compat.kue.generate import generate
from ferryman.migrations import cluster_scan, journal
from ferryman.migrations.engine import Summary
from ferryman.migrations.packed_jobs import identity
from ferryman.migrations.partition_writer import open_partition, send
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import HOME, JOURNAL, Run
from ferryman.migrations.store import Store, open_store
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import MigrationRefused, ServerError, StaleWriter, UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.family import Command, Target, family_names, get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump
from ferryman.testing.keyspaces import store as store_jobs
from kombu import Connection
from redis.crc import key_slot

from ..conftest import SERVERS
from ..support.clusters import MASTERS, Cluster, cluster
from ..support.command import PROGRAM, ferryman
from ..support.servers import Server
from ..support.topologies import Daemon, wait_until

NOW = 1_795_262_676_000
JOBS = 400
NATIVE = get_family("ferryman")
TO = Target("ferryman", NOW)
FAMILIES = [name for name in family_names() if name != "ferryman"]


@pytest.fixture(scope="module")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The source's."""
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture
def nodes(running: Cluster) -> Cluster:
    """An empty cluster."""
    for master in running.nodes[:MASTERS]:
        running.say(master, "FLUSHALL")
    return running


@pytest.fixture
def source(server: Server) -> str:
    """A kue keyspace."""
    with server.client() as client:
        store_jobs(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    return server.url(family="kue")


@pytest.fixture
def long_source(server: Server) -> str:
    """One with so many jobs that there is time to catch a migration while it writes."""
    with server.client() as client:
        store_jobs(client, get_family("kue"), "q", generate(10 * JOBS, 7, NOW))
    return server.url(family="kue")


@pytest.fixture
def store(nodes: Cluster) -> Iterator[Store]:
    with open_store(Address.parse(nodes.url())) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> Run:
    run = Run("0123456789abcdef", 1)
    store.ask([("HSET", run.key, "run", 1, "state", "running")])
    return run


def everything(nodes: Cluster) -> dict[bytes, Entry]:
    """The keys of all masters."""
    found: dict[bytes, Entry] = {}
    for node in nodes.nodes:
        if node.process is not None:
            with node.server.client() as client:
                if client.execute_command("ROLE")[0] == b"master":
                    found |= dump(client)
    return found


def jobs_of(entries: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """All but the journal's."""
    return {key: entry for key, entry in entries.items() if not key.startswith(JOURNAL.encode())}


def job(number: int, queue: str) -> tuple[bytes, list[Command]]:
    """The identity and the commands of a waiting native job."""
    made = Job(str(number), queue, "task", State.WAITING, 0, b"{}", position=number)
    return identity(made), NATIVE.write(made, TO)


def waiting(store: Store, queue: str) -> list[bytes]:
    (ids,) = store.ask([("ZRANGE", f"ferryman:{{{queue}}}:waiting", 0, -1)])
    return list(ids)


@pytest.mark.parametrize(("family", "prefix", "owners"), [("ferryman", "ferryman", MASTERS), ("kue", "{q}", 1)])
def test_a_cluster_gets_what_a_server_would_get(
    family: str, prefix: str, owners: int, source: str, server: Server, nodes: Cluster
) -> None:
    options = {"family": family, "prefix": prefix}
    assert ferryman("migrate", source, server.url(1, **options), "--now", str(NOW)).status == 0
    outcome = ferryman("migrate", source, nodes.url(**options), "--now", str(NOW), "--format", "json")
    assert (outcome.status, outcome.lines()[-1]["read"]) == (0, JOBS)
    stored = everything(nodes)
    with server.client(1) as client:
        assert jobs_of(stored) == jobs_of(dump(client))
    assert len({nodes.owner(key).server.port for key in jobs_of(stored)}) == owners
    assert not [key for key in stored if b":lane:" in key or b":part:" in key]
    assert ferryman("verify", source, nodes.url(**options)).status == 0
    again = ferryman("migrate", source, nodes.url(**options), "--format", "json")
    assert again.lines()[-1]["repeated"]
    assert everything(nodes) == stored


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_written_under_a_hash_tag(family: str, server: Server, nodes: Cluster) -> None:
    with server.client() as client:
        store_jobs(client, get_family("kue"), "q", generate(60, 7, NOW))
        source = server.url(family="kue")
        options = ("--now", str(NOW), "--lossy")
        assert ferryman("migrate", source, server.url(1, family=family, prefix="{all}"), *options).status == 0
        assert ferryman("migrate", source, nodes.url(family=family, prefix="{all}"), *options).status == 0
    with server.client(1) as client:
        assert jobs_of(everything(nodes)) == jobs_of(dump(client))
    assert {key_slot(key) for key in jobs_of(everything(nodes))} == {key_slot(b"all")}


def test_every_job_leaves_a_cluster_in_the_order_of_its_source(source: str, nodes: Cluster) -> None:
    orders: dict[str, list[str]] = {}
    for job in ferryman("jobs", source, "--format", "json", "--state", "waiting").lines():
        orders.setdefault(job["queue"], []).append(job["id"])
    assert ferryman("migrate", source, nodes.url(), "--active", "refuse").status == 0
    with Connection(nodes.url()) as connection, connection.channel() as channel:
        for queue, ids in orders.items():
            popped = [message.headers["id"] for message in iter(partial(channel.basic_get, queue, no_ack=True), None)]
            # Jobs that were scheduled may be due by now.
            assert [job_id for job_id in popped if job_id in ids] == ids
    assert len(orders) > 5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_keyspace_that_would_lie_across_slots_is_refused_before_anything_is_written(
    family: str, source: str, nodes: Cluster
) -> None:
    outcome = ferryman("migrate", source, nodes.url(family=family))
    assert outcome.status == 2
    assert f"family={family}&prefix={{" in outcome.error
    assert everything(nodes) == {}


def test_commands_of_several_slots_are_refused_by_name(store: Store) -> None:
    with pytest.raises(UsageError, match=r"a:\{1\} and a:\{2\} can't be written"):
        store.tag([("SET", "a:{1}", 1), ("DEL", "a:{1}", "a:{2}")])


def stop_while_it_writes(migration: subprocess.Popen[Any], node: Daemon) -> bytes:
    """Stops a migration that has begun to write to a master, and gives the key with its progress there."""
    with node.server.client() as client:
        wait_until(lambda: migration.poll() is not None or any(client.scan_iter("*:lane:*")))
        migration.send_signal(signal.SIGSTOP)
        return next(client.scan_iter("*:lane:*"))


def test_a_killed_migration_goes_on(long_source: str, server: Server, nodes: Cluster) -> None:
    assert ferryman("migrate", long_source, server.url(1), "--now", str(NOW)).status == 0
    with subprocess.Popen([*PROGRAM, "migrate", long_source, nodes.url(), "--now", str(NOW)]) as killed:
        stop_while_it_writes(killed, nodes.nodes[0])
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    refused = ferryman("migrate", long_source, nodes.url())
    assert (refused.status, "--resume" in refused.error) == (2, True)
    assert ferryman("migrate", long_source, nodes.url(), "--resume").status == 0
    with server.client(1) as client:
        assert jobs_of(everything(nodes)) == jobs_of(dump(client))


def test_a_master_that_dies_is_named_and_its_replica_gets_the_rest(long_source: str, server: Server, tmp_path: Path) -> None:
    assert ferryman("migrate", long_source, server.url(1), "--now", str(NOW)).status == 0
    with cluster(SERVERS[0], tmp_path) as nodes:
        command = [*PROGRAM, "migrate", long_source, nodes.url(), "--now", str(NOW)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as migration:
            dead = nodes.nodes[1]  # which the address does not name
            slot = stop_while_it_writes(migration, dead)
            dead.kill()
            migration.send_signal(signal.SIGCONT)
            error = migration.communicate()[1]
        assert (migration.returncode, f"127.0.0.1:{dead.server.port}" in error) == (3, True), error
        wait_until(lambda: nodes.owner(slot) is not dead, 60)
        nodes.wait_until_healthy()
        assert ferryman("migrate", long_source, nodes.url(), "--resume").status == 0
        assert ferryman("verify", long_source, nodes.url()).status == 0
        stored = everything(nodes)
    with server.client(1) as client:
        assert jobs_of(stored) == jobs_of(dump(client))


def test_a_job_worked_off_meanwhile_does_not_come_back(store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        for number in range(6):
            writer.put(*job(number, f"queue {number % 2}"))
        writer.flush()
    store.ask([("ZREM", "ferryman:{queue 0}:waiting", "2")])
    with open_partition(store, run, "a") as again:
        for number in range(9):
            again.put(*job(number, f"queue {number % 2}"))
        again.close()
    assert (waiting(store, "queue 0"), waiting(store, "queue 1")) == ([b"0", b"4", b"6", b"8"], [b"1", b"3", b"5", b"7"])


def test_the_second_opener_of_a_part_takes_it_over_in_every_slot(store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as first:
        first.put(*job(0, "one"))
        with open_partition(store, run, "a") as second:
            second.put(*job(0, "one"))
            second.put(*job(1, "two"))
            second.flush()
            store.ask([("ZREM", "ferryman:{one}:waiting", "0")])
            with pytest.raises(StaleWriter):
                first.flush()
            with pytest.raises(StaleWriter):
                first.put(*job(1, "two"))
            second.close()
        with pytest.raises(StaleWriter):
            first.close()
    assert (waiting(store, "one"), waiting(store, "two")) == ([], [b"1"])


def test_nobody_writes_after_the_end_in_any_slot(source: str, nodes: Cluster, store: Store) -> None:
    """Writers that had looked at the journal before the end, and had opened one slot, or none, or wanted to finish."""
    here, to = Address.parse(source), Address.parse(nodes.url())
    plan = Plan.between(here, to, NOW)
    first = journal.begin(store, here, to, plan, "local", None)
    with contextlib.ExitStack() as stack:
        with_slot, without = (stack.enter_context(open_partition(store, first, name)) for name in ("local", "other"))
        with_slot.put(*job(0, "email"))
        assert ferryman("migrate", source, nodes.url(), "--resume").status == 0
        before = everything(nodes)
        for zombie, queue in ((with_slot, "email"), (with_slot, "report"), (without, "email"), (without, "never seen")):
            with pytest.raises(StaleWriter):  # noqa: PT012 - the first or the second
                zombie.put(*job(1, queue))
                zombie.flush()
        with pytest.raises(StaleWriter):
            send(store, first, [("SADD", "ferryman:queues", "late")])
    assert everything(nodes) == before


def test_a_lane_can_t_be_opened_after_the_end_by_who_had_passed_the_journal(source: str, nodes: Cluster, store: Store) -> None:
    """The window between the look at the journal, in one slot, and the opening of the other."""
    here, to = Address.parse(source), Address.parse(nodes.url())
    first = journal.begin(store, here, to, Plan.between(here, to, NOW), "local", None)

    class Slow(type(store)):  # type: ignore[misc]
        """A store whose owner is stopped between the two."""

        def ask(self, commands: list[Command]) -> list[object]:
            if commands[0][0] == "EVAL":
                assert ferryman("migrate", source, nodes.url(), "--resume").status == 0
            return super().ask(commands)  # type: ignore[no-any-return]

    with cluster_scan.Cluster(to) as reader:
        slow = Slow(to, reader)
        with open_partition(slow, first, "local") as zombie, pytest.raises(StaleWriter):
            zombie.put(*job(0, "email"))


def test_a_slot_that_moves_between_two_batches_is_followed(nodes: Cluster, store: Store, run: Run) -> None:
    key = b"ferryman:{mail}:waiting"
    with open_partition(store, run, "a") as writer:
        for number, node in enumerate(nodes.nodes[:MASTERS]):
            writer.put(*job(number, "mail"))
            writer.flush()
            if nodes.owner(key) is not node:
                nodes.move(key, node)
        writer.put(*job(MASTERS, "mail"))
        writer.close()
    assert waiting(store, "mail") == [b"%d" % number for number in range(MASTERS + 1)]


def test_a_slot_on_the_move_is_waited_for(nodes: Cluster, store: Store, run: Run) -> None:
    key = b"ferryman:{mail}:waiting"
    here = nodes.owner(key)
    there = next(node for node in nodes.nodes[:MASTERS] if node is not here)
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0, "mail"))
        writer.flush()
        slot = key_slot(key)
        nodes.say(there, "CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.id_of(here))
        nodes.say(here, "CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.id_of(there))
        writer.put(*job(1, "mail"))
        writing = threading.Thread(target=writer.close)
        writing.start()
        writing.join(0.5)
        assert writing.is_alive()
        nodes.move(key, there)
        writing.join(100)
    assert waiting(store, "mail") == [b"0", b"1"]


def test_what_a_failover_takes_back_is_noticed_at_the_end_and_written_again(source: str, nodes: Cluster, store: Store) -> None:
    """A master that dies before its last writes are copied: both the jobs and the count of them go back to what they were."""
    here, to = Address.parse(source), Address.parse(nodes.url())
    plan = Plan.between(here, to, NOW)
    run = journal.begin(store, here, to, plan, "local", None)
    with open_partition(store, run, "local") as writer:
        writer.put(*job(0, "one"))
        writer.flush()
        (before,) = store.ask([("DUMP", run.progress_key(b"one", "local"))])
        writer.put(*job(1, "one"))
        writer.close()
    store.ask([("ZREM", "ferryman:{one}:waiting", "1"), ("RESTORE", run.progress_key(b"one", "local"), 0, before, "REPLACE")])
    with pytest.raises(ServerError, match=r"lost what it had confirmed.*--resume"):
        journal.finish(store, run, plan, [], Summary(), ["local"])
    with open_partition(store, run, "local") as writer:
        writer.put(*job(0, "one"))
        writer.put(*job(1, "one"))
        writer.close()
    journal.finish(store, run, plan, [], Summary(), ["local"])
    assert waiting(store, "one") == [b"0", b"1"]


def test_a_writer_whose_last_batch_was_taken_back_stops(store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0, "one"))
        writer.flush()
        store.ask([("HSET", run.progress_key(b"one", "a"), "count", 0)])
        writer.put(*job(1, "one"))
        with pytest.raises(StaleWriter, match="failover"):
            writer.close()
    assert waiting(store, "one") == [b"0"]


def test_a_part_keeps_many_queues_apart_and_little_in_memory(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferryman.migrations.partition_writer.PENDING_BYTES", 100_000)
    with open_partition(store, run, "a") as writer:
        for number in range(400):
            writer.put(*job(number, f"queue {number % 40}"))
            assert writer.pending < 110_000
        writer.close()
    assert sum(len(waiting(store, f"queue {number}")) for number in range(40)) == 400


def test_a_source_that_lost_a_queue_meanwhile_is_refused(store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0, "one"))
        writer.put(*job(1, "two"))
        writer.close()
    with open_partition(store, run, "a") as again:
        again.put(*job(0, "one"))
        with pytest.raises(MigrationRefused, match=f"{JOURNAL}:\\*:{run.epoch}"):
            again.close()


def test_the_journal_of_a_cluster_lies_in_one_slot() -> None:
    assert key_slot(f"{HOME}:x".encode()) == key_slot(b"journal")
