"""Detection: each system is found under its prefix, side by side with others, and strangers are nobody's."""

from __future__ import annotations

import re
from itertools import count
from types import SimpleNamespace
from urllib.parse import quote
from uuid import uuid4

import pytest
import redis
from ferryman.compat.kombu import FAMILY as KOMBU
from ferryman.compat.kue import FAMILY as KUE
from ferryman.migrations import detect as detect_module
from ferryman.migrations import key_sample
from ferryman.migrations.detect import Confidence, Detection, detect, resolve
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound, UsageError
from ferryman.schema.native import FAMILY as NATIVE
from ferryman.testing.keyspaces import store

from ..support.captures import Capture, capture, captures, load
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000


def whole(server: Server) -> Address:
    return Address.parse(server.url())


def found(detection: Detection) -> dict[tuple[str, str], Confidence]:
    return {(each.family, each.prefix): each.confidence for each in detection.keyspaces}


@pytest.mark.parametrize("case", [*captures("kue"), *captures("kombu")], ids=str)
def test_every_capture_is_recognised_and_nothing_else(server: Server, client: redis.Redis, case: Capture) -> None:
    load(case, client)
    detection = detect(whole(server))
    assert found(detection) == {(case.system, case.prefix): Confidence.SURE}
    assert detection.keyspaces[0].exact
    assert not detection.stopped_early


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("older-version", "0.3 to 0.7"),
        ("older-0.8.12", "0.8"),
        ("older-0.9.6", "0.9 to 0.10.2"),
        ("healthy", "0.10.3 to 0.11"),
        ("upgraded", "0.10.3 to 0.11, upgraded from an older one"),
    ],
)
def test_the_version_of_kue_is_told(server: Server, client: redis.Redis, name: str, version: str) -> None:
    load(capture("kue", name), client)
    assert detect(whole(server)).keyspaces[0].version == version


def test_systems_and_prefixes_in_one_database_do_not_disturb_each_other(server: Server, client: redis.Redis) -> None:
    for case in (capture("kue", "healthy"), capture("kue", "custom-prefix"), *captures("kombu")):
        load(case, client)
    store(client, NATIVE, "ferryman", NATIVE.generate(50, 1, NOW), NOW)
    store(client, NATIVE, "tenant:a", NATIVE.generate(50, 2, NOW), NOW)
    detection = detect(whole(server))
    expected = {
        ("kue", "q"),
        ("kue", "acme:jobs-v2"),
        ("kombu", ""),
        ("kombu", "app1:"),
        ("ferryman", "ferryman"),
        ("ferryman", "tenant:a"),
    }
    assert found(detection) == dict.fromkeys(expected, Confidence.SURE)
    assert detection.strangers == 0
    assert {each.jobs for each in detection.keyspaces if each.family == "ferryman"} == {50}


def test_a_prefix_inside_the_namespace_of_another_one_is_its_own_keyspace(server: Server, client: redis.Redis) -> None:
    for prefix in ("q", "q:eu", "q:eu:job"):
        store(client, KUE, prefix, KUE.generate(40, 3, NOW), NOW)
    detection = detect(whole(server))
    assert found(detection) == dict.fromkeys([("kue", "q"), ("kue", "q:eu"), ("kue", "q:eu:job")], Confidence.SURE)
    assert [each.jobs for each in detection.keyspaces] == [40, 40, 40]


STRANGERS: dict[str, dict[str, str]] = {
    "celery-task-meta-5f0c0ffe": {},
    "rq:job:0b4cde1e-1f3a-4d3b-9a55-1f7a5a1c2d3e": {"status": "queued", "data": "x"},
    "bull:{mail}:meta": {"opts.maxLenEvents": "10000"},
    "bull:{mail}:1": {"name": "x", "data": "{}"},
    "bull:{mail}:2": {"name": "x", "data": "{}"},
    "session:job:7": {"user": "1"},
    "my-unacked": {"a": "b"},
}


def strangers(client: redis.Redis) -> None:
    """Keys of other software: result backends, rq, sidekiq, BullMQ, sessions that look like jobs."""
    for key, fields in STRANGERS.items():
        if fields:
            client.hset(key, mapping=fields)
        else:
            client.set(key, b'{"status": "SUCCESS"}')
    client.sadd("rq:queues", "rq:queue:default")
    client.rpush("rq:queue:default", "0b4cde1e-1f3a-4d3b-9a55-1f7a5a1c2d3e")
    client.rpush("queue:default", b'{"class":"HardWorker","args":[1],"jid":"b4a577edbccf1d805744efa9"}')
    client.sadd("queues", "default")
    client.zadd("bull:{mail}:delayed", {"1": 1})
    client.rpush("bull:{mail}:wait", "2")


def test_strangers_are_nobodys(server: Server, client: redis.Redis) -> None:
    strangers(client)
    detection = detect(whole(server))
    assert detection.fitting == ()
    assert all(re.fullmatch("bull|session|my-", each.prefix) for each in detection.keyspaces)
    load(capture("kombu", "healthy"), client)
    detection = detect(whole(server))
    assert [(each.family, each.prefix) for each in detection.fitting] == [("kombu", "")]
    assert detection.strangers >= len(STRANGERS)
    assert "bull:{mail}:1" in detection.examples


def test_a_large_database_is_estimated_from_a_bounded_look(server: Server, client: redis.Redis) -> None:
    store(client, KUE, "q", KUE.generate(3000, 5, NOW), NOW)
    detection = detect(whole(server))
    kue = detection.keyspaces[0]
    assert not kue.exact
    assert detection.read < detection.scanned == client.dbsize()
    assert 2700 <= kue.jobs <= 3300
    assert kue.confidence is Confidence.SURE
    few = detect(whole(server), most_keys=500)
    assert few.stopped_early
    assert few.scanned < 2000
    assert found(few) == {("kue", "q"): Confidence.SURE}


LARGE = 6_000
FAMILIES = ("bee", "ferryman", "kickq", "kombu", "kue", "pjq", "qless")


@pytest.mark.parametrize("family", FAMILIES)
def test_jobs_whose_index_was_read_in_part_are_no_reason_for_doubt(server: Server, family: str) -> None:
    generate_keyspace(Address.parse(server.url(family=family)), KeyspaceSpec(LARGE, 1, NOW))
    (keyspace,) = detect(whole(server)).keyspaces
    assert (keyspace.family, keyspace.confidence) == (family, Confidence.SURE)
    assert 0.95 * LARGE <= keyspace.jobs <= 1.05 * LARGE


def test_numbers_speak_of_the_keys_too_that_were_not_scanned(server: Server, client: redis.Redis) -> None:
    for family in ("kue", "qless"):
        generate_keyspace(Address.parse(server.url(family=family)), KeyspaceSpec(LARGE, 1, NOW))
    client.mset({f"session:{uuid4()}": 1 for _ in range(LARGE)})
    detection = detect(whole(server), most_keys=5_000)
    assert detection.stopped_early
    assert found(detection) == dict.fromkeys([("kue", "q"), ("qless", "ql")], Confidence.SURE)
    assert all(0.85 * LARGE <= each.jobs <= 1.15 * LARGE for each in detection.keyspaces)
    assert 0.85 * LARGE <= detection.strangers <= 1.15 * LARGE


def test_collecting_names_leaves_time_to_read_values(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_keyspace(Address.parse(server.url(family="kue")), KeyspaceSpec(LARGE, 1, NOW))
    clock = SimpleNamespace(monotonic=count().__next__)  # a second passes with each page and each batch
    monkeypatch.setattr(detect_module, "time", clock)
    monkeypatch.setattr(key_sample, "time", clock)
    detection = detect(whole(server), most_seconds=9)
    assert (detection.stopped_early, found(detection)) == (True, {("kue", "q"): Confidence.SURE})


def test_a_long_list_counts_as_long_as_it_is(server: Server, client: redis.Redis) -> None:
    store(client, KOMBU, "", KOMBU.generate(3000, 5, NOW), NOW)
    kombu = detect(whole(server)).keyspaces[0]
    assert not kombu.exact
    assert 2900 <= kombu.jobs <= 3100


def test_an_empty_database_holds_nothing(server: Server) -> None:
    assert detect(whole(server)) == Detection((), 0, 0, 0, stopped_early=False, strangers=0, examples=())


# The family "auto"


def address(server: Server, **options: str) -> Address:
    return Address.parse(server.url(family="auto", **options))


def test_auto_is_the_only_keyspace_there(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "custom-prefix"), client)
    strangers(client)
    resolved = resolve(address(server))
    assert (resolved.family, resolved.prefix) == ("kue", "acme:jobs-v2")
    assert resolve(resolved) is resolved


def test_auto_refuses_when_two_fit_and_names_them(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "custom-prefix"), client)
    load(capture("kombu", "healthy"), client)
    with pytest.raises(UsageError, match=r"2 keyspaces.*family=kue&prefix=acme.*family=kombu"):
        resolve(address(server))
    assert resolve(address(server, prefix=quote("acme:jobs-v2"))).family == "kue"


def test_auto_says_what_is_there_when_nothing_fits(server: Server, client: redis.Redis) -> None:
    with pytest.raises(KeyspaceNotFound, match="is empty"):
        resolve(address(server))
    client.hset("session:job:7", mapping={"user": "1"})
    with pytest.raises(KeyspaceNotFound, match=r"nothing.*fits.*well enough.*family=kue&prefix=session"):
        resolve(address(server))


def test_a_snapshot_file_is_looked_at_like_a_server() -> None:
    case = capture("kue", "custom-prefix")
    file = Address.parse(f"ferryman+rdb://{case.rdb}?family=auto")
    detection = detect(file)
    assert found(detection) == {("kue", case.prefix): Confidence.SURE}
    assert detection.keyspaces[0].jobs == case.expected["jobs"]
    resolved = resolve(file)
    assert (resolved.kind, resolved.family, resolved.prefix) == (file.kind, "kue", case.prefix)
    few = detect(file, most_keys=20)
    assert few.stopped_early
    assert few.scanned < few.database_keys


def test_a_cluster_is_looked_at_node_by_node() -> None:
    with pytest.raises(UsageError, match="one node"):
        resolve(Address.parse("ferryman+cluster://localhost:1/0?family=auto"))
