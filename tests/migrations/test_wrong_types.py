"""A key that has the name of a family's, but another Redis type, is a finding: whatever the family, whatever the key."""

from __future__ import annotations

import pytest
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

OTHERS = {"string": ("list", [b"x"])}
"""What stands there instead: a string, or a list where a string is right."""


@pytest.mark.parametrize("name", GENERATING)
def test_a_key_of_the_wrong_type_is_told(server: Server, name: str) -> None:
    client, family = server.client(), get_family(name)
    prefix = family.default_prefix
    store(client, family, prefix, list(family.generate(60, 3, NOW)), NOW)
    sound = dump(client)
    silent = set()
    for key, entry in sound.items():
        redis_type, value = OTHERS.get(entry.redis_type, ("string", b"x"))
        changed = {**sound, key: Entry(key, redis_type, value)}
        found = read_keyspace(family, changed.values(), prefix, NOW).findings()
        if key.decode("utf-8", "surrogateescape") not in {finding.key for finding in found}:
            silent.add(key)
    assert silent == set()
