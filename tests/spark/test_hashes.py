"""Hashes as the server sends them: nothing lost, nothing invented, whatever happens to the keys between two commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import redis
from ferryman.migrations.columnar.hashes import BATCH, FIELDS_BATCH, FIRST, read_fields, read_hashes, read_lists, record_test
from ferryman.migrations.columnar.resp_views import RespReader
from ferryman.migrations.long_keys import LIST_CHUNK
from ferryman.migrations.reading import BATCH_BYTES, SMALL_HASH
from ferryman.migrations.throttle import POLITE_BATCH, UNTHROTTLED, Pace, Throttle
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import open_client
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from ferryman.schema.fact import FactKind
from ferryman.schema.family import Command, family_names, get_family
from redis.exceptions import NoPermissionError

from ..support.captures import captures
from ..support.servers import Server

FREE = UNTHROTTLED.pace()
NAMED = [name for name in family_names() if get_family(name).names_records]


@pytest.fixture
def pipe(server: Server) -> Iterator[PipelineConnection]:
    with open_client(Address.parse(server.url())) as client, open_pipeline(client) as connected:
        yield connected


def interrupted(pipe: PipelineConnection, monkeypatch: pytest.MonkeyPatch, command: bytes, event: Callable[[], object]) -> None:
    """Makes something happen just before a command is sent about each key."""
    connection = pipe._connection
    send = connection.send_packed_command

    def send_later(parts: Sequence[bytes]) -> None:
        if command in b"".join(parts):
            event()
        send(parts)

    monkeypatch.setattr(connection, "send_packed_command", send_later)


def whole(pipe: PipelineConnection, *keys: bytes) -> tuple[dict[bytes, dict[bytes, bytes]], list[bytes]]:
    """The hashes that are read, and the keys that are left."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    others: list[bytes] = []
    for read, left in read_hashes(RespReader(pipe), BinaryViews.of(keys), FREE):
        assert len(read.keys) == len(read.ttls) == len(read.counts)
        found.update((entry.key, entry.value) for entry in read.entries())
        others += left
    return found, others


def field_values(pipe: PipelineConnection, keys: Sequence[bytes], *fields: bytes) -> dict[bytes, list[bytes | None]]:
    """The values of some fields, by key."""
    rows: dict[bytes, list[bytes | None]] = {}
    for found in read_fields(RespReader(pipe), BinaryViews.of(keys), fields, FREE):
        columns = [found.column(index).to_list() for index in range(len(fields))]
        rows.update(zip(found.keys.to_list(), map(list, zip(*columns, strict=True)), strict=True))
    return rows


def test_a_hash_is_read_with_its_time_to_live(client: redis.Redis, pipe: PipelineConnection) -> None:
    client.hset(b"\xffstays", mapping={b"\x00": b"\r\n", b"": b""})
    client.hset("goes", "field", "value")
    client.pexpire("goes", 60_000)
    ((found, left),) = read_hashes(RespReader(pipe), BinaryViews.of([b"\xffstays", b"goes"]), FREE)
    assert left == []
    stays, goes = found.entries()
    assert (stays.value, goes.value) == ({b"\x00": b"\r\n", b"": b""}, {b"field": b"value"})
    assert stays.ttl_ms is None
    assert 0 < goes.ttl_ms <= 60_000


def test_keys_that_are_no_small_hashes_are_left_and_missing_ones_are_not(client: redis.Redis, pipe: PipelineConnection) -> None:
    client.hset("job", "state", "active")
    client.hset("large", mapping={str(number): "" for number in range(SMALL_HASH + 1)})
    client.set("text", "job")
    assert whole(pipe, b"job", b"large", b"text", b"missing") == ({b"job": {b"state": b"active"}}, [b"large", b"text"])


@pytest.mark.parametrize("odd", [[], [b"text"]])
def test_a_hash_that_goes_away_or_becomes_a_text_just_before_it_is_read(
    client: redis.Redis, pipe: PipelineConnection, monkeypatch: pytest.MonkeyPatch, odd: list[bytes]
) -> None:
    client.set("text", "makes that all are asked for once more, by themselves")
    for name in ("stays", "goes", "changes"):
        client.hset(name, "field", name)

    def event() -> None:
        client.delete("goes", "changes")
        client.set("changes", "text")

    interrupted(pipe, monkeypatch, b"HGETALL" if odd else b"HRANDFIELD", event)
    assert whole(pipe, b"goes", b"stays", b"changes", *odd) == ({b"stays": {b"field": b"stays"}}, [*odd, b"changes"])


def test_what_was_read_before_an_odd_reply_stays_and_nothing_gets_out_of_step(
    client: redis.Redis, pipe: PipelineConnection
) -> None:
    keys = [b"%d" % number for number in range(4 * BATCH)]
    for key in keys:
        client.hset(key, "field", key)
    client.delete(keys[BATCH + 3])
    client.set(keys[2 * BATCH + 5], "text")
    found, left = whole(pipe, *keys)
    assert left == [keys[2 * BATCH + 5]]
    assert found == {key: {b"field": key} for key in keys if key not in (keys[BATCH + 3], *left)}


def test_short_lists_are_read_with_their_times_to_live_and_other_keys_are_left(
    client: redis.Redis, pipe: PipelineConnection
) -> None:
    client.rpush("stays", b"\r\n", b"", "third")
    client.rpush("goes", "item")
    client.pexpire("goes", 60_000)
    assert [left for _, left in read_lists(RespReader(pipe), BinaryViews.of([b"stays", b"goes"]), FREE)] == [[]]
    client.rpush("long", *range(LIST_CHUNK))
    client.rpush("just short", *range(LIST_CHUNK - 1))
    client.set("text", "job")
    keys = BinaryViews.of([b"stays", b"missing", b"long", b"goes", b"text", b"just short"])
    ((found, left),) = read_lists(RespReader(pipe), keys, FREE)
    assert left == [b"long", b"text"]
    stays, goes, short = found.entries()
    assert (stays.key, stays.value, stays.ttl_ms) == (b"stays", [b"\r\n", b"", b"third"], None)
    assert (goes.key, goes.value) == (b"goes", [b"item"])
    assert 0 < goes.ttl_ms <= 60_000
    assert (short.key, len(short.value)) == (b"just short", LIST_CHUNK - 1)


def test_fields_that_a_hash_lacks_are_none(client: redis.Redis, pipe: PipelineConnection) -> None:
    client.hset("one", mapping={"state": "active", b"\xff": b"\x00"})
    client.hset("none", "other", "field")
    client.set("text", "job")
    assert field_values(pipe, [b"one", b"none", b"missing", b"text"], b"state", b"\xff", b"type") == {
        b"one": [b"active", b"\x00", None],
        b"none": [None, None, None],
    }


def test_a_hash_that_goes_away_or_comes_back_before_it_is_asked_whether_it_is_there(
    client: redis.Redis, pipe: PipelineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stays", "goes", "changes"):
        client.hset(name, "other", "field")
    call = pipe.call

    def call_later(commands: Iterable[Command]) -> list[Any]:
        client.delete("goes", "changes")
        client.set("changes", "text")
        client.hset("comes", "state", "active")
        return call(commands)

    monkeypatch.setattr(pipe, "call", call_later)
    keys = [b"stays", b"goes", b"changes", b"comes"]
    assert field_values(pipe, keys, b"state", b"type") == {b"stays": [None, None], b"comes": [b"active", None]}


def test_answers_belong_to_their_keys(client: redis.Redis, pipe: PipelineConnection) -> None:
    keys = [str(number).encode() for number in range(5 * BATCH)]
    for key in keys:
        if key[-1:] not in b"123":
            client.hset(key, "state" if key[-1:] < b"7" else "other", key)
        elif key[-1:] == b"1":
            client.set(key, "text")
    there = [key for key in keys if key[-1:] not in b"123"]
    expected = {key: {b"state" if key[-1:] < b"7" else b"other": key} for key in there}
    found, others = whole(pipe, *keys)
    assert found == expected
    assert others == [key for key in keys if key[-1:] == b"1"]
    assert field_values(pipe, keys, b"state") == {key: [fields.get(b"state")] for key, fields in expected.items()}


def test_a_reader_may_lack_the_right_to_read_with_a_bound(client: redis.Redis, pipe: PipelineConnection) -> None:
    client.hset("job", "state", "active")
    client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+hlen", "+pttl", "+hgetall"])
    pipe.ask("AUTH", "reader", "")
    try:
        assert whole(pipe, b"job") == ({b"job": {b"state": b"active"}}, [])
    finally:
        client.acl_deluser("reader")


def test_an_error_of_the_server_is_raised(client: redis.Redis, pipe: PipelineConnection) -> None:
    client.hset("job", "state", "active")
    client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+hlen", "+pttl"])
    pipe.ask("AUTH", "reader", "")
    try:
        with pytest.raises(NoPermissionError, match="hgetall"):
            whole(pipe, b"job")
        with pytest.raises(NoPermissionError, match="hmget"):
            field_values(pipe, [b"job"], b"state")
    finally:
        client.acl_deluser("reader")


class Counted(Pace):
    """Counts the keys of each batch."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__(throttle)
        self.batches: list[int] = []

    def end(self, keys: int) -> None:
        self.batches.append(keys)
        super().end(keys)


def sizes(read: Callable[[Pace], Iterator[Any]], throttle: Throttle) -> list[int]:
    """How many keys each batch has."""
    pace = Counted(throttle)
    for _ in read(pace):
        pass
    return pace.batches


def test_batches_hold_less_where_values_are_large_and_where_the_throttle_is_polite(
    client: redis.Redis, pipe: PipelineConnection
) -> None:
    keys = [str(number).encode() for number in range(FIRST + 2 * BATCH)]
    large = BATCH_BYTES // 50
    client.eval(
        "for _, key in ipairs(KEYS) do redis.call('hset', key, 'data', string.rep('x', ARGV[1])) end", len(keys), *keys, 9
    )
    polite = Throttle(1e9, yields=True)
    replies, names = RespReader(pipe), BinaryViews.of(keys)
    expected = {
        lambda pace: read_hashes(replies, names, pace): [FIRST, BATCH, BATCH],
        lambda pace: read_fields(replies, names, [b"data"], pace): [FIRST, FIELDS_BATCH],
    }
    for read, unthrottled in expected.items():
        assert sizes(read, UNTHROTTLED) == unthrottled
        assert sizes(read, polite) == [POLITE_BATCH] * (len(keys) // POLITE_BATCH)
    for key in keys[:20]:
        client.hset(key, "data", bytes(large))
    often = BinaryViews.of(keys[:20] * (BATCH // 10))
    first, *others = sizes(lambda pace: read_fields(replies, often, [b"data"], pace), UNTHROTTLED)
    assert first == FIRST
    assert max(others) <= 50
    client.flushall()


@pytest.mark.parametrize(("throttle", "ahead"), [(UNTHROTTLED, 1), (Throttle(1e9), 0)], ids=["free", "throttled"])
def test_the_server_works_on_the_next_batch_while_one_is_looked_at(
    client: redis.Redis, pipe: PipelineConnection, monkeypatch: pytest.MonkeyPatch, throttle: Throttle, ahead: int
) -> None:
    keys = [str(number).encode() for number in range(FIRST + 3 * FIELDS_BATCH)]
    client.eval("for _, key in ipairs(KEYS) do redis.call('hset', key, 'state', key) end", len(keys), *keys)
    interruptions: list[object] = []
    interrupted(pipe, monkeypatch, b"HMGET", lambda: interruptions.append(None))
    looked_at = 0
    for found in read_fields(RespReader(pipe), BinaryViews.of(keys), [b"state"], throttle.pace()):
        looked_at += 1
        assert found.column(0).to_list() == found.keys.to_list()
        # How large values are is known once the first batch has come; after the last there is nothing more to ask.
        assert len(interruptions) == looked_at + (ahead if 1 < looked_at < 4 else 0)
    assert looked_at == 4


@pytest.mark.parametrize("name", NAMED)
def test_a_name_tells_whether_a_hash_is_a_record(name: str) -> None:
    family = get_family(name)
    known = [(case, entry) for case in captures(name) for entry in case.entries() if entry.redis_type == "hash"]
    for case, entry in known:
        states_record = any(fact.kind is FactKind.RECORD for fact in family.facts(entry, case.prefix))
        assert bool(record_test(family, case.prefix)(BinaryViews.of([entry.key]))[0]) == states_record, entry.key


def test_records_of_a_family_whose_names_do_not_tell_are_all_hashes() -> None:
    assert record_test(get_family("pjq"), "")(BinaryViews.of([b"whatever"]))[0]


def test_the_first_job_of_all_is_a_record_though_it_is_not_accepted() -> None:
    assert record_test(get_family("kue"), "q")(BinaryViews.of([b"q:job:0"]))[0]
    others = [b"q:settings", b"q:job:5:log", b"q:job:05:log", b"q:job:x:log", b"q:job:"]
    assert not record_test(get_family("kue"), "q")(BinaryViews.of(others)).any()
