"""The kombu reader against what kombu itself said about captured keyspaces, and against any bytes."""

from __future__ import annotations

import datetime
import json
import zlib
from functools import cache
from typing import Any

import pytest
from ferryman.compat.kombu import FAMILY
from ferryman.schema.fact import Entry, Fact, FactKind, Subject
from ferryman.schema.job import Job, State
from ferryman.schema.native import codec
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given
from hypothesis import strategies as st

from ...support.captures import Capture, captures
from .messages import BODY, NOW, bound, held, jobs, message, one, queued, text
from .strategies import entries

CAPTURES = captures("kombu")
each_capture = pytest.mark.parametrize("case", CAPTURES, ids=str)


@cache
def read(case: Capture) -> list[Job]:
    return jobs(*case.entries(), prefix=case.prefix, now_ms=case.captured_at_ms)


def head(job: Job) -> dict[str, Any]:
    """The message but its body, as a native queue will have it."""
    return codec.decode(job.extra["ferryman"]["head"] + b"\n")[0]


def task_id(job: Job) -> str:
    """The name by which the captures know a message: its task, or else its tag."""
    found: str = head(job)["headers"].get("id", f"(no id) {job.id}")
    return found


# Captures


@each_capture
def test_every_message_is_a_job_and_nothing_else_is(case: Capture) -> None:
    assert len(read(case)) == case.expected["jobs"]
    assert {task_id(job) for job in read(case) if job.name} == case.expected["jobs_by_id"].keys()
    assert len({(job.queue, job.id) for job in read(case)}) == case.expected["jobs"]


@each_capture
def test_what_kombu_says_of_a_message_is_what_the_reader_says(case: Capture) -> None:
    for job in read(case):
        said = case.expected["jobs_by_id"].get(task_id(job))
        if said is None:
            assert (job.name, job.payload) == ("", b'{"hello": "world"}')
            continue
        assert (job.queue, job.priority, job.attempts) == (said["queue"], said["priority"], 0)
        assert job.name.startswith("proj.")
        expected_state = "scheduled" if said["eta"] else said["state"]
        assert job.state == expected_state
        assert (job.due_at is not None) == said["eta"]
        content_type = head(job)["content-type"]
        assert content_type == {"json": "application/json", "pickle": "application/x-python-serialize"}[said["serializer"]]
        if said["serializer"] == "json":
            compressed = "compression" in head(job)["headers"]
            args, kwargs, _ = json.loads(zlib.decompress(job.payload or b"") if compressed else job.payload or b"")
            assert kwargs == said["kwargs"]
            assert said["args"] in (None, args)


@each_capture
def test_positions_are_the_order_in_which_kombu_popped(case: Capture) -> None:
    for queue, popped in case.expected["pop_order"].items():
        assert [task_id(job) for job in read(case) if job.queue == queue and job.position is not None] == popped


@each_capture
def test_ranks_never_contradict_positions(case: Capture) -> None:
    for queue in case.expected["by_queue"]:
        ranks = [job.rank for job in read(case) if job.queue == queue and job.position is not None]
        assert None not in ranks
        assert ranks == sorted(ranks, key=lambda rank: rank or 0)


@each_capture
def test_what_a_consumer_has_is_leased_from_the_moment_it_was_taken(case: Capture) -> None:
    [index] = [entry for entry in case.entries() if entry.key.endswith(b"unacked_index")]
    active = {job.id: job for job in read(case) if job.state is State.ACTIVE}
    assert active.keys() == {tag.decode() for tag, _ in index.value}
    for tag, since in index.value:
        job = active[tag.decode()]
        assert job.started_at == int(since * 1000)
        assert job.lease_expires_at == job.started_at + 3_600_000


@each_capture
def test_messages_of_kombu_need_nothing_kept_but_their_head(case: Capture) -> None:
    for job in read(case):
        expected = {"state", "scores"} if job.state is State.ACTIVE else set() if job.name else {"bindings"}
        assert job.extra.get("kombu", {}).keys() == expected


@each_capture
def test_bound_queues_are_listed(case: Capture) -> None:
    keyspace = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).keyspace
    assert set(FAMILY.queues(keyspace)) == case.expected["by_queue"].keys()


def test_a_keyspace_under_a_prefix_is_nothing_of_the_one_without() -> None:
    [case] = [case for case in CAPTURES if case.prefix]
    # Two messages went through an exchange: only the binding tables tell that their lists are not of this keyspace.
    assert jobs(*case.entries()) == []
    assert read_keyspace(FAMILY, case.entries(), "", case.captured_at_ms).findings() == []


# What stands in a message


def test_a_body_is_what_the_publisher_sent_and_its_head_all_else() -> None:
    job = one(queued(message(tenant="acme")))
    assert (job.id, job.queue, job.name, job.payload) == ("tag-1", "celery", "proj.add", BODY)
    assert head(job)["headers"]["tenant"] == "acme"
    assert "body_encoding" not in head(job)["properties"]
    assert head(job)["properties"]["delivery_info"] == {"exchange": "", "routing_key": "celery"}


@pytest.mark.parametrize("body", [b"\x80\x04K\x01.", b"", b"\xff\x00\n", "ü".encode()])
def test_a_body_of_any_bytes_is_not_looked_into(body: bytes) -> None:
    assert one(queued(message(body=body))).payload == body


def test_a_body_without_encoding_is_text() -> None:
    plain = message() | {"body": "grün"}
    del plain["properties"]["body_encoding"]
    assert one(queued(plain)).payload == "grün".encode()


def test_a_task_of_protocol_1_is_described_by_its_body() -> None:
    body = {"task": "old.add", "id": "t", "args": [1], "kwargs": {}, "retries": 2, "eta": "2030-01-02T03:04:05+00:00"}
    job = one(queued(message(body=text(body)) | {"headers": {}}))
    assert (job.name, job.attempts, job.state) == ("old.add", 2, State.SCHEDULED)
    assert job.due_at == int(datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("eta", "due_at"),
    [
        ("1970-01-01T00:00:01+00:00", 1000),
        ("1970-01-01T01:00:01.500499+01:00", 1500),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:01Z", 1000),
        ("9999-12-31T23:59:59-23:59", 253402300799000 + 86_340_000),
        ("0001-01-01T00:00:00+23:59", -62135596800000 - 86_340_000),
        ("soon", None),
        (5, None),
        (None, None),
    ],
)
def test_an_eta_is_a_moment_or_nothing(eta: Any, due_at: int | None) -> None:
    assert one(queued(message(eta=eta))).due_at == due_at


def test_a_task_waits_again_when_its_eta_has_passed() -> None:
    delayed = queued(message(eta="2027-01-15T08:00:00.001+00:00"))
    assert [one(delayed, now_ms=parse_timestamp).state for parse_timestamp in (NOW, NOW + 1)] == [State.SCHEDULED, State.WAITING]
    assert [one(delayed, now_ms=parse_timestamp).position for parse_timestamp in (NOW, NOW + 1)] == [0, 0]


@pytest.mark.parametrize(
    ("limits", "ttl"), [([300, None], 300_000), ([1.5, 1], 1500), ([None, 5], None), ([], None), ("5", None), ([True], None)]
)
def test_the_hard_time_limit_is_the_longest_run_time(limits: Any, ttl: int | None) -> None:
    assert one(queued(message(timelimit=limits))).ttl == ttl


@pytest.mark.parametrize("retries", [0, 3, 57])
def test_retries_do_not_use_up_the_delivery_limit_of_a_native_queue(retries: int) -> None:
    job = one(queued(message(retries=retries)))
    assert job.attempts == retries
    assert job.extra["ferryman"].get("fields") == ({"deliveries": None} if retries else None)


# Order


def test_lower_buckets_are_popped_first_and_each_from_its_tail() -> None:
    keys = [
        queued(message("d"), message("c"), step=3),
        queued(message("b"), message("a")),
        queued(message("f"), step=9),
        queued(message("e"), step=4),
    ]
    assert [(job.id, job.position, job.rank) for job in jobs(*keys)] == [
        ("a", 0, 0),
        ("b", 1, 0),
        ("c", 2, 3),
        ("d", 3, 3),
        ("e", 4, 4),
        ("f", 5, 9),
    ]
    assert [job.extra["kombu"].get("step") for job in jobs(*keys)] == [None, None, 3, 3, 4, 9]


def test_a_list_that_arrives_in_parts_has_one_order() -> None:
    parts = [Entry(b"celery", "list", [text(message(tag))], offset=offset) for offset, tag in enumerate("cba")]
    assert [job.id for job in jobs(parts[1], parts[2], parts[0])] == ["a", "b", "c"]


# What a consumer has


def test_an_unacked_message_belongs_to_the_queue_its_routing_key_names() -> None:
    job = one(*held(message(queue="emails 1", priority=5)))
    assert (job.queue, job.state, job.position, job.rank) == ("emails 1", State.ACTIVE, None, 3)


def test_an_unacked_message_of_an_exchange_belongs_to_a_queue_that_is_bound_to_it() -> None:
    topic = message(exchange="news", key="news.sports.tennis")
    tables = [
        Entry(b"_kombu.binding.news", "set", [b"news.#\x06\x16^(a+)+$\x06\x16all", b"news.*\x06\x16^\x06\x16short"]),
        bound("other", "else"),
    ]
    assert one(*held(topic), *tables).queue == "all"
    assert one(*held(topic)).queue == ""


def test_a_copy_that_waits_elsewhere_is_another_job() -> None:
    topic = message(exchange="news", key="x")
    table = Entry(b"_kombu.binding.news", "set", [b"#\x06\x16^.*?$\x06\x16a", b"x\x06\x16^x$\x06\x16b"])
    found = jobs(*held(topic), queued(topic, queue="a"), table)
    assert [(job.queue, job.state) for job in found] == [("a", State.WAITING), ("b", State.ACTIVE)]


def test_a_task_that_a_consumer_keeps_until_it_is_due_is_active() -> None:
    job = one(*held(message(eta="2031-01-01T00:00:00+00:00")))
    assert (job.state, job.due_at) == (State.ACTIVE, 1924992000000)


def test_unacked_messages_under_another_name_are_found_by_what_they_are() -> None:
    [renamed] = held(message(), since=None)
    job = one(Entry(b"my-unacked-2", "hash", renamed.value))
    assert (job.state, job.started_at, job.lease_expires_at) == (State.ACTIVE, None, None)
    elsewhere = Entry(b"app1:unacked", "hash", renamed.value)
    assert [found.state for found in jobs(elsewhere)] == [State.ACTIVE]
    assert jobs(elsewhere, Entry(b"app1:_kombu.binding.x", "set", [b"x\x06\x16\x06\x16x"])) == []


# What is ours


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"celery-task-meta-1", "string", b'{"status": "SUCCESS"}'),
        Entry(b"sessions", "hash", {b"a": b"[{", b"b": b'[{"not": "a message"}, "", ""]'}),
        Entry(b"app:list", "list", [b"a", b"{}", b'{"b": 1}', b"[]"]),
        Entry(b"board", "zset", [(b"x", 1.0)]),
        Entry(b"names", "set", [b"x"]),
        Entry(b"events", "stream", None),
        Entry(b"ferryman:{celery}:wake", "list", [b"1"]),
        Entry(b"app1:celery", "list", [text(message())]),
        Entry(b"", "string", b""),
    ],
    ids=lambda entry: entry.key.decode(),
)
def test_keys_of_others_are_left_alone(entry: Entry) -> None:
    assert [fact for fact in FAMILY.facts(entry, "") if fact.role not in FAMILY.ambiguous_roles] == []


def test_under_a_prefix_every_list_is_a_queue() -> None:
    [fact] = FAMILY.facts(Entry(b"app1:mail", "list", [b"junk"]), "app1:")
    assert (fact.role, fact.queue) == ("waiting", "mail")
    assert list(FAMILY.facts(Entry(b"mail", "list", [text(message())]), "app1:")) == []


@pytest.mark.parametrize("name", [b"celery", b"mail\x06\x163"])
def test_by_their_names_alone_some_lists_are_queues(name: bytes) -> None:
    [fact] = FAMILY.facts(Entry(name, "list", [b"junk"]), "")
    assert fact.kind is FactKind.RECORD


def test_a_list_with_a_cut_off_message_is_a_queue() -> None:
    job = one(Entry(b"mail", "list", [text(message())[:-7]]))
    assert (job.queue, job.state, job.payload) == ("mail", State.UNKNOWN, text(message())[:-7])


@pytest.mark.parametrize(
    "queue", ["w1@host.celery.pidbox", "0d-1.reply.celery.pidbox", "celeryev.3f", "celeryev"], ids=lambda name: str(name)
)
def test_remote_control_is_no_job(queue: str) -> None:
    [fact] = FAMILY.facts(queued(message(queue=queue), queue=queue), "")
    assert (fact.kind, fact.job_id, fact.values) == (FactKind.TOKEN, None, (b"1",))


@pytest.mark.parametrize(
    ("name", "redis_type"),
    [
        (b"unacked", "string"),
        (b"unacked_index", "hash"),
        (b"unacked_mutex", "list"),
        (b"_kombu.binding.celery", "list"),
        (b"_kombu.binding_permanent.celery", "stream"),
        (b"_kombu.binding_deadlines", "set"),
        (b"_ferryman.staged.celery", "hash"),
    ],
)
def test_a_key_of_ours_that_makes_no_sense_is_odd(name: bytes, redis_type: str) -> None:
    value: Any = {"string": b"", "hash": {}, "stream": None}.get(redis_type, [])
    [fact] = FAMILY.facts(Entry(name, redis_type, value), "")
    assert (fact.kind, fact.job_id) == (FactKind.ODD, None)


# Any bytes


@given(st.lists(entries(), max_size=10), st.integers(-(2**53), 2**53), st.sampled_from(["", "app1:"]))
def test_no_bytes_at_all_make_the_family_fail(keys: list[Entry], now_ms: int, prefix: str) -> None:
    seen = read_keyspace(FAMILY, keys, prefix, now_ms)
    seen.findings()
    for subject in seen.subjects.values():
        job = FAMILY.read(subject, seen.keyspace)
        if job is not None:
            assert job.id == subject.job_id
            list(FAMILY.incompatibilities(job))
    assert type(seen.keyspace.totals).from_json(seen.keyspace.totals.to_json()) == seen.keyspace.totals


@given(st.lists(entries(), min_size=1, max_size=6), st.randoms())
def test_the_order_of_facts_does_not_matter(keys: list[Entry], random: Any) -> None:
    seen = read_keyspace(FAMILY, {(entry.key, entry.offset): entry for entry in keys}.values(), "", NOW)
    for subject in seen.subjects.values():
        shuffled: list[Fact] = list(subject.facts)
        random.shuffle(shuffled)
        again = Subject(subject.job_id, subject.scope, tuple(shuffled))
        assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
        assert list(FAMILY.findings(subject, seen.keyspace)) == list(FAMILY.findings(again, seen.keyspace))
