"""Snapshot files as columns: the same keys as one by one, from every server, and a damaged file ends as NotAPiece at worst."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from struct import pack

import pytest
import redis
from ferryman.migrations.columnar import rdbcolumns
from ferryman.migrations.columnar.columns import Hashes, Keys, Lists, Zset
from ferryman.migrations.columnar.rdbcolumns import unproven
from ferryman.migrations.rdb_boundary import REDIS
from ferryman.migrations.rdb_layout import SELECT_DB
from ferryman.migrations.rdbfile import Decoded, NotAPiece, Piece, RdbFile, Row
from ferryman.schema.family import family_names

from ..support.captures import captures
from ..support.rdbtypes import fill_types
from ..support.servers import GENERATIONS, generation
from ..support.snapshots import NOW

SNAPSHOTS = [case.rdb for system in family_names() for case in captures(system) if case.rdb.exists()]
LIMITS = [float("inf"), float("-inf"), 0, -0.0, 5e-324, 1.7976931348623157e308, 2**53 + 2, -(2**63), 0.1, -17.25, 1e22, 1e-7]


def words(random: Random, number: int) -> list[bytes]:
    """Different texts of every length, among them numbers of every size, and some that compress well."""
    made = dict.fromkeys((b"", b"0", b"-1", b"12", b"13", b"127", b"128", b"00", b"-0", b"+1"))
    while len(made) < number:
        digits = random.choice((1, 2, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 62, 63, 64))
        whole = random.randrange(-(2**digits), 2**digits) if digits < 64 else random.choice((2**63 - 1, -(2**63), 2**63))
        choices = (
            b"%d" % whole,
            random.randbytes(random.choice((3, 63, 64, 200))),
            b"compressible " * random.choice((2, 9, 2000)),
        )
        made[random.choice(choices) + (b"%d" % len(made) if random.random() < 0.3 else b"")] = None
    return random.sample(list(made), number)


def fill(client: redis.Redis, name: str, random: Random) -> None:
    """Keys of every sort, which have this in their names."""
    pipeline = client.pipeline(transaction=False)
    for number, size in enumerate([1, 2, 3, 5, 8, 13, 13, 13, 40, 40, 127, 400, 999, 1003]):
        key = lambda sort, end=b"": b"%b:%b:%d%b" % (name.encode(), sort, number, end)  # noqa: B023, E731
        some = words(random, size)
        scores = [random.choice((*LIMITS, 5, 5, random.random(), random.randrange(10**13))) for _ in some]
        pipeline.hset(key(b"h", random.randbytes(9)), mapping=dict(zip(some, words(random, size), strict=True)))
        pipeline.rpush(key(b"l", b"compressible " * 9), *some)
        pipeline.zadd(key(b"z"), dict(zip(some, scores, strict=True)))
        pipeline.sadd(key(b"s"), *some)
        pipeline.sadd(key(b"i"), *range(size))
        pipeline.set(key(b"t"), some[0])
        pipeline.pexpireat(key(b"z"), NOW + random.choice((-5, 0, 1, 10**9)))
        pipeline.hset(key(b"x"), "a", "b")
        pipeline.pexpireat(key(b"x"), NOW + random.choice((-5, 0, 1, 10**9)))
    pipeline.hset(b"%d" % random.randrange(10**9), "a", "")
    pipeline.zadd(name + ":ties", {b"%d" % member: member % 3 for member in range(25_000)})
    pipeline.execute()


@pytest.fixture(scope="module", params=GENERATIONS)
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a server of each generation, which kept some of its keys packed and others not."""
    kind = generation(request.param)
    if kind is None:
        pytest.skip("not installed")
    folder = tmp_path_factory.mktemp("server")
    with kind.start(folder) as server:
        for db in (0, 3):
            fill(server.client(db), "packed", Random(db))
        for sort in ("hash", "zset"):
            server.client().config_set(f"{sort}-max-ziplist-entries", 0)
        server.client().config_set("list-max-ziplist-size", 3)
        fill(server.client(0), "not-packed", Random(2))
        server.client().save()
    return folder / "dump.rdb"


def rows(found: Iterable[Hashes | Lists | Zset | Row]) -> list[Row]:
    """The keys one by one, in a fixed order."""
    made: list[Row] = []
    for each in found:
        match each:
            case Keys():
                made += _rows(each)
            case Zset():
                if not each.offset:
                    made.append((each.key, "zset", [], each.ttl_ms))
                key, _, value, ttl_ms = made[-1]
                assert (each.key, each.offset, each.ttl_ms) == (key, len(value), ttl_ms)
                value.extend(zip(each.members.to_list(), each.scores.tolist(), strict=True))
            case _:
                made.append(each)
    return sorted(map(plain, made), key=repr)


def _rows(keys: Hashes | Lists) -> Iterator[Row]:
    words, start = keys.words.to_list(), 0
    for key, ttl_ms, count in zip(keys.keys.to_list(), keys.ttls.tolist(), keys.counts.tolist(), strict=True):
        value = words[start : start + count]
        start += count
        ttl = None if ttl_ms < 0 else ttl_ms
        if isinstance(keys, Hashes):
            yield key, "hash", dict(zip(value[::2], value[1::2], strict=True)), ttl
        else:
            yield key, "list", value, ttl


def plain(row: Row) -> Row:
    """The row, so that it equals another one: with what no number equals as text."""
    return (*row[:2], [(member, repr(score)) for member, score in row[2]], row[3]) if row[1] == "zset" else row


Read = tuple[list[Row], Decoded] | None


def one_by_one(file: RdbFile, piece: Piece, db: int = 0, now_ms: int = NOW) -> Read:
    """What rdb-py makes of a piece; None if it is none."""
    decoded = Decoded()
    try:
        return sorted(map(plain, RdbFile.unproven(file, piece, db, now_ms, decoded)), key=repr), decoded
    except NotAPiece:
        return None


def in_columns(file: RdbFile, piece: Piece, db: int = 0, now_ms: int = NOW) -> Read:
    """What this reader makes of it."""
    decoded = Decoded()
    try:
        return rows(unproven(file, piece, db, now_ms, decoded)), decoded
    except NotAPiece:
        return None


def whole(file: RdbFile) -> Piece:
    """The file as one piece."""
    return Piece(9, file.length, 0)


def borders(file: RdbFile) -> list[tuple[int, int]]:
    """Where records truly begin, and the database there."""
    data = file.path.read_bytes()
    at, db, found = 9, 0, []
    while data[at] != 0xFF:
        found.append((at, db))
        db = data[at + 1] if data[at] == SELECT_DB else db
        at = REDIS.record(data, at)
    return [*found, (len(data), db)]


class Alone(RdbFile):
    """A file of which rdb-py gets no piece as a whole: it makes room for any size that it reads, and may end the process."""

    def unproven(self, *_: object) -> Iterator[Row]:
        """None."""
        raise NotAPiece("left to rdb-py")


def assert_same_or_no_piece(file: RdbFile, piece: Piece) -> None:
    """What is no piece is not shown to rdb-py.

    Values of other databases, and of keys that have expired, are not decoded here, so rdb-py alone takes note of their damage.
    """
    found = in_columns(file, piece, now_ms=0)
    assert found is None or found[1].last_db or found == one_by_one(file, piece, now_ms=0)


def test_columns_hold_what_rows_hold(snapshot: Path) -> None:
    random = Random(1)
    with RdbFile(snapshot) as file:
        true = borders(file)
        cuts = [true[0], *sorted(random.sample(true[1:-1], 20)), true[-1]]
        for db in (0, 3, 5):
            assert in_columns(file, whole(file), db) == one_by_one(file, whole(file), db) is not None
            for (start, first_db), (end, _) in pairwise(cuts):
                piece = Piece(start, end, first_db)
                assert in_columns(file, piece, db) == one_by_one(file, piece, db) is not None


def test_false_borders_are_false(snapshot: Path) -> None:
    random = Random(2)
    with Alone(snapshot) as file:
        true = [at for at, _ in borders(file)]
        for _ in range(60):
            start = random.choice((random.choice(true), random.randrange(9, file.length)))
            piece = Piece(start, min(start + random.randrange(100_000), file.length), 0)
            assert_same_or_no_piece(file, piece)


def test_only_what_is_odd_or_long_comes_as_rows(snapshot: Path) -> None:
    with RdbFile(snapshot) as file:
        found = [each for each in unproven(file, whole(file), 0, NOW) if isinstance(each, tuple)]
    types = {(redis_type, len(value) > 1000) for _, redis_type, value, _ in found if redis_type in ("hash", "list", "zset")}
    assert types == {("hash", True), ("list", True)}


def test_it_does_not_matter_how_many_are_decoded_at_once(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RdbFile(snapshot) as file:
        expected = one_by_one(file, whole(file))
        monkeypatch.setattr(rdbcolumns, "MOST_MEMBERS", 7)
        for keys, size in ((3, 1 << 20), (1000, 5000), (1, 1)):
            monkeypatch.setattr(rdbcolumns, "MOST_KEYS", keys)
            monkeypatch.setattr(rdbcolumns, "MOST_BYTES", size)
            assert in_columns(file, whole(file)) == expected


def test_what_is_given_out_outlives_the_file(snapshot: Path) -> None:
    with RdbFile(snapshot) as file:
        expected = one_by_one(file, whole(file))
        given = unproven(file, whole(file), 0, NOW)
        first = next(given)
        rest = list(given)
    assert expected is not None
    assert rows([first, *rest]) == expected[0]


def test_a_file_can_be_closed_while_it_is_read(snapshot: Path) -> None:
    with RdbFile(snapshot) as file:
        given = unproven(file, whole(file), 0, NOW)
        next(given)
    given.close()


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captured_keyspaces_are_the_same(path: Path) -> None:
    with RdbFile(path) as file:
        for piece in file.pieces(3):
            assert in_columns(file, piece) == one_by_one(file, piece)


@pytest.mark.parametrize("name", GENERATIONS)
def test_streams_modules_and_fields_that_expire_are_passed_or_left_to_rdb_py(name: str, tmp_path: Path) -> None:
    kind = generation(name)
    if kind is None:
        pytest.skip(f"there is no {name} here")
    with kind.start(tmp_path) as server:
        client = server.client()
        fill_types(client)
        server.client(3).mset({f"other:{number}": number for number in range(20)})
        client.save()
        seconds, _ = client.time()
    with RdbFile(tmp_path / "dump.rdb") as file:
        for now_ms in (1000 * seconds, 1000 * seconds + 2 * 86_400_000):
            for db in (0, 3):
                found = in_columns(file, whole(file), now_ms=now_ms, db=db)
                assert found == one_by_one(file, whole(file), now_ms=now_ms, db=db)
                assert found is not None


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_are_never_worse_than_no_piece(snapshot: Path, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    with RdbFile(snapshot) as file:
        true = [border for border in borders(file)[5:] if border[1] == 0]
    data = snapshot.read_bytes()
    path = tmp_path / "damaged.rdb"
    for _ in range(60):
        index = random.randrange(len(true) - 10)
        start, end = true[index][0], true[index + 10][0]
        excerpt = bytearray(data[start : min(end, start + 200_000)])
        for _ in range(random.choice((1, 1, 1, 3))):
            at = random.randrange(len(excerpt))
            excerpt[at] = random.choice((random.randrange(256), 0xFF, 0x81, 0xC3, excerpt[at] ^ 1, excerpt[at] ^ 0x80))
        # What is read when a file is opened is whole.
        path.write_bytes(data[:9] + b"\xfe\x00" + excerpt + b"\xff" + bytes(8))
        with Alone(path) as file:
            assert_same_or_no_piece(file, whole(file))


def text(value: bytes) -> bytes:
    """Text as a file has it when it is not compressed."""
    return b"\x80" + len(value).to_bytes(4) + value


def written(folder: Path, *records: bytes) -> RdbFile:
    """A file of these records, in database 0."""
    path = folder / "written.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00" + b"".join(records) + b"\xff" + bytes(8))
    return RdbFile(path)


@pytest.mark.parametrize("order", [1, -1])
def test_members_are_in_order_however_they_are_stored(order: int, tmp_path: Path) -> None:
    scored = [(b"b", 1.0), (b"a", 1.0), (b"ab", 1.0), (b"", -0.0), (b"x", float("-inf")), (b"z", float("inf")), (b"0", 0.0)]
    for members in (scored, sorted(scored, key=lambda each: (each[1], each[0]), reverse=order < 0)):
        value = b"\x05" + text(b"zset") + bytes([len(members)]) + b"".join(text(m) + pack("<d", s) for m, s in members[::order])
        with written(tmp_path, value) as file:
            ((zset,), expected) = list(unproven(file, whole(file), 0, NOW)), one_by_one(file, whole(file))
            assert isinstance(zset, Zset)
            assert expected is not None
            assert rows([zset]) == expected[0]


HUGE = (b"\x81" + b"\xff" * 8, b"\x81\x7f" + b"\xff" * 7, b"\x80" + b"\xff" * 4, b"\x81" + bytes(3) + b"\x01" + bytes(4))


@pytest.mark.parametrize("huge", HUGE)
def test_no_size_is_believed(huge: bytes, tmp_path: Path) -> None:
    for damaged in (
        b"\x04" + text(b"key") + huge,
        b"\x04" + huge + b"key",
        b"\x05" + text(b"key") + huge + text(b"member") + bytes(8),
        b"\x10" + text(b"key") + b"\xc3" + huge + b"\x03abc",
        b"\x10" + text(b"key") + b"\xc3\x03" + huge + b"abc",
        b"\x12" + text(b"key") + b"\x01" + huge + text(b"item"),
    ):
        with written(tmp_path, damaged, b"\x00" + text(b"a") + text(b"b")) as file:
            assert in_columns(file, whole(file)) is None


def listpack(*entries: bytes) -> bytes:
    """A listpack of entries that bring all their bytes."""
    packed = b"".join(entries)
    return text((7 + len(packed)).to_bytes(4, "little") + len(entries).to_bytes(2, "little") + packed + b"\xff")


ODD = {
    "an entry that is longer than the listpack": listpack(b"\xf0\xff\xff\xff\x7f", b"\x81b\x02"),
    "an entry whose length from behind is another": listpack(b"\x81a\x07", b"\x81b\x02"),
    "a field without a value": listpack(b"\x81a\x02"),
    "a listpack of nothing": listpack(),
    "a listpack of no bytes": text(b""),
    "a number cut off": listpack(b"\x81a\x02", b"\xf4\x00"),
    "an entry of no kind": listpack(b"\xf7\x01", b"\x81b\x02"),
    "a copy of what is not there": b"\xc3\x04\x14\x00aa\xff",
    "a copy that leaves its room": b"\xc3\x05\x08\x00a\xe0\xff\x00",
}


@pytest.mark.parametrize("code", [16, 17, 13, 12, 18, 14])
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_is_odd_is_left_to_rdb_py(code: int, value: bytes, tmp_path: Path) -> None:
    before = {18: b"\x01\x02", 14: b"\x01"}.get(code, b"")
    records = [b"\x04" + text(b"whole") + b"\x01\x01a\x01b", bytes([code]) + text(b"odd") + before + value]
    with written(tmp_path, *records) as file:
        assert in_columns(file, whole(file)) == one_by_one(file, whole(file))


@pytest.mark.parametrize(
    "score", [b"1e5", b"-0", b"0.1", b"123456789012345678", b"3.", b".5", b"nan", b"-nan", b"1_0", b" 1", b""]
)
def test_scores_of_any_text_are_what_they_are_to_rdb_py(score: bytes, tmp_path: Path) -> None:
    entries = (b"\x81a\x02", bytes([0x80 + len(score)]) + score + bytes([1 + len(score)]))
    with written(tmp_path, b"\x11" + text(b"zset") + listpack(*entries)) as file:
        assert in_columns(file, whole(file)) == one_by_one(file, whole(file))


def test_a_key_without_a_name_and_keys_that_are_numbers(tmp_path: Path) -> None:
    hashed = b"\x01\x01a\xc0\x80"
    records = [b"\x04" + key + hashed for key in (b"\x00", b"\xc0\xff", b"\xc1\x00\x80", b"\xc2\x00\x00\x00\x80")]
    with written(tmp_path, *records) as file:
        found = in_columns(file, whole(file))
        assert found == one_by_one(file, whole(file))
    assert found is not None
    assert [(row[0], row[2]) for row in found[0]] == [(key, {b"a": b"-128"}) for key in (b"", b"-1", b"-2147483648", b"-32768")]
