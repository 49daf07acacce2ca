"""Snapshot files with every type that a server of each generation writes: read as that server has them."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from attrs import evolve
from ferryman.migrations import rdbfile
from ferryman.migrations.engine import Engine
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.rdb_boundary import REDIS, VALKEY, NoRecord
from ferryman.migrations.rdbfile import HEADER, RdbFile
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError, UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding

from ..support.rdbtypes import codes, fill_expiring, fill_types, knows
from ..support.servers import GENERATIONS, Server, ServerKind, free_cluster_port, generation
from ..support.snapshots import plain, read, saved
from ..support.topologies import wait_until

STREAMS_AND_MODULES = {"stream", "vectors"}


@pytest.fixture(scope="module", params=GENERATIONS)
def kind(request: pytest.FixtureRequest) -> ServerKind:
    found = generation(request.param)
    if found is None:
        pytest.skip(f"there is no {request.param} here")
    return found


@pytest.fixture
def any_server(kind: ServerKind, tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    with kind.start(folder) as server:
        yield server


def standing(server: Server) -> dict[bytes, tuple[str, object]]:
    """What the server answers."""
    found: dict[bytes, Entry] = {}
    with open_source(Address.parse(server.url(family="kombu"))) as live:
        for entry in (entry for batch in live.entries(0) for entry in batch if entry.redis_type in KNOWN):
            # A long list comes in several entries.
            found[entry.key] = evolve(entry, value=found[entry.key].value + entry.value) if entry.offset else entry
    return plain(found.values())


KNOWN = {"string", "list", "set", "zset", "hash"}

WRITTEN = {
    "redis-6.2": {0, 2, 4, 5, 11, 12, 13, 14, 15},
    "redis-system": {0, 2, 4, 5, 11, 16, 17, 18, 19, 0xF5},
    "redis-8.2": {0, 2, 4, 5, 7, 11, 16, 17, 18, 20, 21, 24, 25, 0xF5},
    "valkey-9.1": {0, 2, 4, 5, 11, 16, 17, 18, 20, 21, 22, 0xF5},
}
"""The codes that each has to have written, or the file shows too little."""


def test_every_type_is_read_as_its_server_has_it(any_server: Server, kind: ServerKind, tmp_path: Path) -> None:
    client = any_server.client()
    fill_types(client)
    path = saved(client, any_server, tmp_path)
    assert codes(path) >= WRITTEN[kind.name]
    found = read(path, now_ms=clock_ms(client))
    assert found == standing(any_server)
    assert len(found) == client.dbsize() - client.exists(*STREAMS_AND_MODULES)


def test_every_type_is_passed_where_a_border_is_looked_for(
    any_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = any_server.client()
    for db in range(4):
        fill_types(any_server.client(db)) if db == 0 else any_server.client(db).mset({f"{db}:{n}": n for n in range(2000)})
    for number in range(300):
        client.xadd(f"stream {number}", {"number": number})
        if knows(client, "VADD"):
            client.execute_command("VADD", f"vectors {number}", "VALUES", 2, number, 1, "element")
    path = saved(client, any_server, tmp_path)
    whole = [read(path, db, clock_ms(client)) for db in range(4)]
    monkeypatch.setattr(rdbfile, "PIECE", 3000)
    with RdbFile(path) as file:
        assert len(file.pieces()) > 20
    assert [read(path, db, clock_ms(client)) for db in range(4)] == whole


def clock_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def test_fields_that_have_expired_are_gone_and_hashes_without_others_too(any_server: Server, tmp_path: Path) -> None:
    client = any_server.client()
    if not knows(client, "HPEXPIRE"):
        pytest.skip("its fields don't expire")
    fill_expiring(client, 300_000)
    path = saved(client, any_server, tmp_path)
    whole = standing(any_server)
    assert read(path, now_ms=clock_ms(client)) == whole
    fill_expiring(client, 1)
    wait_until(lambda: client.hlen("packed") == 2 and not client.hget("plain", "goes") and not client.hget("plain, goes", "b"))
    # Redis counts and names fields that nobody has asked for since.
    left = {key: value for key, value in standing(any_server).items() if value[1]}
    assert len(left) == len(whole) - 2
    assert read(path, now_ms=clock_ms(client) + 300_000) == left
    with RdbFile(path) as file:
        list(file.entries(0, clock_ms(client) + 300_000))
        assert file.announced == file.keys == len(whole)


def test_a_server_that_loads_the_file_later_has_the_same_fields(kind: ServerKind, any_server: Server, tmp_path: Path) -> None:
    client = any_server.client()
    if not knows(client, "HPEXPIRE"):
        pytest.skip("its fields don't expire")
    fill_expiring(client, 1500)
    path = saved(client, any_server, tmp_path)
    later = tmp_path / "later"
    later.mkdir()
    (later / "dump.rdb").write_bytes(path.read_bytes())
    wait_until(lambda: client.hget("packed", "goes") is None)
    with kind.start(later) as server:
        assert server.client().hget("packed", "goes") is None
        left = {key: value for key, value in standing(server).items() if value[1]}
        assert read(path, now_ms=clock_ms(server.client())) == left


def test_what_an_evicting_server_and_a_cluster_note_of_keys_is_passed(kind: ServerKind, tmp_path: Path) -> None:
    options = ("--cluster-enabled", "yes", "--maxmemory-policy", "allkeys-lfu")
    with kind.start(tmp_path, *options, port=free_cluster_port()) as server:
        client = server.client()
        client.execute_command("CLUSTER", "ADDSLOTSRANGE" if knows_ranges(client) else "ADDSLOTS", *slots(client))
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        for number in range(50):
            client.hset(f"hash {number}", "number", number)
        path = saved(client, server, tmp_path)
        assert read(path) == {b"hash %d" % number: ("hash", {b"number": b"%d" % number}) for number in range(50)}


def knows_ranges(client: redis.Redis) -> bool:
    return int(client.info("server")["redis_version"].split(".")[0]) >= 7


def slots(client: redis.Redis) -> list[int]:
    return [0, 16383] if knows_ranges(client) else list(range(16384))


# Behind the end


def test_a_snapshot_that_went_through_a_socket_is_read(any_server: Server, tmp_path: Path) -> None:
    client = any_server.client()
    client.config_set("repl-diskless-sync", "yes")
    client.config_set("repl-diskless-sync-delay", 0)
    client.hset("hash", "a", "b")
    path = tmp_path / "stream.rdb"
    path.write_bytes(streamed(any_server))
    assert read(path) == {b"hash": ("hash", {b"a": b"b"})}


def streamed(server: Server) -> bytes:
    """What a replica gets that asks for everything: a snapshot, and behind it the mark that was announced before."""
    with contextlib.closing(socket.create_connection((server.host, server.port), timeout=100)) as replica:
        file = replica.makefile("rb")
        replica.sendall(b"REPLCONF capa eof\r\n")
        line = file.readline()
        replica.sendall(b"PSYNC ? -1\r\n")
        while not line.startswith(b"$EOF:"):
            line = file.readline()
            assert line, "the server has hung up"
        mark = line[len(b"$EOF:") :].strip()
        content = b""
        while not content.endswith(mark):
            content += file.read(1)
        return content


def test_commands_behind_a_snapshot_are_refused_by_name(any_server: Server) -> None:
    client = any_server.client()
    client.config_set("appendonly", "yes")
    wait_until(lambda: client.info("persistence")["aof_enabled"] and not client.info("persistence")["aof_rewrite_in_progress"])
    client.hset("hash", "a", "b")
    wait_until(lambda: bool(list(written(any_server))))
    client.bgrewriteaof()
    wait_until(lambda: rewritten(client))
    (base,) = written(any_server)
    assert read(base) == {b"hash": ("hash", {b"a": b"b"})}
    client.set("later", "x")
    client.execute_command("WAITAOF", 1, 0, 0) if knows(client, "WAITAOF") else client.config_set("appendfsync", "always")
    client.set("later", "y")
    with pytest.raises(UsageError, match=r"commands .* are not replayed\. Run BGSAVE"):
        read(base)


def rewritten(client: redis.Redis) -> bool:
    state = client.info("persistence")
    return (
        not state["aof_rewrite_in_progress"] and not state["aof_rewrite_scheduled"] and state["aof_last_bgrewrite_status"] == "ok"
    )


def written(server: Server) -> Iterator[Path]:
    """The files of the server that begin with a snapshot and are added to."""
    for path in [*server.folder.glob("appendonly.aof"), *server.folder.glob("appendonlydir/*.base.rdb")]:
        if path.is_file() and path.read_bytes()[:5] in (b"REDIS", b"VALKE"):
            yield path


DATA = Path(__file__).parents[1] / "data" / "rdb"


def test_an_append_only_file_without_a_snapshot_and_two_snapshots_in_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n")
    with pytest.raises(UsageError, match="append-only file without a snapshot"):
        RdbFile(path)
    path.write_bytes(2 * (DATA / "three-kue-jobs.rdb").read_bytes())
    with pytest.raises(UsageError, match=r"another snapshot follows the first one at byte 717"):
        read(path)
    with pytest.raises(UsageError, match=r"from byte 717 of 767 on \(SELECT, SET …\), are not replayed"):
        read(DATA / "preamble.aof")


@pytest.mark.parametrize("behind", [b"\0" * 100, b"\n", b"0" * 39, b"\xff" + bytes(7), b"\xff" + bytes(8)])
def test_what_servers_would_not_look_at_is_not_looked_at(behind: bytes, tmp_path: Path) -> None:
    whole = DATA / "three-kue-jobs.rdb"
    path = tmp_path / "file.rdb"
    path.write_bytes(whole.read_bytes() + behind)
    assert read(path) == read(whole) == read(DATA / "three-kue-jobs-eofmark.rdb")


# Forms that no server here writes


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def file_of(folder: Path, header: bytes, *records: bytes) -> Path:
    path = folder / "written.rdb"
    path.write_bytes(header + b"\xfe\x00" + b"".join(records) + b"\x00\x04last\x01x\xff" + bytes(8))
    return path


LAST = {b"last": ("string", b"x")}


def test_fields_that_expire_are_read_as_they_were_written_before_the_release(tmp_path: Path) -> None:
    plain_hash = (
        b"\x16"
        + text(b"plain")
        + b"\x03"
        + b"\x00\x01a\x01b"
        + b"\x80\x00\x00\x03\xe8\x01c\x01d"
        + b"\x80\x00\x00\x07\xd0\x01e\x01f"
    )
    entries = b"\x81a\x02\x81b\x02\x00\x01" + b"\x81c\x02\x81d\x02\xc3\xe8\x02" + b"\x81e\x02\x81f\x02\xf1\xd0\x07\x03"
    packed = (7 + len(entries)).to_bytes(4, "little") + b"\x09\x00" + entries + b"\xff"
    path = file_of(tmp_path, b"REDIS0012", plain_hash, b"\x17" + text(b"packed") + text(packed))
    for now_ms, left in ((999, b"ace"), (1000, b"ae"), (2000, b"a")):
        fields = {bytes([name]): bytes([name + 1]) for name in left}
        assert read(path, now_ms=now_ms) == LAST | {b"plain": ("hash", fields), b"packed": ("hash", fields)}


STREAM_4 = b"".join(
    (
        b"\x1a\x06stream\x01\x10" + bytes(16) + b"\x03abc",  # one node
        b"\x01\x01\x01" + b"\x01\x01\x00\x00\x01",  # where it ends, and what it has seen
        b"\x01\x05group\x01\x01\x01\x01" + bytes(24) + b"\x01",  # a group, and what is pending
        b"\x01\x08consumer" + bytes(16) + b"\x01" + bytes(16),
        b"\x40\x64\x40\x64\x01\x08producer\x02" + 2 * b"\x02id\x01\x01" + b"\x02\x00",  # ids of producers
    )
)
NOTED = b"\xf3\x01\x00\x00\x00\x01\x05\x03abc\x02\x07\x00"
"""What a module notes of the key that follows."""


def test_streams_and_notes_of_redis_8_6_are_passed(tmp_path: Path) -> None:
    noted = NOTED + b"\x04\x04hash\x01\x01a\x01b"
    path = file_of(
        tmp_path, b"REDIS0013", STREAM_4, noted, b"\xfc" + (10**13).to_bytes(8, "little") + noted.replace(b"hash", b"more")
    )
    hashes = {name: ("hash", {b"a": b"b"}) for name in (b"hash", b"more")}
    assert read(path) == LAST | hashes


CONSUMER = b"\x08consumer" + bytes(16)
STREAM_5 = b"\x1b" + STREAM_4[1:].replace(CONSUMER + b"\x01" + bytes(16), CONSUMER + b"\x00" + b"\x01" + bytes(16))
"""A group has released its one pending entry."""
ARRAY = b"".join(
    (
        b"\x1c\x05array\x05\x01\x09",  # five items, the next one to be inserted at 9
        b"\x00\x01" + bytes(8) + b"\x01\x02" + bytes(8) + b"\x02\x03\x03abc" + b"\x07\x00\xc0\x05" + b"\x08\x00\x03xyz",
    )
)
EMPTY_ARRAY = b"\x1c\x05empty\x00\x00"
TEMPLATE = b"\xf2\x01\x02\x01a\x04name"
"""The names of two fields, for hashes that name this template."""


@pytest.mark.parametrize("version", [b"0014", b"0015"])
def test_what_redis_8_8_and_8_10_add_is_passed_and_no_data_of_queues(version: bytes, tmp_path: Path) -> None:
    expiring = b"\xfc" + (10**13).to_bytes(8, "little") + EMPTY_ARRAY
    hash_record = NOTED + b"\x04\x04hash\x01\x01a\x01b"
    path = file_of(tmp_path, b"REDIS" + version, TEMPLATE, STREAM_5, ARRAY, hash_record, expiring, STREAM_4)
    assert read(path) == LAST | {b"hash": ("hash", {b"a": b"b"})}
    with RdbFile(path) as file:
        assert file.dialect.end_mark(file.data, HEADER) == len(file.data) - 9


ENGINES = pytest.mark.parametrize("engine", [MemoryEngine(), ProcessEngine(tasks=2)], ids=["memory", "processes"])


@ENGINES
def test_a_newer_version_is_read_with_a_warning_if_all_its_records_are_known(tmp_path: Path, engine: Engine) -> None:
    delivery_info = {"exchange": "", "routing_key": "celery"}
    message = json.dumps({"body": "", "properties": {"delivery_tag": "t", "delivery_info": delivery_info}}).encode()
    waiting = b"\x01\x06celery\x01\x80" + len(message).to_bytes(4) + message
    path = file_of(tmp_path, b"REDIS0016", ARRAY, waiting)
    findings: list[Finding] = []
    census = engine.audit(Address.parse(f"ferryman+rdb://{path}?family=kombu"), 0, findings.append)
    assert census.jobs == 1
    assert [finding.detail.partition(" ")[2] for finding in findings if finding.rule == "RDB-2"] == [
        "has RDB version 16; ferryman knows 1 to 15, and each record that it has read"
    ]


@ENGINES
def test_a_newer_version_with_an_unknown_record_is_refused_with_advice(tmp_path: Path, engine: Engine) -> None:
    path = file_of(tmp_path, b"REDIS0099", b"\x3a\x03keyabc")
    with pytest.raises(ServerError) as error:
        engine.audit(Address.parse(f"ferryman+rdb://{path}?family=kombu"), 0, lambda _: None)
    assert "the key key (byte 11) is of a type that ferryman does not know (58)" in str(error.value)
    assert "It has RDB version 99, and this version of ferryman knows 1 to 15" in str(error.value)
    assert "read the server itself with ferryman://, or use a newer ferryman" in str(error.value)


@pytest.mark.parametrize(
    ("header", "record", "words"),
    [
        (b"REDIS0015", b"\x1e\x03key\x0d" + bytes(13), r"the key key \(byte 11\) is a hash with a template \(HIMPORT\)"),
        (b"REDIS0015", b"\x20\x03key\x01\x01a\x01b", r"the key key \(byte 11\) is a hash with a template \(HIMPORT\)"),
        (b"VALKEY081", b"\x1c\x03keyabc", r"the key key \(byte 11\) is of a type that ferryman does not know \(28\)"),
        (b"VALKEY081", b"\x1e\x03keyabc", r"the key key \(byte 11\) is of a type that ferryman does not know \(30\)"),
        (b"VALKEY080", b"\xf3\x04name\x01\x00\x05", "a slot was just being moved to this node"),
        (b"REDIS0010", b"\xf6\x04name\x03lua\x00\x03abc", "as before the release of Redis 7.0"),
        (b"REDIS0009", b"\x06\x03keyabc", r"the key key \(byte 11\) is of a type that ferryman does not know \(6\)"),
    ],
)
def test_what_nobody_can_pass_is_named(header: bytes, record: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=words):
        read(file_of(tmp_path, header, record))


def test_codes_mean_something_else_in_each_dialect() -> None:
    record = b"\x16\x03key\x01\x01a\x01b" + b"\xff" * 8
    assert VALKEY.record(record, 0) == len(record)
    with pytest.raises((NoRecord, IndexError)):
        REDIS.record(b"\x16\x03key\x01\x01a\x01" + b"\xc9" * 8, 0)
