"""Checksums of snapshot files: whoever reads one whole sees that a bit of it has changed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import redis
from ferryman.migrations import rdbfile
from ferryman.migrations.checksum import crc64, joined
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.rdbfile import RdbFile
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import AddressError, ServerError, UsageError
from hypothesis import given
from hypothesis import strategies as st

from ..support.captures import captures
from ..support.rdbtypes import fill_types
from ..support.servers import Server
from ..support.snapshots import NOW, fill, read, saved

DATA = Path(__file__).parents[1] / "data" / "rdb"
FLIPPED = DATA / "flipped-payload.rdb"


def test_the_checksum_is_that_of_the_servers() -> None:
    assert crc64(b"123456789", 0, 9) == 0xE9C6D914C4B8D9CA


@given(st.binary(max_size=1000), st.data())
def test_the_checksum_of_pieces_is_that_of_the_whole(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content)))
    first, second = crc64(content, 0, at), crc64(content, at, len(content))
    assert joined(first, second, len(content) - at) == crc64(content, 0, len(content))


def test_every_flipped_bit_of_a_file_is_seen(client: redis.Redis, server: Server, tmp_path: Path) -> None:
    fill_types(client)
    paths = [saved(client, server, tmp_path), *(case.rdb for name in ("kue", "bee") for case in captures(name)[:2])]
    random = Random(3)
    flipped = tmp_path / "flipped.rdb"
    for path in paths:
        assert read(path)
        for _ in range(60):
            data = bytearray(path.read_bytes())
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            flipped.write_bytes(data)
            with pytest.raises((ServerError, UsageError)):
                read(flipped)


def test_a_file_in_pieces_has_one_checksum(
    client: redis.Redis, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, 200)
    path = saved(client, server, tmp_path)
    monkeypatch.setattr(rdbfile, "PIECE", 1 << 16)
    whole = read(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"x" * 20)
    data[at] = ord("y")
    path.write_bytes(data)
    with RdbFile(path) as file:
        assert len(file.pieces()) > 5
        with pytest.raises(ServerError, match="damaged somewhere in its"):
            list(file.entries(0, NOW))
    with RdbFile(path, is_checked=False) as file:
        assert {entry.key for batch in file.entries(0, NOW) for entry in batch} == set(whole)


def test_a_changed_file_is_refused_before_anything_of_it_is_told() -> None:
    with RdbFile(FLIPPED) as file:
        with pytest.raises(
            ServerError, match=r"their checksum is 078bae22f113b889, and the one written behind them 3911f0566cae"
        ):
            next(file.entries(0, NOW))
        with pytest.raises(ServerError, match="Take a new snapshot"):
            file.must_be_whole()


def test_a_server_that_writes_no_checksum_is_believed(tmp_path: Path) -> None:
    path = DATA / "three-kue-jobs.rdb"
    without = tmp_path / "without.rdb"
    without.write_bytes(path.read_bytes()[:-8] + bytes(8))
    assert read(without) == read(path)


def test_an_address_can_do_without_the_checksum() -> None:
    with pytest.raises(ServerError, match="damaged somewhere"):
        list(LocalEngine().jobs(Address.parse(f"ferryman+rdb://{FLIPPED}?family=kue"), NOW))
    address = Address.parse(f"ferryman+rdb://{FLIPPED}?family=kue&checksum=false")
    assert len(list(LocalEngine().jobs(address, NOW))) == 3
    assert Address.parse(address.url()) == address
    assert Address.parse(f"ferryman+rdb://{FLIPPED}?family=kue").unchecked() == address
    with pytest.raises(AddressError, match="'checksum' is for snapshot files"):
        Address.parse("ferryman://localhost/0?checksum=false")
