"""A migration that is killed in the middle, and what the next run makes of it. Real processes, real kills."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Protocol

import pytest
import redis
from ferryman.migrations import journal
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL, journal_key
from ferryman.migrations.store import ServerStore
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import MigrationRefused
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump, store

from ..support.command import PROGRAM, ferryman
from ..support.gate import Gate, gate
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

JOBS = 2400


def job_of(number: int) -> Job:
    """A small job that waits or is done."""
    queue, state = f"queue {number % 7}", State.WAITING if number % 3 else State.COMPLETED
    return Job(str(number), queue, queue, state, number % 5, b'{"n":%d}' % number, created_at=number)


@pytest.fixture
def source(server: Server, client: redis.Redis) -> str:
    """A kue keyspace that takes many batches to write."""
    store(client, get_family("kue"), "q", map(job_of, range(1, JOBS + 1)))
    return server.url(family="kue")


@pytest.fixture
def door(server: Server) -> Iterator[Gate]:
    """In front of the target, for stopping migrations at a batch."""
    with gate(server) as opened:
        yield opened


@pytest.fixture(params=["ferryman", "kue"])
def target(request: pytest.FixtureRequest, door: Gate) -> str:
    return f"{door.url(1)}?family={request.param}&prefix=new"


@pytest.fixture
def there(server: Server) -> Iterator[redis.Redis]:
    """A client of the target's database."""
    with server.client(1) as client:
        yield client


def _heed_ctrl_c() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and so all that is started from there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupt(Protocol):
    """Starts a migration and stops it by a signal when the target has so many batches, before it learns of the last.

    Returns the number of jobs written, the exit status and what stands on stderr.
    """

    def __call__(self, batches: int, by: signal.Signals = signal.SIGKILL) -> tuple[int, int, bytes]: ...


@pytest.fixture
def interrupted(source: str, target: str, door: Gate, there: redis.Redis) -> Interrupt:
    def interrupted(batches: int, by: signal.Signals = signal.SIGKILL) -> tuple[int, int, bytes]:
        # Before its batches, a partition and its slot are opened.
        hold = door.hold(lambda transaction, count: count == batches + 2 and b":part:" in transaction, once_applied=True)
        command = [*PROGRAM, "migrate", source, target]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=_heed_ctrl_c) as run:
            hold.wait()
            run.send_signal(by)
            _, stderr = run.communicate()
        hold.release()
        (partition_key,) = there.scan_iter(f"{JOURNAL}:*:part:*")
        return int(there.hget(partition_key, "count") or 0), run.returncode, stderr

    return interrupted


@pytest.mark.parametrize("batches", [1, 5])
def test_a_killed_migration_goes_on_and_ends_as_if_nothing_had_happened(
    batches: int, source: str, target: str, server: Server, there: redis.Redis, interrupted: Interrupt
) -> None:
    undisturbed = Address.parse(target).family
    reference = server.url(2, family=undisturbed, prefix="new")
    assert ferryman("migrate", source, reference).status == 0

    stood, _, _ = interrupted(batches)
    assert 0 < stood < JOBS
    refused = ferryman("migrate", source, target)
    assert (refused.status, "--resume" in refused.error) == (2, True)

    resumed = ferryman("migrate", source, target, "--resume", "--format", "json")
    assert resumed.status == 0
    summary = resumed.lines()[-1]
    assert (summary["read"], summary["written"], summary["skipped"]) == (JOBS, JOBS - stood, stood)
    assert ferryman("verify", source, target).status == 0
    with server.client(2) as other:
        assert keyspace(there) == keyspace(other)


def test_ctrl_c_is_one_line_and_the_migration_can_go_on(source: str, target: str, interrupted: Interrupt) -> None:
    stood, status, stderr = interrupted(2, signal.SIGINT)
    assert 0 < stood < JOBS
    assert (status, stderr) == (130, b"ferryman: interrupted\n")
    assert ferryman("migrate", source, target, "--resume").status == 0
    assert ferryman("verify", source, target).status == 0


def keyspace(client: redis.Redis) -> dict[bytes, object]:
    """Everything but the journal, which tells the two runs apart."""
    return {key: entry for key, entry in dump(client).items() if not key.startswith(JOURNAL.encode())}


def test_a_job_done_before_the_rest_arrived_does_not_come_back(
    source: str, target: str, there: redis.Redis, interrupted: Interrupt
) -> None:
    interrupted(2)
    done = next(key for key in there.scan_iter("new*job:*") if there.type(key) == b"hash")
    there.delete(done)
    assert ferryman("migrate", source, target, "--resume").status == 0
    assert not there.exists(done)


def test_a_source_that_changed_meanwhile_is_refused_and_nothing_more_is_written(
    source: str, target: str, client: redis.Redis, there: redis.Redis, interrupted: Interrupt
) -> None:
    interrupted(2)
    client.delete("q:job:1")
    before = keyspace(there)
    outcome = ferryman("migrate", source, target, "--resume")
    assert outcome.status == 2
    assert "the source has changed" in outcome.error
    assert f"{JOURNAL}:" in outcome.error
    assert keyspace(there) == before


def test_a_second_source_waits_until_the_first_migration_is_finished(source: str, target: str, there: redis.Redis) -> None:
    here, to = Address.parse(source), Address.parse(target)
    plan = Plan.between(here, to, 0)
    store = ServerStore(there)
    journal.begin(store, here, to, plan, "local", None)
    other = Plan.between(Address.parse(source + "&prefix=other"), to, 0)
    with pytest.raises(MigrationRefused, match="an unfinished migration writes to prefix 'new'"):
        journal.check(store, other, "local", resume=True)
    with pytest.raises(MigrationRefused, match="begun with engine local, not spark"):
        journal.check(store, plan, "spark/4", resume=True)


def test_a_damaged_journal_is_named(source: str, target: str, there: redis.Redis) -> None:
    plan = Plan.between(Address.parse(source), Address.parse(target), 0)
    there.hset(journal_key(plan.epoch), "state", "?")
    outcome = ferryman("migrate", source, target)
    assert outcome.status == 2
    assert f"the journal {journal_key(plan.epoch).decode()} is damaged" in outcome.error


def test_the_journal_holds_no_password(server: Server, client: redis.Redis, source: str) -> None:
    client.acl_setuser("captain", enabled=True, passwords=["+s3kret"], keys=["*"], commands=["+@all"])
    try:
        login = source.replace("ferryman://", "ferryman://captain:s3kret@")
        target = server.url(1, family="kue", prefix="new").replace("ferryman://", "ferryman://captain:s3kret@")
        assert ferryman("migrate", login, target).status == 0
        with server.client(1) as there:
            journal_entries = [entry for key, entry in dump(there).items() if key.startswith(JOURNAL.encode())]
        assert journal_entries
        assert "s3kret" not in repr(journal_entries)
    finally:
        client.acl_deluser("captain")
