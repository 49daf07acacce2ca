"""Exchanges: bindings with versions that never come twice, and broadcasts that are read from where each queue was bound."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.errors import ExchangeTypeError, MalformedValue
from ferryman.schema.native import keys
from ferryman.schema.native.scripts.exchange import Binding, Exchanges

from ...support.native import Send

exchanges = Exchanges()
stream = keys.fanout("ferryman", "news")


def unread(client: redis.Redis, cursor: bytes) -> list[bytes]:
    """The messages after a cursor."""
    found: Any = client.xread({stream: cursor})
    return [fields[b"message"] for _, entries in found for _, fields in entries]


def test_numbers_of_exchanges_beyond_the_first_thousand_are_summed(send: Send, client: redis.Redis) -> None:
    client.hset(keys.unroutable("ferryman"), mapping={f"e{n}": 1 for n in range(999)})
    assert [send(exchanges.count_unroutable(name, 2)) for name in ("last", "late", "later", "e0")] == [2, 2, 4, 3]
    found = send(exchanges.unroutable())
    assert (len(found), found["last"], found[""], found["e0"]) == (1001, 2, 4, 3)
    assert send(exchanges.forget_unroutable("e0")) == 1
    assert "e0" not in send(exchanges.unroutable())


def test_broadcasts_vanish_with_the_last_of_those_who_were_bound_for_a_time(client: redis.Redis, send: Send) -> None:
    cursors = keys.fanout_cursors("ferryman", "news")
    send(exchanges.fanout_bind("news", "short", 5_000))
    send(exchanges.fanout_publish("news", b"1", 100))
    assert 0 < client.pttl(stream) <= 5_000
    assert 0 < client.pttl(cursors) <= 5_000
    send(exchanges.fanout_advance("news", "short", b"1-1", 60_000))
    assert min(client.pttl(stream), client.pttl(cursors)) > 5_000
    send(exchanges.fanout_bind("news", "lasting"))
    assert client.pttl(stream) == client.pttl(cursors) == -1
    send(exchanges.fanout_publish("news", b"2", 100))
    assert client.pttl(stream) == -1
    send(exchanges.fanout_unbind("news", "lasting"))
    assert min(client.pttl(stream), client.pttl(cursors)) > 5_000


def test_bindings_are_listed_and_every_change_has_a_new_version(send: Send) -> None:
    first = send(exchanges.bind("e", "q", "key"))
    second = send(exchanges.bind("e", "q", "other", "^other$"))
    assert send(exchanges.bind("e", "q", "key")) == second > first
    found = send(exchanges.bindings("e"))
    assert found.bindings == (Binding("q", "key"), Binding("q", "other", "^other$"))
    assert found.version == send(exchanges.version("e")) == second
    assert send(exchanges.unbind("e", "q", "key"))
    assert not send(exchanges.unbind("e", "q", "key"))
    assert send(exchanges.version("e")) > second


def test_the_version_of_a_deleted_exchange_never_comes_again(send: Send) -> None:
    old = send(exchanges.bind("e", "q", now=1_000))
    assert send(exchanges.delete("e")) == 1
    assert send(exchanges.version("e")) == 0
    assert send(exchanges.bind("e", "q", now=1_001)) > old


def test_an_expired_binding_is_left_out_and_removed(send: Send, client: redis.Redis) -> None:
    send(exchanges.bind("e", "q", expires_ms=1_000, now=1_000))
    version = send(exchanges.bind("e", "r", now=1_000))
    assert len(send(exchanges.bindings("e", now=1_999)).bindings) == 2
    send(exchanges.bind("e", "q", expires_ms=1_001, now=1_999))
    assert len(send(exchanges.bindings("e", now=2_999)).bindings) == 2
    found = send(exchanges.bindings("e", now=3_000))
    assert found.bindings == (Binding("r"),)
    assert found.version > version
    assert client.hlen(keys.exchange("ferryman", "e")) == 2


MANY = 2_500


def many_bindings(client: redis.Redis, expiry: str = "") -> None:
    client.hset(keys.exchange("ferryman", "e"), mapping={f'["q","{n}",""]': expiry for n in range(MANY)})


def test_very_many_bindings_are_read_in_parts(send: Send, client: redis.Redis) -> None:
    send(exchanges.declare("e", "topic", "spare"))
    many_bindings(client)
    found = send(exchanges.bindings("e"))
    assert (found.type, found.alternate) == ("topic", "spare")
    parts = 1
    while found.rest:
        part = send(exchanges.bindings("e", found.rest))
        assert len(part.bindings) < 1_500
        assert part.before == found.version
        found, parts = found.with_part(part), parts + 1
    assert parts > 1
    assert found.bindings == tuple(sorted(Binding("q", str(n)) for n in range(MANY)))


def test_a_part_of_bindings_says_what_has_changed_since_the_last_one(send: Send, client: redis.Redis) -> None:
    many_bindings(client)
    first = send(exchanges.bindings("e"))
    send(exchanges.bind("e", "new"))
    assert send(exchanges.bindings("e", first.rest)).before > first.version


def test_very_many_expired_bindings_are_removed_in_parts_and_take_their_exchange_with_them(
    send: Send, client: redis.Redis
) -> None:
    send(exchanges.declare("e", "direct", auto_delete=True))
    many_bindings(client, expiry="1000")
    found = send(exchanges.bindings("e", now=2_000))
    assert client.hlen(keys.exchange("ferryman", "e")) > 1_000
    while found.rest:
        part = send(exchanges.bindings("e", found.rest, now=2_000))
        assert part.before == found.version, "what it has removed itself is no change"
        found = found.with_part(part)
    assert found.bindings == ()
    assert not client.exists("ferryman:exchange:e")


def test_of_very_many_bound_queues_some_that_have_expired_are_removed_by_each_call(send: Send, client: redis.Redis) -> None:
    cursors = keys.fanout_cursors("ferryman", "news")
    client.hset(cursors, mapping={f"q{n}": "0-1 1000" for n in range(MANY)})
    client.pexpire(cursors, 500_000)
    assert send(exchanges.fanout_publish("news", b"1", 100, now=2_000)), "those left may be bound"
    assert client.hlen(cursors) == MANY - 1_000
    assert 0 < client.pttl(stream) <= 500_000
    send(exchanges.fanout_bind("news", "lasting", now=2_000))
    assert client.pttl(stream) == client.pttl(cursors) == -1
    for _ in range(3):
        send(exchanges.fanout_publish("news", b"2", 100, now=2_000))
    assert client.hkeys(cursors) == [b"lasting"]


def test_all_bindings_of_a_queue_go_at_once(send: Send) -> None:
    for key in ("a", "b"):
        send(exchanges.bind("e", "q", key))
    assert send(exchanges.unbind_all("e", [Binding("q", "a"), Binding("q", "b"), Binding("q", "c")])) == 2


@pytest.mark.parametrize("name", ["{", "é", "\udcff", 'a"b', "a\nb", "version"])
def test_names_may_be_anything(send: Send, name: str) -> None:
    send(exchanges.bind(name, name, name, name))
    assert send(exchanges.bindings(name)).bindings == (Binding(name, name, name),)
    assert send(exchanges.unbind(name, name, name, name))


def test_fields_that_are_no_bindings_are_counted_and_left_alone(send: Send, client: redis.Redis) -> None:
    send(exchanges.bind("e", "q"))
    client.hset(keys.exchange("ferryman", "e"), mapping={b"\xff": "", "[1,2,3]": "", '["","",""]': "", "[" * 9_000: "x"})
    found = send(exchanges.bindings("e"))
    assert (found.bindings, found.malformed) == ((Binding("q"),), 4)


def test_a_foreign_key_in_an_exchange_s_place_is_named(send: Send, client: redis.Redis) -> None:
    client.set(keys.exchange("ferryman", "e"), "mine")
    with pytest.raises(MalformedValue, match="ferryman:exchange:e"):
        send(exchanges.bindings("e"))


def test_each_bound_queue_reads_what_was_published_after_it_was_bound(send: Send, client: redis.Redis) -> None:
    assert send(exchanges.fanout_publish("news", b"0", 100)) == b""
    early = send(exchanges.fanout_bind("news", "early"))
    assert send(exchanges.fanout_publish("news", b"1", 100))
    late = send(exchanges.fanout_bind("news", "late"))
    assert send(exchanges.fanout_publish("news", b"2", 100))
    assert unread(client, early) == [b"1", b"2"]
    assert unread(client, late) == [b"2"]


def test_a_queue_goes_on_where_it_stopped_and_never_back(send: Send) -> None:
    send(exchanges.fanout_bind("news", "q"))
    first = send(exchanges.fanout_publish("news", b"1", 100))
    second = send(exchanges.fanout_publish("news", b"2", 100))
    assert send(exchanges.fanout_advance("news", "q", second))
    assert send(exchanges.fanout_advance("news", "q", first))
    assert send(exchanges.fanout_bind("news", "q")) == second
    far = b"18446744073709551615-18446744073709551615"
    assert send(exchanges.fanout_advance("news", "q", far))
    assert send(exchanges.fanout_bind("news", "q")) == far


def test_an_expired_queue_is_unbound_and_told_to_bind_again(send: Send, client: redis.Redis) -> None:
    send(exchanges.fanout_bind("news", "q", 1_000, now=1_000))
    assert send(exchanges.fanout_advance("news", "q", b"1-1", 1_500, now=1_500))
    assert send(exchanges.fanout_publish("news", b"1", 100, now=2_999))
    assert send(exchanges.fanout_publish("news", b"2", 100, now=3_000)) == b""
    assert not send(exchanges.fanout_advance("news", "q", b"9-9", now=3_000))
    assert client.dbsize() == 0


def test_the_last_queue_to_leave_takes_the_stream_with_it(send: Send, client: redis.Redis) -> None:
    for queue in ("one", "two"):
        send(exchanges.fanout_bind("news", queue))
    send(exchanges.fanout_publish("news", b"1", 100))
    assert send(exchanges.fanout_unbind("news", "one"))
    assert not send(exchanges.fanout_unbind("news", "one"))
    assert client.exists(stream)
    assert send(exchanges.fanout_delete("news")) == 1
    assert client.dbsize() == 0


def test_the_stream_is_capped(send: Send, client: redis.Redis) -> None:
    send(exchanges.fanout_bind("news", "q"))
    for _ in range(500):
        send(exchanges.fanout_publish("news", b"x", 50))
    assert client.xlen(stream) < 300


def test_an_exchange_keeps_its_type_and_is_not_declared_as_another(send: Send) -> None:
    version = send(exchanges.declare("e", "topic"))
    assert send(exchanges.declare("e", "topic")) == version > 0
    with pytest.raises(ExchangeTypeError, match="'e' is a topic exchange and can't be declared as direct"):
        send(exchanges.declare("e", "direct"))
    found = send(exchanges.bindings("e"))
    assert (found.type, found.alternate, found.bindings, found.malformed) == ("topic", "", (), 0)
    assert send(exchanges.delete("e")) == 0
    assert send(exchanges.declare("e", "direct", now=version + 1)) > version


def test_another_alternate_exchange_is_another_version(send: Send) -> None:
    first = send(exchanges.declare("e", "direct", "spare"))
    assert send(exchanges.bindings("e")).alternate == "spare"
    assert send(exchanges.declare("e", "direct", "spare")) == first
    assert send(exchanges.declare("e", "direct")) > first
    assert send(exchanges.bindings("e")).alternate == ""


def test_an_exchange_may_go_with_its_last_binding(send: Send, client: redis.Redis) -> None:
    send(exchanges.declare("e", "direct", auto_delete=True))
    assert send(exchanges.bindings("e")).type == "direct", "it has not had one yet"
    for queue, life in (("q", None), ("r", 100)):
        send(exchanges.bind("e", queue, expires_ms=life, now=1_000))
    assert send(exchanges.unbind("e", "q", now=1_000))
    assert client.exists("ferryman:exchange:e")
    send(exchanges.bindings("e", now=1_100))
    assert not client.exists("ferryman:exchange:e")
