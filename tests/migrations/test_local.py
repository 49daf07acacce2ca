"""The local engine on captured keyspaces, through the command line: everything arrives, once, whole and in order."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations import journal
from ferryman.migrations.partition_writer import open_partition
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL, Run
from ferryman.migrations.store import ServerStore
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import StaleWriter
from ferryman.schema.family import get_family
from ferryman.schema.job import JOB_FIELDS
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.testing.keyspaces import dump, store

from ..support.captures import Capture, capture, captures, load
from ..support.command import Outcome, ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

KUE = captures("kue")
TARGETS = ["ferryman", "kue"]


class Ferry:
    """A capture in database 0 and the way to a target in database 1."""

    def __init__(self, server: Server, loaded: Capture, family: str) -> None:
        self.source = server.url(0, family=loaded.system, prefix=quote(loaded.prefix))
        self.target = server.url(1, family=family, prefix="new")
        self.capture = loaded
        self.clients = server.client(0), server.client(1)
        load(loaded, self.clients[0])

    def run(self, command: str, *options: str) -> Outcome:
        """Runs a command from source to target, in JSON, at the capture's moment."""
        moment = ("--now", str(self.capture.captured_at_ms))
        return ferryman(command, self.source, self.target, "--format", "json", *moment, *options)

    def migrate(self, *options: str) -> dict[str, Any]:
        """Migrates and returns the summary."""
        outcome = self.run("migrate", *options)
        assert outcome.status == 0, outcome.stderr
        return outcome.lines()[-1]

    def differences(self) -> list[dict[str, Any]]:
        """What verify finds."""
        outcome = self.run("verify")
        *found, summary = outcome.lines()
        assert summary["differences"] == len(found)
        assert outcome.status == (1 if found else 0)
        return found

    def jobs(self, url: str) -> list[dict[str, Any]]:
        """What ``ferryman jobs`` lists."""
        return ferryman("jobs", url, "--format", "json").lines()


@pytest.fixture(params=TARGETS)
def family(request: pytest.FixtureRequest) -> str:
    """The family of the target."""
    name: str = request.param
    return name


@pytest.fixture(params=KUE, ids=str)
def ferry(request: pytest.FixtureRequest, server: Server, family: str) -> Ferry:
    return Ferry(server, request.param, family)


@pytest.fixture
def healthy(server: Server, family: str) -> Ferry:
    return Ferry(server, capture("kue", "healthy"), family)


def test_a_migrated_keyspace_verifies_and_its_source_is_untouched(ferry: Ferry) -> None:
    source, _ = ferry.clients
    before = dump(source)
    summary = ferry.migrate()
    assert ferry.differences() == []
    assert dump(source) == before
    assert summary["read"] == summary["written"] + summary["skipped"]
    assert summary["skipped"] == len({job_id for ids in summary["refused"].values() for job_id in ids})
    assert sum(summary["by_state"].values()) == sum(summary["by_queue"].values()) == summary["written"]


def test_the_summary_agrees_with_what_kue_itself_says(healthy: Ferry) -> None:
    summary = healthy.migrate()
    assert summary["read"] == summary["written"] == healthy.capture.expected["jobs"]
    assert summary["by_state"] == healthy.capture.expected["by_canonical_state"]
    assert summary["by_queue"] == healthy.capture.expected["by_queue"]
    assert summary["requeued"] == summary["by_state"]["active"]


def test_waiting_jobs_keep_their_order(healthy: Ferry) -> None:
    healthy.migrate()
    requeued = {job["id"] for job in healthy.jobs(healthy.source) if job["state"] == "active"}
    orders: dict[str, list[str]] = {}
    for job in healthy.jobs(healthy.target):
        if job["state"] == "waiting" and job["id"] not in requeued:
            orders.setdefault(job["queue"], []).append(job["id"])
    assert orders == {queue: ids for queue, ids in healthy.capture.expected["pop_order"].items() if ids}


def test_consumers_of_the_target_get_the_jobs_in_the_order_of_the_source(server: Server) -> None:
    healthy = Ferry(server, capture("kue", "healthy"), "ferryman")
    active = {job["id"] for job in healthy.jobs(healthy.source) if job["state"] == "active"}
    healthy.migrate()
    for queue, ids in healthy.capture.expected["pop_order"].items():
        taken = run(
            healthy.clients[1], QueueScripts("new").take(queue, "worker", 100, 60_000, now=healthy.capture.captured_at_ms)
        )
        assert [job.id for job in taken.jobs if job.id not in active] == ids


def test_every_field_of_every_job_arrives(healthy: Ferry) -> None:
    healthy.migrate()
    before = {job["id"]: job for job in healthy.jobs(healthy.source)}
    after = {job["id"]: job for job in healthy.jobs(healthy.target)}
    assert after.keys() == before.keys()
    for job_id, job in before.items():
        assert list(job) == list(JOB_FIELDS)
        same = {name for name in JOB_FIELDS if job[name] == after[job_id][name]}
        moved = {"state", "lease_expires_at", "extra"} if job["state"] == "active" else {"extra"}
        assert same >= set(JOB_FIELDS) - moved


def test_a_second_run_changes_nothing_and_says_so(ferry: Ferry) -> None:
    _, target = ferry.clients
    first = ferry.migrate()
    after_first = dump(target)
    second = ferry.run("migrate")
    assert second.status == 0
    assert "finished before" in second.error
    summary = second.lines()[-1]
    assert (summary["read"], summary["written"], summary["skipped"]) == (first["read"], 0, first["read"])
    assert dump(target) == after_first


def test_a_second_run_does_not_bring_back_what_workers_have_done_since(healthy: Ferry) -> None:
    _, target = healthy.clients
    healthy.migrate()
    gone = [key for key in target.scan_iter("new*") if b":job:" in key or b"job:" in key]
    target.delete(*gone)
    before = dump(target)
    for options in ((), ("--resume",)):
        healthy.migrate(*options)
        assert dump(target) == before


def test_a_dry_run_writes_nothing_and_counts_the_same(ferry: Ferry) -> None:
    _, target = ferry.clients
    counted = ferry.migrate("--dry-run")
    assert dump(target) == {}
    assert counted.pop("dry_run")
    done = ferry.migrate()
    del done["dry_run"], done["seconds"], counted["seconds"]
    assert counted == done


@pytest.mark.parametrize("jobs", [2_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_generated_jobs_of_every_kind_arrive(jobs: int, server: Server, client: redis.Redis, family: str) -> None:
    kue, now_ms = get_family("kue"), 1_800_000_000_000
    store(client, kue, "q", generate(jobs, 1, now_ms))
    source, target = server.url(family="kue"), server.url(1, family=family, prefix="new")
    migrated = ferryman("migrate", source, target, "--format", "json", "--now", str(now_ms))
    assert (migrated.lines()[-1]["read"], migrated.lines()[-1]["written"]) == (jobs, jobs)
    verified = ferryman("verify", source, target, "--format", "json")
    assert verified.lines()[-1]["matched"] == jobs
    assert verified.status == 0


def test_active_jobs_stay_where_the_user_wants_it(healthy: Ferry) -> None:
    summary = healthy.migrate("--active", "refuse")
    active = {job["id"] for job in healthy.jobs(healthy.source) if job["state"] == "active"}
    assert set(summary["refused"]["MIGRATE-ACTIVE"]) == active
    assert healthy.differences() == []
    assert not active & {job["id"] for job in healthy.jobs(healthy.target)}


def test_strict_turns_jobs_that_stay_into_an_exit_status(healthy: Ferry) -> None:
    assert healthy.run("migrate", "--dry-run", "--strict").status == 0
    assert healthy.run("migrate", "--dry-run", "--strict", "--active", "refuse").status == 1


def test_a_target_that_holds_jobs_is_refused(healthy: Ferry, server: Server) -> None:
    healthy.migrate()
    _, target = healthy.clients
    before = dump(target)
    load(capture("kue", "crashed"), server.client(2))
    outcome = ferryman("migrate", server.url(2, family="kue"), healthy.target)
    assert outcome.status == 2
    assert "holds jobs" in outcome.error
    assert "?prefix=" in outcome.error
    assert dump(target) == before


def test_a_foreign_key_under_the_target_s_prefix_is_refused(healthy: Ferry) -> None:
    _, target = healthy.clients
    target.set("new:jobs", "what is this?")
    target.set("new:queues", "what is this?")
    outcome = healthy.run("migrate")
    assert outcome.status == 2
    assert "(key new:" in outcome.error
    assert len(dump(target)) == 2


def test_what_workers_changed_at_the_target_is_a_difference(healthy: Ferry) -> None:
    _, target = healthy.clients
    healthy.migrate()
    job = next(job for job in healthy.jobs(healthy.target) if job["state"] == "completed")
    for key in target.scan_iter(f"new*job:{job['id']}"):
        target.delete(key)
    assert [(each["job_id"], each["field"]) for each in healthy.differences()] == [(job["id"], "missing")]


def test_an_unfinished_migration_is_only_continued_on_request(healthy: Ferry) -> None:
    _, target = healthy.clients
    begun_and_abandoned(healthy)
    outcome = healthy.run("migrate")
    assert outcome.status == 2
    assert "--resume" in outcome.error
    other = healthy.run("migrate", "--resume", "--active", "refuse")
    assert other.status == 2
    assert "--active requeue" in other.error
    assert "unfinished" in healthy.run("verify").error
    healthy.migrate("--resume")
    assert healthy.differences() == []
    assert not list(target.scan_iter(f"{JOURNAL}:*:part:*"))


def test_a_zombie_of_an_earlier_run_is_shut_out(healthy: Ferry) -> None:
    """The run that was thought dead still holds its connection when the next one takes over."""
    _, target = healthy.clients
    first = begun_and_abandoned(healthy)
    with open_partition(ServerStore(target), first, "local") as zombie:
        zombie.put(b"late", [("SET", "new:late", "x")])
        healthy.migrate("--resume")
        with pytest.raises(StaleWriter):
            zombie.flush()
    with pytest.raises(StaleWriter), open_partition(ServerStore(target), first, "local"):
        pass
    assert not target.exists("new:late")
    assert healthy.differences() == []


def begun_and_abandoned(ferry: Ferry) -> Run:
    """Leaves the target as a run does that was killed right after it began."""
    source, target = Address.parse(ferry.source), Address.parse(ferry.target)
    plan = Plan.between(source, target, ferry.capture.captured_at_ms)
    return journal.begin(ServerStore(ferry.clients[1]), source, target, plan, "local", None)
