"""The keyspaces in which tests of all families break and mend, at one moment."""

from __future__ import annotations

import redis
from attrs import evolve
from ferryman.schema.connection.address import Address
from ferryman.schema.family import KeyFamily
from ferryman.testing.faults import StoredKeyspace

from .servers import Server

NOW = 1_800_000_000_000


def stored_in(server: Server, client: redis.Redis, family: KeyFamily, prefix: str, now_ms: int = NOW) -> StoredKeyspace:
    """The keyspace of a family in database 0."""
    address = evolve(Address.parse(server.url()), family=family.name, prefix=prefix)
    return StoredKeyspace(address, client, now_ms)
