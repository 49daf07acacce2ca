"""Repairs: shown before they are sent, sent only while nothing has changed, one by one and whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from ferryman.compat.kue import FAMILY as KUE
from ferryman.migrations.preconditions import READING, preconditions
from ferryman.migrations.repair import (
    LARGEST_COMMAND,
    LARGEST_REPAIR,
    Outcome,
    PlannedRepair,
    RefusedRepair,
    applied,
    check_rules,
    note,
    planned,
    send,
)
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import connect
from ferryman.schema.errors import FerrymanError, KeyspaceNotFound, ServerError, UsageError
from ferryman.schema.family import Command
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.faults import StoredKeyspace
from ferryman.testing.keyspaces import dump
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.captures import capture
from ..support.effort import examples
from ..support.mending import NOW, stored_in
from ..support.servers import Server


@pytest.fixture
def stored(server: Server, client: redis.Redis) -> StoredKeyspace:
    return stored_in(server, client, KUE, "q")


@pytest.fixture
def address(server: Server) -> Address:
    return Address.parse(server.url(family="kue"))


def waiting(stored: StoredKeyspace) -> Job:
    """Some waiting job of a sound keyspace."""
    return next(job for job in stored.generate(20, 1) if job.state is State.WAITING)


def test_planning_shows_the_commands_and_changes_nothing(stored: StoredKeyspace, client: redis.Redis, address: Address) -> None:
    job = waiting(stored)
    stored.inject("KUE-4", job)
    before = dump(client)
    (repair,) = planned(address, ["KUE-4"], NOW)
    member = f"{len(job.id):02d}|{job.id}".encode()
    assert repair.commands == (("ZADD", b"q:jobs", str(job.priority).encode(), member),)
    assert repair.outcome is Outcome.PLANNED
    assert dump(client) == before


def interfering(calls: int, interfere: Callable[[], object]) -> Callable[[str, int, int | None], None]:
    """A progress that does something at its n-th call: each reading of a small keyspace makes one."""
    left = [calls]

    def progress(_phase: str, _done: int, _total: int | None) -> None:
        left[0] -= 1
        if left[0] == 0:
            interfere()

    return progress


@pytest.mark.parametrize("reading", [1, 2])
def test_what_is_mended_meanwhile_by_others_is_left_alone(
    stored: StoredKeyspace, client: redis.Redis, address: Address, reading: int
) -> None:
    """During the first reading it is seen late; after the second one only the script can see it."""
    job = waiting(stored)
    stored.inject("KUE-4", job)
    member = f"{len(job.id):02d}|{job.id}"
    progress = interfering(reading, lambda: client.zadd("q:jobs", {member: 77}))
    assert [each.outcome for each in applied(address, ["KUE-4"], NOW, progress)] == [Outcome.CHANGED]
    assert client.zscore("q:jobs", member) == 77


def test_a_job_that_moved_on_is_left_alone(stored: StoredKeyspace, client: redis.Redis, address: Address) -> None:
    job = waiting(stored)
    stored.inject("KUE-5", job)
    progress = interfering(2, lambda: client.hset(f"q:job:{job.id}", "progress", "10"))
    assert [each.outcome for each in applied(address, ["KUE-5"], NOW, progress)] == [Outcome.CHANGED]
    assert client.zscore("q:jobs:inactive", f"{len(job.id):02d}|{job.id}") is None


def test_only_the_finding_whose_keys_changed_is_left(stored: StoredKeyspace, client: redis.Redis, address: Address) -> None:
    first, second = [job for job in stored.generate(20, 1) if job.state is State.COMPLETED][:2]
    stored.inject("KUE-4", first)
    stored.inject("KUE-4", second)
    progress = interfering(2, lambda: client.hset(f"q:job:{first.id}", "progress_data", "{}"))
    outcomes = {each.finding.job_id: each.outcome for each in applied(address, ["KUE-4"], NOW, progress)}
    # The next round finds the changed job again, and nobody touches it any more.
    assert outcomes == {first.id: Outcome.MENDED, second.id: Outcome.MENDED}
    assert client.hget(f"q:job:{first.id}", "progress_data") == b"{}"


def test_several_rules_at_one_job_are_mended_together(stored: StoredKeyspace, address: Address) -> None:
    job = waiting(stored)
    for rule in ("KUE-4", "KUE-5", "KUE-6", "KUE-21"):
        stored.inject(rule, job)
    repairs = applied(address, ["KUE-4", "KUE-5", "KUE-6", "KUE-21"], NOW)
    assert len(repairs) == 4
    assert {each.outcome for each in repairs} == {Outcome.MENDED}
    assert {rule for rule, *_ in stored.finding_keys()} <= {"KUE-15"}


def test_a_key_of_another_type_is_not_written_to(stored: StoredKeyspace, client: redis.Redis, address: Address) -> None:
    stored.generate(20, 1)
    client.delete("q:job:types")
    client.set("q:job:types", "x")
    assert {each.outcome for each in applied(address, ["KUE-25"], NOW)} == {Outcome.UNMENDABLE}
    assert client.get("q:job:types") == b"x"


def test_rules_are_checked_before_anything_is_read() -> None:
    check_rules(KUE, ["KUE-4", "KUE-31"])
    with pytest.raises(UsageError, match=r"no rule 'KUE-99'; rules that can be mended: KUE-1, KUE-2, KUE-3, KUE-4"):
        check_rules(KUE, ["KUE-99"])
    with pytest.raises(UsageError, match=r"no command mends KUE-14 safely \(run any kue process"):
        check_rules(KUE, ["KUE-14"])


def test_an_empty_database_has_nothing_to_mend(address: Address) -> None:
    with pytest.raises(KeyspaceNotFound):
        applied(address, ["KUE-4"], NOW)


def test_a_user_who_may_not_run_scripts_is_told(stored: StoredKeyspace, server: Server, client: redis.Redis) -> None:
    stored.inject("KUE-4", waiting(stored))
    client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "+@all", "-eval", "-evalsha")
    try:
        url = server.url(family="kue").replace("ferryman://", "ferryman://clerk:pw@")
        message = r"KUE-4 of q:job:\d+ was not mended: the user may not call EVALSHA on q:jobs.*: grant \+evalsha"
        with pytest.raises(ServerError, match=message):
            applied(Address.parse(url), ["KUE-4"], NOW)
    finally:
        client.execute_command("ACL", "DELUSER", "clerk")


def test_a_user_who_may_not_write_one_of_the_keys_changes_none(
    stored: StoredKeyspace, server: Server, client: redis.Redis
) -> None:
    if not client.info("server")["redis_version"] >= "7":
        pytest.skip("scripts can't ask for rights before Redis 7")
    stored.inject("KUE-6", waiting(stored))
    client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "+@all", "-lpush")
    before = dump(client)
    try:
        url = server.url(family="kue").replace("ferryman://", "ferryman://clerk:pw@")
        with pytest.raises(ServerError, match="LPUSH"):
            applied(Address.parse(url), ["KUE-6"], NOW)
    finally:
        client.execute_command("ACL", "DELUSER", "clerk")
    assert dump(client) == before


def test_a_command_of_unknown_effect_is_refused() -> None:
    with pytest.raises(FerrymanError, match="EVAL"):
        preconditions([("EVAL", "return 1", 0)], None, ())


# What is compared

texts = st.binary(max_size=12)
FINDING = Finding("KUE-1", Severity.ERROR, None, "", None, "")


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    text=texts,
    items=st.lists(texts, min_size=1, max_size=5),
    hashes=st.dictionaries(texts, texts, min_size=1, max_size=20),
    scores=st.dictionaries(texts, st.floats(allow_nan=False), min_size=1, max_size=5),
)
def test_the_script_compares_any_content_as_it_was_noted(
    address: Address, text: bytes, items: list[bytes], hashes: dict[bytes, bytes], scores: dict[bytes, float]
) -> None:
    client = connect(address)
    client.flushdb()
    client.set("text", text)
    client.rpush("list", *items)
    client.sadd("set", *items)
    client.hset("hash", mapping=hashes)
    client.zadd("zset", scores)
    questions: tuple[Command, ...] = (
        ("GET", b"text"),
        ("PTTL", b"text"),
        ("LRANGE", b"list", 0, -1),
        ("LINDEX", b"list", 0),
        ("SMEMBERS", b"set"),
        ("SISMEMBER", b"set", items[0]),
        ("HGETALL", b"hash"),
        ("HGET", b"hash", b"no such field"),
        ("ZRANGE", b"zset", 0, -1, "WITHSCORES"),
        ("ZSCORE", b"zset", next(iter(scores))),
        ("TYPE", b"nothing"),
        ("EXISTS", b"zset"),
    )
    assert {str(precondition[0]) for precondition in questions} <= READING
    fix = PlannedRepair(FINDING, (("SET", b"done", b"1"),), questions)
    digests = note(client, fix)
    changes: list[Callable[[], object]] = [
        lambda: client.append("text", b"x"),
        lambda: client.pexpire("text", 100_000),
        lambda: client.lpush("list", b"x"),
        lambda: client.sadd("set", b"a new member"),
        lambda: client.hset("hash", b"a new field", b""),
        lambda: client.zadd("zset", {b"a new member": 1}),
    ]
    assert send(client, fix, digests)
    assert client.get("done") == b"1"
    for change in changes:
        digests = note(client, fix)
        client.delete("done")
        change()
        assert not send(client, fix, digests)
        assert client.exists("done") == 0


def test_a_snapshot_file_is_planned_for_and_never_written_to() -> None:
    case = capture("kue", "crashed")
    file = Address.parse(f"ferryman+rdb://{case.rdb}?family=kue")
    assert {each.outcome for each in planned(file, ["KUE-1"], case.captured_at_ms)} == {Outcome.PLANNED}
    with pytest.raises(UsageError, match="snapshot file"):
        applied(file, ["KUE-1"], case.captured_at_ms)


@pytest.mark.parametrize(
    "commands",
    [tuple(("ZREM", b"q:jobs", b"%d" % n) for n in range(LARGEST_REPAIR)), (("HDEL", b"q:job:1", *[b"f"] * LARGEST_COMMAND),)],
    ids=["many", "long"],
)
def test_a_repair_that_would_hold_the_server_is_refused(client: redis.Redis, commands: tuple[Command, ...]) -> None:
    client.zadd("q:jobs", {"1": 1})
    finding = Finding("KUE-1", Severity.ERROR, "1", "q:job:1", None, "too much")
    fix = PlannedRepair(finding, commands, preconditions(commands, None, ()))
    with pytest.raises(RefusedRepair, match=r"KUE-1 of q:job:1 was not mended: it takes .* mend it by hand"):
        send(client, fix, [b""] * len(fix.preconditions))
    assert client.zcard("q:jobs") == 1
