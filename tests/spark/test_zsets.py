"""Zsets chunk by chunk: the same members and scores as the server tells, however few of its scores are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from ferryman.migrations.columnar.resp_views import RespReader, UnexpectedReply
from ferryman.migrations.columnar.zsets import read_zset
from ferryman.migrations.long_keys import Sizes
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import open_client
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.servers import Server

SIZES = Sizes(members=10)
INFINITE = float("inf")


@pytest.fixture
def pipe(server: Server) -> Iterator[PipelineConnection]:
    with open_client(Address.parse(server.url())) as client, open_pipeline(client) as connected:
        yield connected


def members(replies: RespReader, key: bytes) -> list[tuple[bytes, float]]:
    entries = [zset.entry() for zset in read_zset(replies, key, None, SIZES)]
    assert [entry.offset for entry in entries] == [sum(len(e.value) for e in entries[:at]) for at in range(len(entries))]
    return list(chain.from_iterable(entry.value for entry in entries))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # each example begins with an empty server
@given(
    runs=st.lists(
        st.tuples(st.sampled_from([-INFINITE, -10.0, -0.0, 0.0, 0.1, 5.0, 1e300, INFINITE]), st.integers(1, 45)), max_size=5
    )
)
def test_members_and_scores_are_those_of_the_server(server: Server, runs: Sequence[tuple[float, int]]) -> None:
    client = server.client()
    client.flushall()
    for run, (score, number) in enumerate(runs):
        client.zadd("places", {f"{run}|{index}": score for index in range(number)})
    with open_client(Address.parse(server.url())) as connected, open_pipeline(connected) as pipe:
        replies = RespReader(pipe)
        assert members(replies, b"places") == client.zrange("places", 0, -1, withscores=True)
        assert members(replies, b"places") == client.zrange("places", 0, -1, withscores=True)


def asked_for(pipe: PipelineConnection, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent from now on."""
    sent: list[bytes] = []
    send = pipe._connection.send_packed_command
    monkeypatch.setattr(pipe._connection, "send_packed_command", lambda parts: (sent.append(b"".join(parts)), send(parts)))
    return sent


def test_a_score_is_asked_for_only_at_the_ends_where_many_have_the_same(
    pipe: PipelineConnection, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.client().zadd("places", {f"{index:03}": 7.0 for index in range(100)})
    sent = asked_for(pipe, monkeypatch)
    assert members(RespReader(pipe), b"places") == [(b"%03d" % index, 7.0) for index in range(100)]
    assert all(each.startswith(b"*1\r\n$5\r\nMULTI") for each in sent)


def test_scores_are_asked_for_where_they_differ_and_not_after_that(
    pipe: PipelineConnection, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {f"{index:03}": float(min(index, 50)) for index in range(150)}
    server.client().zadd("places", scores)
    sent = asked_for(pipe, monkeypatch)
    assert members(RespReader(pipe), b"places") == [(name.encode(), score) for name, score in scores.items()]
    by_transaction = [each.startswith(b"*1\r\n$5\r\nMULTI") for each in sent]
    assert by_transaction[:2] == [True, False], "the first chunk is taken for one of one score, and the second not any more"
    assert by_transaction[2:5] == [False] * 3
    assert by_transaction[-9:] == [True] * 9


def test_a_zset_that_changes_between_two_chunks_keeps_its_scores(pipe: PipelineConnection, server: Server) -> None:
    client = server.client()
    client.zadd("places", {f"{index:03}": 1.0 for index in range(50)})
    read = read_zset(RespReader(pipe), b"places", None, SIZES)
    first = next(read).entry().value
    client.zadd("places", {f"before {index}": 0.0 for index in range(25)} | {f"behind {index}": 2.0 for index in range(25)})
    others = list(chain.from_iterable(zset.entry().value for zset in read))
    assert [member for member in first + others if not member[0].startswith(b"be")] == [(b"%03d" % at, 1.0) for at in range(50)]
    assert [score for name, score in others if name.startswith(b"behind")] == [2.0] * 25
    assert not [name for name, _ in others if name.startswith(b"before")]


def test_who_may_not_begin_a_transaction_reads_all_scores(server: Server) -> None:
    client = server.client()
    client.zadd("places", {f"{index:03}": 1.0 for index in range(35)})
    client.acl_setuser("reader", enabled=True, passwords=["+reader"], keys=["*"], categories=["+@all"], commands=["-multi"])
    try:
        with (
            open_client(Address.parse(server.url().replace("://", "://reader:reader@"))) as connected,
            open_pipeline(connected) as pipe,
        ):
            replies = RespReader(pipe)
            assert members(replies, b"places") == [(b"%03d" % index, 1.0) for index in range(35)]
    finally:
        client.acl_deluser("reader")


def test_a_key_of_another_type_has_no_members(pipe: PipelineConnection, server: Server) -> None:
    server.client().set("places", "none")
    replies = RespReader(pipe)
    assert members(replies, b"places") == []
    with pytest.raises(UnexpectedReply):
        replies.transaction((b"ZRANGE", b"places", b"0", b"-1"), (b"LRANGE", b"others", b"0", b"-1"))
    assert pipe.ask("GET", "places") == b"none", "all that was awaited has been read"


def test_words_of_one_moment_and_later_replies_follow_one_another(pipe: PipelineConnection, server: Server) -> None:
    server.client().rpush("items", "a", "b")
    replies = RespReader(pipe)
    first, nothing = replies.transaction((b"LRANGE", b"items", b"0", b"-1"), (b"LRANGE", b"others", b"0", b"-1"))
    replies.ask(BinaryViews.of([b"items"]), (b"LRANGE", b"1", b"1"))
    _, second = replies.arrays(1)
    assert (first.to_list(), nothing.to_list(), second.to_list()) == ([b"a", b"b"], [], [b"b"])
