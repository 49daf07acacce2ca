"""Detection and repairs in databases with anything in them: an answer, never an error, and nothing touched that is not named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis
from attrs import evolve
from ferryman.compat.samples import commands
from ferryman.migrations.detect import detect
from ferryman.migrations.repair import Outcome
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.testing.faults import changed_keys, named_words
from ferryman.testing.keyspaces import dump
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..compat.kombu import strategies as kombu
from ..compat.kue import strategies as kue
from ..schema.native import strategies as native
from ..support.effort import examples
from ..support.mending import NOW, stored_in
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

on_a_server = settings(
    max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

KEYSPACES = {"kue": kue.entries("q"), "kombu": kombu.entries(), "ferryman": native.entries()}


def put(client: redis.Redis, entries: Sequence[Entry]) -> None:
    """Stores what a server can hold of the entries: nothing empty, and each key once."""
    client.flushdb()
    for entry in {entry.key: entry for entry in entries}.values():
        for command in commands(entry):
            if len(command) > 2:
                client.execute_command(*command)
            if entry.ttl_ms is not None:
                client.pexpire(entry.key, 100_000_000)


@on_a_server
@given(st.lists(st.one_of(*KEYSPACES.values()), max_size=20))
def test_detection_gives_an_answer_in_any_database(server: Server, client: redis.Redis, entries: list[Entry]) -> None:
    put(client, entries)
    detection = detect(Address.parse(server.url()))
    assert detection.scanned == detection.database_keys == client.dbsize()
    for each in detection.keyspaces:
        assert 0 <= each.explained <= 1
        assert each.keys <= detection.scanned


@pytest.mark.parametrize("family", KEYSPACES)
@on_a_server
@given(data=st.data())
def test_repairs_change_only_what_they_name(server: Server, client: redis.Redis, family: str, data: st.DataObject) -> None:
    put(client, data.draw(st.lists(KEYSPACES[family], max_size=12)))
    stored = stored_in(server, client, get_family(family), get_family(family).default_prefix, NOW)
    before = dump(client)
    try:
        repairs = stored.repair(*sorted(stored.family.repairable))
    except KeyspaceNotFound:
        return
    assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.REMAINS, Outcome.UNMENDABLE}
    assert changed_keys(lasting(before), lasting(dump(client))) <= named_words(repairs)


def lasting(keyspace: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """The keyspace without the milliseconds that keys have left: a time to live runs by itself."""
    return {key: evolve(entry, ttl_ms=None if entry.ttl_ms is None else 1) for key, entry in keyspace.items()}
