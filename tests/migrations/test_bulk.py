"""Joined commands do the same as single ones, whatever keys and options they have, and errors of any batch are raised."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.bulk import BATCH_COMMANDS, Bulk, joined
from ferryman.schema.connection.pipeline import open_pipeline
from ferryman.schema.errors import ServerError
from ferryman.schema.family import Command
from ferryman.testing.keyspaces import dump
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.effort import examples

pytestmark = pytest.mark.in_turn

members, scores = st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 9)
zset_keys, set_keys, list_keys, hash_keys = ([f"{letter}{number}".encode() for number in range(2)] for letter in "zslh")
commands = st.one_of(
    st.tuples(st.just("ZADD"), st.sampled_from(zset_keys), scores, members),
    st.tuples(st.just("ZADD"), st.sampled_from(zset_keys), st.sampled_from(["LT", "GT", "NX"]), scores, members),
    st.tuples(st.just("ZADD"), st.sampled_from(zset_keys), scores, members, scores, members),
    st.tuples(st.just("ZINCRBY"), st.sampled_from(zset_keys), scores, members),
    st.tuples(st.just("SADD"), st.sampled_from(set_keys), members),
    st.tuples(st.sampled_from(["RPUSH", "LPUSH"]), st.sampled_from(list_keys), members),
    st.tuples(st.just("HSET"), st.sampled_from(hash_keys), members, members),
    st.tuples(st.just("DEL"), st.sampled_from(zset_keys), st.sampled_from(list_keys)),
    st.tuples(st.just("EVAL"), st.just("redis.call('DEL', 'z0', 'h0')"), st.just(0)),
)


def sent(client: redis.Redis, several: list[Command]) -> object:
    client.flushdb()
    for command in several:
        client.execute_command(*command)
    return dump(client)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(several=st.lists(commands, max_size=12))
def test_joined_commands_have_the_effect_of_the_single_ones(client: redis.Redis, several: list[Command]) -> None:
    assert sent(client, joined(several)) == sent(client, several)


def test_commands_for_one_key_become_one() -> None:
    several: list[Command] = [("SADD", b"s", b"a"), ("ZADD", b"z", 1, b"a"), ("SADD", b"s", b"b"), ("ZADD", b"z", 2, b"b")]
    assert joined(several) == [("SADD", b"s", b"a", b"b"), ("ZADD", b"z", 1, b"a", 2, b"b")]


def test_commands_join_by_their_options_and_not_by_their_first_members() -> None:
    several: list[Command] = [("ZADD", b"z", 1, b"c", 0, b"c"), ("ZADD", b"z", 1, b"c", 0, b"a"), ("ZADD", b"z", "NX", 5, b"b")]
    assert joined(several) == [("ZADD", b"z", 1, b"c", 0, b"c", 1, b"c", 0, b"a"), ("ZADD", b"z", "NX", 5, b"b")]


@pytest.mark.parametrize("after", [0, BATCH_COMMANDS, 2 * BATCH_COMMANDS])
def test_a_refused_command_is_told_whichever_batch_it_stands_in(client: redis.Redis, after: int) -> None:
    client.set("text", "no set")
    with pytest.raises(ServerError, match="refuses SADD b'text'"):
        put_all(client, [("SADD", b"text", b"member"), *(("SET", b"key %d" % number, b"") for number in range(after))])


def put_all(client: redis.Redis, several: list[Command]) -> None:
    with open_pipeline(client) as pipe:
        bulk = Bulk(pipe)
        for command in several:
            bulk.put([command])
        bulk.finish()
