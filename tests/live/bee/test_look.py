"""The look before the first write: what can be served, and what is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.errors import KeyspaceRefused

from ...support.bee import events, keyspace
from .served import ANN, Keyspace, T

pytestmark = pytest.mark.in_turn


def test_an_empty_keyspace_and_one_of_bee_can_be_served_and_a_look_writes_nothing(bee: Keyspace) -> None:
    bee.send(bee.live.look())
    assert bee.client.dbsize() == 0
    bee.put("a", tags=["x"])
    found = keyspace(bee.client)
    bee.send(bee.live.look())
    assert keyspace(bee.client) == found


@contextmanager
def user(client: redis.Redis, *rules: str) -> Iterator[redis.Redis]:
    """A connection of a user with these rights."""
    client.execute_command("ACL", "SETUSER", "clerk", "reset", "on", ">secret", *rules)
    port = client.connection_pool.connection_kwargs["port"]
    try:
        with redis.Redis(host="127.0.0.1", port=port, username="clerk", password="secret") as connected:
            yield connected
    finally:
        client.execute_command("ACL", "DELUSER", "clerk")


def test_a_user_who_may_not_write_is_told(bee: Keyspace) -> None:
    with user(bee.client, "~*", "&*", "+@all", "-del") as clerk, pytest.raises(KeyspaceRefused, match="can be written"):
        run(clerk, bee.live.look())


def test_a_user_who_may_not_publish_goes_without(bee: Keyspace) -> None:
    with user(bee.client, "~bee:*", "~ferryman:*", "resetchannels", "+@all") as clerk, events(bee.client) as published:
        other = Keyspace(clerk)
        other.send(other.live.look())
        other.put("a", preferredHostname="web-1")
        assert other.ids() == ["a"]
        assert other.send(other.live.complete("mail", ANN, [("a", None)], now=T)) == ("completed",)
    assert published == []


def test_a_read_only_replica_is_refused(bee: Keyspace) -> None:
    bee.client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(KeyspaceRefused, match="read-only replica"):
            bee.send(bee.live.look())
    finally:
        bee.client.replicaof("NO", "ONE")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("SET", "bee:str:hive:options", "{"), "no JSON object"),
        (("SET", "bee:scripts", "x"), "not bee's table"),
        (("LPUSH", "bee:mail:wait", "1"), "is not bee's"),
        (("SADD", "bee:ss:queue:mail", "x"), "is not bee's"),
        (("HSET", "bee:h:jobs:a", "jid", "a", "failed_reason", "x"), r"0\.0\.3 or older"),
        (("HSET", "bee:h:jobs:a", "jid", "a", "options", '{"ttl":1,"timeout":180000}'), r"0\.0\.3 or older"),
    ],
)
def test_what_is_not_bees_or_too_old_is_refused_with_the_reason(bee: Keyspace, command: tuple[str, ...], reason: str) -> None:
    bee.client.execute_command(*command)
    with pytest.raises(KeyspaceRefused, match=reason):
        bee.send(bee.live.look())
