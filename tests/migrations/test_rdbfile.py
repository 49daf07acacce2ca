"""Snapshot files: the same keys as the server that wrote them, however the file is cut, and never half of a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from attrs import evolve
from ferryman.migrations import rdbfile
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.rdbfile import Decoded, Piece, RdbFile
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound, ServerError, UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.family import family_names, get_family
from ferryman.schema.job import Job
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given
from hypothesis import strategies as st

from ..support.captures import Capture, captures, load
from ..support.servers import Server
from ..support.snapshots import NOW, fill, plain, read, saved

pytestmark = pytest.mark.in_turn

CASES = [case for system in family_names() for case in captures(system) if case.rdb.exists()]


@pytest.fixture
def full(client: redis.Redis, server: Server, tmp_path: Path) -> tuple[Path, dict[bytes, tuple[str, object]]]:
    """A snapshot with all sorts of keys, and what it holds when it is read as one piece."""
    fill(client)
    path = saved(client, server, tmp_path)
    with RdbFile(path) as file:
        rows = file.decode(Piece(9, path.stat().st_size, 0), 0, 0).rows
        return path, plain([Entry(*row) for row in rows])


def test_what_is_read_is_what_the_server_has(full: tuple[Path, dict[bytes, tuple[str, object]]], server: Server) -> None:
    with open_source(Address.parse(server.url(family="kombu"))) as live:
        standing = plain([entry for batch in live.entries(0) for entry in batch])
    assert full[1] == standing
    assert len(standing) == 7 * 400


@pytest.mark.parametrize("size", [1 << 21, 1 << 18, 1 << 15, 1 << 13])
def test_a_file_in_pieces_is_the_same_file(
    full: tuple[Path, dict[bytes, tuple[str, object]]], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = full
    monkeypatch.setattr(rdbfile, "PIECE", size)
    with RdbFile(path) as file:
        assert len(file.pieces()) > 1
    assert read(path, now_ms=0) == whole


def string(text: bytes) -> bytes:
    """Text as an RDB file has it when it is not compressed."""
    return b"\x80" + len(text).to_bytes(4) + text


def test_a_value_full_of_records_deceives_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = b"\x00\x05bogus\x05value" * 100_000
    values = {b"key:%d" % number: b"x" * 100 for number in range(500)} | {b"trap": trap} | {b"last": b"x"}
    records = b"".join(b"\x00" + string(key) + string(value) for key, value in values.items())
    path = tmp_path / "trap.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00" + records + b"\xff" + bytes(8))
    monkeypatch.setattr(rdbfile, "PIECE", 50_000)
    with RdbFile(path) as file:
        wrong = [piece for piece in file.pieces() if _is_wrong(file, piece)]
    assert wrong, "the trap must have caught a boundary, or this test shows nothing"
    assert read(path) == {key: ("string", value) for key, value in values.items()}


def _is_wrong(file: RdbFile, piece: Piece) -> bool:
    try:
        file.decode(piece, 0, 0)
    except rdbfile.NotAPiece:
        return True
    return False


def test_parts_of_a_file_are_read_as_if_nothing_stood_between_them(tmp_path: Path) -> None:
    records = [b"\x00" + string(b"key:%d" % number) + string(b"x") for number in range(3)]
    path = tmp_path / "parts.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00" + b"".join(records) + b"\xff" + bytes(8))
    (first, second), (third, end) = ((11 + index * len(records[0]), 11 + (index + 1) * len(records[0])) for index in (0, 2))
    with RdbFile(path) as file:
        for last in (end, file.length):
            decoded = Decoded()
            assert [key for key, *_ in file.rows([(first, second), (third, last)], 0, 0, NOW, decoded)] == [b"key:0", b"key:2"]
            assert decoded.keys == 2
        with pytest.raises(rdbfile.NotAPiece):
            list(file.rows([(first, second), (third, end - 1)], 0, 0, NOW, Decoded()))


def test_databases_are_kept_apart_in_pieces_too(
    client: redis.Redis, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for db in (0, 3, 9):
        server.client(db).mset({f"{db}:{number}": "x" * 200 for number in range(2000)})
    path = saved(client, server, tmp_path)
    monkeypatch.setattr(rdbfile, "PIECE", 20_000)
    for db in (0, 3, 9, 5):
        assert set(read(path, db)) == ({b"%d:%d" % (db, number) for number in range(2000)} if db != 5 else set())


def test_keys_that_had_expired_are_left_out_and_others_say_how_long_they_live(
    client: redis.Redis, server: Server, tmp_path: Path
) -> None:
    client.set("soon", "x", pxat=NOW + 5000)
    client.set("later", "x", pxat=NOW + 60_000)
    path = saved(client, server, tmp_path)
    with RdbFile(path) as file:
        (entries,) = file.entries(0, NOW + 5000)
    assert [(entry.key, entry.ttl_ms) for entry in entries] == [(b"later", 55_000)]


def test_keys_that_can_not_be_read_are_counted(client: redis.Redis, server: Server, tmp_path: Path) -> None:
    load(captures("kue")[0], client)
    client.xadd("events", {"a": "b"})
    path = saved(client, server, tmp_path)
    findings: list[Finding] = []
    LocalEngine().audit(Address.parse(f"ferryman+rdb://{path}?family=kue"), NOW, findings.append)
    assert [finding.detail.partition(" of ")[0] for finding in findings if finding.rule == "RDB-1"] == ["1 key"]


def test_several_files_are_one_keyspace(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    case = next(case for case in captures("kue") if case.name == "healthy")
    entries = list(case.entries())
    for shard in range(2):
        client.flushall()
        load([entry for index, entry in enumerate(entries) if index % 2 == shard], client)
        saved(client, server, tmp_path).rename(tmp_path / f"shard-{shard}.rdb")
    load(entries, server.client(1))
    found = jobs(Address.parse(f"ferryman+rdb://{tmp_path}/shard-*.rdb?family=kue"), case.captured_at_ms)
    assert found == jobs(Address.parse(server.url(1, family="kue")), case.captured_at_ms)


# What is made of a file


def jobs(address: Address, now_ms: int) -> list[Job]:
    return list(LocalEngine().jobs(address, now_ms))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_snapshot_gives_the_jobs_and_findings_of_its_server(case: Capture) -> None:
    address = evolve(Address.parse(f"ferryman+rdb://{case.rdb}?family={case.system}"), prefix=case.prefix)
    with RdbFile(case.rdb) as file:
        left = {entry.key: entry.ttl_ms for batch in file.entries(0, case.captured_at_ms) for entry in batch}
    # The file and the list of keys were not taken at the same moment.
    entries = [evolve(entry, ttl_ms=left[entry.key]) for entry in case.entries() if entry.key in left]
    assert all((entry.ttl_ms is None) == (left[entry.key] is None) for entry in case.entries() if entry.key in left)
    seen = read_keyspace(get_family(case.system), entries, case.prefix, case.captured_at_ms)
    expected = (get_family(case.system).read(subject, seen.keyspace) for subject in seen.subjects.values())
    assert sorted(jobs(address, case.captured_at_ms), key=repr) == sorted(filter(None, expected), key=repr)
    findings: list[Finding] = []
    LocalEngine().audit(address, case.captured_at_ms, findings.append)
    assert sorted(map(repr, findings)) == sorted(map(repr, seen.findings()))


# Files that are none


def test_the_time_of_a_snapshot_is_its_own(client: redis.Redis, server: Server, tmp_path: Path) -> None:
    client.set("a", "b")
    seconds, _ = client.time()
    with open_source(Address.parse(f"ferryman+rdb://{saved(client, server, tmp_path)}?family=kue")) as source:
        assert abs(source.clock_ms() - int(seconds) * 1000) < 60_000


def test_what_is_no_snapshot_is_said_in_one_line(tmp_path: Path) -> None:
    for content, words in ((b"", "no RDB file"), (b"PK\x03\x04 a zip", "no RDB file"), (b"REDIS0000", "version '0000' is not")):
        path = tmp_path / "file.rdb"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            RdbFile(path)
    with pytest.raises(UsageError, match="No such file"):
        RdbFile(tmp_path / "nowhere.rdb")
    with (
        pytest.raises(UsageError, match="no file fits"),
        open_source(Address.parse(f"ferryman+rdb://{tmp_path}/*.none?family=kue")),
    ):
        pass


def test_a_snapshot_without_the_keyspace_says_what_to_check() -> None:
    address = Address.parse(f"ferryman+rdb://{CASES[0].rdb}?family=kue&prefix=other")
    with pytest.raises(KeyspaceNotFound, match="prefix 'other' in database 0"):
        list(LocalEngine().jobs(address, NOW))


def test_a_file_that_is_cut_short_counts_for_nothing(full: tuple[Path, dict[bytes, tuple[str, object]]], tmp_path: Path) -> None:
    data = full[0].read_bytes()
    path = tmp_path / "short.rdb"
    for length in (len(data) - 1, len(data) - 9, len(data) // 2, 100):
        path.write_bytes(data[:length])
        with pytest.raises(ServerError, match="cut short or damaged"):
            read(path)


ENORMOUS = b"\xc3\x03\x81" + (1 << 40).to_bytes(8) + b"abc"
"""A text of three bytes that says that it has a terabyte when it is unpacked."""


@pytest.mark.parametrize(
    "record",
    [b"\x00" + string(b"key") + ENORMOUS, b"\x04" + string(b"key") + b"\x01" + ENORMOUS + string(b"x"), b"\xfa" + 2 * ENORMOUS],
    ids=["value", "field", "remark"],
)
def test_a_size_for_which_no_memory_is_enough_does_not_end_the_process(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "enormous.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00" + record + b"\xff" + bytes(8))
    with pytest.raises(ServerError, match="cut short or damaged somewhere from byte 9 on"):
        read(path)


def test_a_text_that_looks_like_such_a_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lookalike.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00\x00" + string(b"key") + string(ENORMOUS) + b"\xff" + bytes(8))
    assert read(path) == {b"key": ("string", ENORMOUS)}


@given(at=st.integers(min_value=0), noise=st.binary(min_size=1, max_size=8))
def test_damaged_bytes_are_an_error_or_a_value_and_never_a_crash(
    at: int, noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(CASES[0].rdb.read_bytes())
    at = 9 + at % (len(data) - 9)
    data[at : at + len(noise)] = noise
    path = tmp_path_factory.getbasetemp() / "damaged.rdb"
    path.write_bytes(data)
    try:
        keys = read(path)
    except ServerError as error:
        assert "damaged" in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert all(isinstance(key, bytes) for key in keys)
