"""A source that changes while it is carried is named with the numbers; one that is quiet, whatever stands beside it, is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from attrs import evolve
from ferryman.migrations.drift import NAMES, Drift, Watch
from ferryman.migrations.engine import Summary
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.throttle import UNTHROTTLED
from ferryman.schema.connection.address import Address
from ferryman.schema.family import Target, get_family
from ferryman.schema.job import Job
from ferryman.testing.keyspaces import store

from ..conftest import SERVERS
from ..support.captures import DATA, Capture, captures, load
from ..support.clusters import Cluster, cluster
from ..support.command import PROGRAM, ferryman
from ..support.families import GENERATING
from ..support.gate import gate
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_795_262_676_000
CAPTURES = [case for system in sorted(path.name for path in DATA.iterdir() if path.is_dir()) for case in captures(system)]


def fill(client: redis.Redis, name: str, jobs: int, seed: int = 7) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, family.generate(jobs, seed, NOW), NOW)


def watch(server: Server, name: str, target: str = "") -> Watch:
    return Watch(Address.parse(server.url(family=name)), Address.parse(target or server.url(1)), UNTHROTTLED)


def drift_of(drift: Drift | None) -> Drift:
    assert drift is not None
    assert drift.unseen is None
    return drift


# Quiet sources


@pytest.mark.parametrize("case", CAPTURES, ids=str)
def test_every_capture_at_rest_is_unchanged(server: Server, client: redis.Redis, case: Capture) -> None:
    load(case, client)
    source = Address.parse(server.url(family=case.system, prefix=quote(case.prefix)))
    watching = Watch(source, Address.parse(server.url(1)), UNTHROTTLED)
    drift = drift_of(watching.since(watching.look()))
    assert not drift.is_changed, str(drift)


@pytest.mark.parametrize("name", GENERATING)
def test_a_migration_of_a_quiet_source_tells_of_no_change(server: Server, client: redis.Redis, name: str) -> None:
    fill(client, name, 300)
    *_, summary = ferryman("migrate", server.url(family=name), server.url(1, prefix="new"), "--lossy", "--format", "json").lines()
    assert summary["drift"]["sampled"] > 0
    assert not summary["drift"]["is_changed"]


@pytest.mark.parametrize("name", ["kombu", "pjq", "kue"])
def test_what_a_migration_writes_into_the_same_database_is_no_change(server: Server, client: redis.Redis, name: str) -> None:
    fill(client, name, 300)
    *_, summary = ferryman("migrate", server.url(family=name), server.url(prefix="new"), "--lossy", "--format", "json").lines()
    assert summary["written"] > 100
    assert not summary["drift"]["is_changed"], summary


def test_keys_that_expire_and_keys_of_others_are_no_change(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 300)
    client.set("q:promotion:lock", "1")
    client.set("session:1", "x")
    for number in range(1, 11):
        client.pexpire(f"q:job:{number}:log", 60_000)
        client.hset(f"q:job:{number + 5000}", mapping={"type": "mail", "state": "complete", "data": "{}"})
        client.pexpire(f"q:job:{number + 5000}", 60_000)
    watching = watch(server, "kue")
    before = watching.look()
    client.delete("q:promotion:lock", "session:1", *(f"q:job:{number + 5000}" for number in range(1, 11)))
    client.set("q:stop:lock", "1")
    client.set("session:2", "x")
    client.incr("q:ids")
    drift = drift_of(watching.since(before))
    assert not drift.is_changed, str(drift)


def test_a_snapshot_can_not_change(server: Server) -> None:
    case = captures("kue")[0]
    source = f"ferryman+rdb://{case.rdb}?family=kue&prefix={quote(case.prefix)}"
    *_, summary = ferryman("migrate", source, server.url(1), "--format", "json").lines()
    assert summary["drift"] is None


# Sources that change


@pytest.mark.parametrize("name", GENERATING)
def test_new_jobs_are_seen_in_every_family(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    jobs = list(family.generate(330, 7, NOW))
    store(client, family, family.default_prefix, jobs[:300], NOW)
    watching = watch(server, name)
    before = watching.look()
    store(client, family, family.default_prefix, jobs[300:], NOW)
    drift = drift_of(watching.since(before))
    assert drift.is_changed
    assert drift.differing > 0
    assert drift.examples


def test_the_numbers_of_jobs_are_told_where_indexes_tell_them(server: Server, client: redis.Redis) -> None:
    family = get_family("kue")
    jobs = list(family.generate(303, 7, NOW))
    store(client, family, "q", jobs[:300], NOW)
    watching = watch(server, "kue")
    before = watching.look()
    store(client, family, "q", jobs[300:], NOW)
    drift = drift_of(watching.since(before))
    assert (drift.jobs_before, drift.jobs_after, drift.added) == (300, 303, 3 + added_logs(client, jobs[300:]))
    assert str(drift).startswith("3 jobs more (300 before, 303 after); of ")


def added_logs(client: redis.Redis, jobs: Iterable[Job]) -> int:
    return sum(int(client.exists(f"q:job:{job.id}:log")) for job in jobs)


def test_a_job_that_is_only_edited_differs(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 100)
    watching = watch(server, "kue")
    before = watching.look()
    client.hset("q:job:7", "data", '{"n":1}')
    drift = drift_of(watching.since(before))
    assert (drift.added, drift.gone, drift.differing, drift.examples) == (0, 0, 1, ("q:job:7",))
    assert drift.jobs_before == drift.jobs_after == 100


def test_jobs_that_go_are_counted(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 100)
    watching = watch(server, "kue")
    before = watching.look()
    client.delete("q:job:7", "q:job:8")
    drift = drift_of(watching.since(before))
    assert drift.gone == 2


def test_a_large_source_is_looked_at_in_part_and_new_jobs_are_found_all_the_same(server: Server, client: redis.Redis) -> None:
    family = get_family("qless")
    jobs = list(family.generate(2100, 7, NOW))
    store(client, family, "ql", jobs[:2000], NOW)
    client.mset({f"ql:j:filler-{number}": "x" for number in range(10 * NAMES)})
    watching = watch(server, "qless")
    before = watching.look()
    assert before is not None
    assert len(before.names) < 3 * NAMES
    quiet = drift_of(watching.since(before))
    assert not quiet.is_changed, str(quiet)
    store(client, family, "ql", jobs[2000:], NOW)
    assert drift_of(watching.since(before)).is_changed


def test_a_source_that_fails_after_it_was_read_does_not_fail_the_migration(tmp_path: Path) -> None:
    with SERVERS[0].start(tmp_path) as server:
        fill(server.client(), "kue", 10)
        watching = watch(server, "kue")
        before = watching.look()
    drift = watching.since(before)
    assert drift is not None
    assert "can't be reached" in (drift.unseen or "")
    assert not drift.is_changed


# The command


def test_a_source_that_grows_during_a_migration_is_named_and_verify_differs(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 500)
    with gate(server) as door:
        # What is written was read before, and the source is looked at again when all is written.
        hold = door.hold(lambda transaction, _count: b":part:" in transaction)
        command = [*PROGRAM, "migrate", server.url(family="kue"), door.url(1), "--strict"]
        environment = {**os.environ, "COLUMNS": "2000"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
            family = get_family("kue")
            hold.wait()
            store(client, family, "q", list(family.generate(503, 7, NOW))[500:], NOW)
            hold.release()
            out, _ = running.communicate(timeout=120)
    shown = " ".join(out.decode().split())
    assert running.returncode == 1
    assert "The source changed while it was read: 3 jobs more (500 before, 503 after)" in shown
    assert "`ferryman verify` will differ. To carry it as it stands when it rests, stop its producers and workers" in shown
    assert ferryman("verify", server.url(family="kue"), server.url(1)).status == 1


def test_the_journal_keeps_what_was_seen(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 50)
    source, target = Address.parse(server.url(family="kue")), Address.parse(server.url(1))
    plan = Plan.between(source, target, NOW)

    def disturb(phase: str, done: int, _total: int | None) -> None:
        if phase == "writing jobs" and not done:
            client.hset("q:job:7", "data", '{"n":1}')

    summary = LocalEngine().migrate(source, target, plan, lambda _: None, disturb)
    again = LocalEngine().migrate(source, target, plan, lambda _: None)
    assert again.repeated
    assert again.drift == summary.drift
    assert again.drift is not None
    assert again.drift.is_changed
    assert Summary.from_dict(summary.to_dict()) == evolve(summary, seconds=round(summary.seconds, 3))


def test_a_dry_run_tells_of_a_change_too(server: Server, client: redis.Redis) -> None:
    fill(client, "kue", 50)
    source, target = Address.parse(server.url(family="kue")), Address.parse(server.url(1))

    def disturb(phase: str, done: int, _total: int | None) -> None:
        if phase == "counting jobs" and not done:
            client.delete("q:job:7")

    plan = Plan.between(source, target, NOW)
    summary = LocalEngine().migrate(source, target, plan, lambda _: None, disturb, dry_run=True)
    assert summary.drift is not None
    assert summary.drift.gone == 1


# Clusters


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_cluster_is_looked_at_node_by_node(nodes: Cluster, server: Server) -> None:
    family = get_family("ferryman")
    jobs = list(family.generate(120, 7, NOW))

    def write(some: Iterable[Job]) -> None:
        for command in (command for job in some for command in family.write(job, Target(server.kind, NOW, generated=True))):
            assert isinstance(command[1], bytes)
            nodes.say(nodes.owner(command[1]), *command)  # type: ignore[arg-type]

    write(jobs[:100])
    watching = Watch(Address.parse(nodes.url(prefix=server.kind)), Address.parse(server.url(1)), UNTHROTTLED)
    before = watching.look()
    drift = drift_of(watching.since(before))
    assert not drift.is_changed, str(drift)
    assert drift.names > 100
    write(jobs[100:])
    drift = drift_of(watching.since(before))
    assert drift.added >= 20
    assert drift.differing > 0
