"""Servers that a scan can't rely on: they are read in one piece, or the error says what is wrong with them."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.scan import EVERYTHING, Cursors, entries, node, ranges, scan_range, split
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError

from ..support.fakes import fake_server, info, page
from ..support.toy import Toy

MANY = b":1000000\r\n"
REDIS = info(redis_version="7.4.0", redis_mode="standalone", run_id="1")


@pytest.mark.parametrize(
    "info_reply",
    [
        info(redis_version="7.4.0", redis_mode="standalone", run_id="1", dragonfly_version="df-v1.30.0"),
        info(redis_version="6.2.0", redis_mode="proxy", run_id="1"),
        info(version="kvrocks 2.9", kvrocks_version="2.9.0", redis_mode="standalone", run_id="1"),
        info(redis_version="7.4.0", redis_mode="standalone"),
        b"-NOPERM User default has no permissions to run the 'info' command\r\n",
    ],
    ids=["Dragonfly", "a proxy", "Kvrocks", "without a run", "without the right to ask"],
)
def test_a_server_of_whose_cursors_nothing_is_known_is_read_in_one_range(info_reply: bytes) -> None:
    pages = {b"0": page(77, "toy:1"), b"77": page(5, "toy:2"), b"5": page(0, "toy:1", "toy:3")}
    replies = {
        "INFO": info_reply,
        "DBSIZE": MANY,
        "SCAN": lambda command: pages[command[1]],
        "TYPE": b"+string\r\n",
        "PTTL": b":-1\r\n",
        "GET": b"$1\r\nx\r\n",
    }
    with fake_server(replies) as port, redis.Redis(port=port, protocol=2) as client:
        assert node(client).cursors is Cursors.UNKNOWN
        assert split(client, 64) == [EVERYTHING]
        assert [entry.key for batch in entries(client, Toy(), "toy") for entry in batch] == [b"toy:1", b"toy:2", b"toy:3"]


def test_cursors_that_prove_to_be_no_positions_are_an_error() -> None:
    with (
        fake_server({"INFO": REDIS, "DBSIZE": MANY, "SCAN": page(4, "toy:1")}) as port,
        redis.Redis(port=port, protocol=2) as client,
    ):
        spans = split(client, 8)
        assert spans == ranges(8)
        with pytest.raises(ServerError, match="can't be split into ranges; read it with a single partition"):
            list(scan_range(client, spans[4], ["toy:*"]))


@pytest.mark.parametrize(
    ("replies", "otherwise", "words"),
    [
        ({"INFO": REDIS, "TIME": b"*2\r\n$1\r\n1\r\n$1\r\n0\r\n"}, b"-ERR unknown command 'SCAN'\r\n", "does not know SCAN"),
        ({}, b"HTTP/1.1 400 Bad Request\r\n\r\n", "127.0.0.1"),
    ],
    ids=["older than SCAN", "no Redis at all"],
)
def test_a_server_that_does_not_know_what_a_scan_needs_is_one_error(
    replies: dict[str, bytes], otherwise: bytes, words: str
) -> None:
    with fake_server(replies, otherwise) as port, pytest.raises(ServerError, match=words):
        LocalEngine().audit(Address.parse(f"ferryman://127.0.0.1:{port}/0?family=kue"), 0, lambda _: None)
