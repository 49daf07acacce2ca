"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import json

import pytest
import redis
from ferryman.compat.kickq import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.schema.fact import Entry
from ferryman.testing.faults import StoredKeyspace
from ferryman.testing.keyspaces import dump, read_keyspace

from ...support.captures import capture, load
from ...support.mending import stored_in
from ...support.servers import Server
from .keyspaces import CREATED, DAY, DELAYED, FAILED, NOW, SUCCESS, record

pytestmark = pytest.mark.in_turn

RULES = sorted(FAMILY.injectable, key=lambda rule: int(rule.removeprefix("KICKQ-")))


def test_all_but_a_few_rules_can_be_mended() -> None:
    assert FAMILY.injectable - FAMILY.repairable == {"KICKQ-2", "KICKQ-19", "KICKQ-20", "KICKQ-27", "KICKQ-28", "KICKQ-29"}


# The crashed capture


def crashed(server: Server, client: redis.Redis) -> StoredKeyspace:
    case = capture("kickq", "crashed")
    load(case, client)
    return stored_in(server, client, FAMILY, case.prefix, case.captured_at_ms)


UNMENDABLE = {
    "KICKQ-24": {"52"},  # Its document is cut: nobody may run it.
}


@pytest.mark.parametrize("rule", sorted(FAMILY.repairable - FAMILY.choosable))
def test_what_crashes_left_is_mended_and_nothing_else_is_touched(server: Server, client: redis.Redis, rule: str) -> None:
    stored = crashed(server, client)
    found = {(said[0], said[1]) for said in stored.finding_keys()}
    before = dump(client)
    repairs = stored.repair(rule)
    left = UNMENDABLE.get(rule, set())
    assert {each.finding.job_id for each in repairs if each.outcome is Outcome.UNMENDABLE} == left
    assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
    said = {(said[0], said[1]) for said in stored.finding_keys()}
    assert {job_id for name, job_id in said if name == rule} == left
    assert said <= found
    named = {word for each in repairs for command in each.commands for word in command if isinstance(word, bytes)}
    after = dump(client)
    assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} <= named


def test_all_repairs_together_leave_only_what_people_must_decide(server: Server, client: redis.Redis) -> None:
    stored = crashed(server, client)
    stored.repair(*sorted(FAMILY.repairable))
    left: dict[str, set[str | None]] = {}
    for rule, job_id, _, _ in stored.finding_keys():
        left.setdefault(rule, set()).add(job_id)
    assert left == {
        "KICKQ-2": {"48", "49", "50", "51", "52"},
        "KICKQ-18": {"23", "24", "56"},
        "KICKQ-19": {"25", "29", "30", "32"},
        "KICKQ-20": {"25", "29", "46"},
        "KICKQ-24": {"52"},
    }


# Single cases


def ward_of(server: Server, client: redis.Redis, *entries: Entry) -> StoredKeyspace:
    load(entries, client)
    for entry in entries:
        if entry.redis_type == "hash":
            word = entry.value[b"state"].decode()
            client.sadd(f"kickq:state:{word}", "1")
            client.zadd("kickq:time-index", {"1": CREATED})
    client.set("kickq:id", 1)
    return stored_in(server, client, FAMILY, "kickq")


def test_a_delayed_job_that_lost_its_time_gets_it_back_from_its_delay(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(**{**DELAYED, "scheduledFor": None}))
    stored.repair("KICKQ-11")
    assert stored.finding_keys() == set()
    assert client.zscore("kickq:scheduled", "1") == CREATED + 120_000
    assert json.loads(client.hget("kickq:job:1", "itemData"))["scheduledFor"] == CREATED + 120_000


def test_a_job_whose_time_has_passed_is_queued_at_once(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(**{**DELAYED, "scheduledFor": NOW - 1}))
    stored.repair("KICKQ-11")
    assert stored.finding_keys() == set()
    assert client.lrange("kickq:queue:mail", 0, -1) == [b"1"]
    assert (client.hget("kickq:job:1", "state"), client.smembers("kickq:state:queued")) == (b"queued", {b"1"})


@pytest.mark.parametrize("raw", [b"null", b'{"id":"1"}', b'{"id":"2","name":"mail"}', b"\xff"])
def test_no_job_is_pushed_that_no_worker_could_run(server: Server, client: redis.Redis, raw: bytes) -> None:
    for state in (b"new", b"delayed"):
        client.flushdb()
        stored = ward_of(server, client, record(raw=raw, state=state))
        assert {each.outcome for each in stored.repair("KICKQ-8", "KICKQ-11")} == {Outcome.UNMENDABLE}


def test_of_two_entries_the_one_that_runs_first_stays(server: Server, client: redis.Redis) -> None:
    lists = [Entry(b"kickq:queue:mail", "list", [b"x", b"1", b"x", b"1", b"1"]), Entry(b"kickq:queue:b", "list", [b"1"])]
    stored = ward_of(server, client, record(), *lists)
    stored.repair("KICKQ-23")
    assert client.lrange("kickq:queue:mail", 0, -1) == [b"x", b"1", b"x"]
    assert client.exists("kickq:queue:b") == 0


def test_a_job_in_processing_stays_in_the_queue_into_which_somebody_pushed_it(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(state=b"processing"), Entry(b"kickq:queue:mail", "list", [b"1"]))
    assert {each.outcome for each in stored.repair("KICKQ-10")} == {Outcome.UNMENDABLE}
    assert client.llen("kickq:queue:mail") == 1


def test_a_purge_time_that_is_still_to_come_is_taken_from_the_document(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(**SUCCESS))
    stored.repair("KICKQ-14")
    assert client.zscore("kickq:scheduled-purge", "1") == CREATED + DAY
    assert stored.finding_keys() == set()


def test_runs_of_null_become_an_empty_list_and_any_other_value_stays(server: Server, client: redis.Redis) -> None:
    for runs, outcome in ((None, Outcome.MENDED), ("mine", Outcome.UNMENDABLE)):
        client.flushdb()
        stored = ward_of(server, client, record(runs=runs), Entry(b"kickq:queue:mail", "list", [b"1"]))
        assert [each.outcome for each in stored.repair("KICKQ-22")] == [outcome]
        assert json.loads(client.hget("kickq:job:1", "itemData"))["runs"] == ([] if runs is None else runs)


def test_a_counter_that_is_no_number_becomes_one(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(), Entry(b"kickq:queue:mail", "list", [b"1"]))
    client.set("kickq:id", "junk")
    stored.repair("KICKQ-21")
    assert client.get("kickq:id") == b"1"


def test_keys_that_would_vanish_stay(server: Server, client: redis.Redis) -> None:
    stored = ward_of(server, client, record(), Entry(b"kickq:queue:mail", "list", [b"1"]))
    for key in ("kickq:queue:mail", "kickq:id", "kickq:job:1", "kickq:time-index"):
        client.expire(key, 3600)
    assert {each.outcome for each in stored.repair("KICKQ-1")} == {Outcome.MENDED}
    assert stored.finding_keys() == set()


def test_nothing_is_mended_without_a_reason() -> None:
    """Findings without a repair, about jobs or the keyspace, give no commands."""
    entries = [record(**{**FAILED, "runs": [{"count": 7, "state": "fail"}]}), Entry(b"kickq:other", "string", b"x")]
    seen = read_keyspace(FAMILY, entries, "kickq", NOW)
    for finding in seen.findings():
        if finding.repair is None:
            subject = seen.subjects.get(("", finding.job_id or ""))
            assert FAMILY.repair(finding, subject, seen.keyspace) == []
