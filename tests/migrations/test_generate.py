"""Generated keyspaces are what the family's own writer makes of the generated jobs, whatever the number of processes."""

from __future__ import annotations

import pytest
import redis
from attrs import evolve
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.schema.sampling import BLOCK_SIZE, Shard, StratifiedSample
from ferryman.testing.keyspaces import dump, store

from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

JOBS = 300
each_family = pytest.mark.parametrize("name", GENERATING)


def lasting(keyspace: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """The keyspace without the milliseconds that keys have left to live."""
    return {key: evolve(entry, ttl_ms=None if entry.ttl_ms is None else 1) for key, entry in keyspace.items()}


@each_family
def test_a_filled_keyspace_is_what_the_writer_makes_of_the_generated_jobs(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    generated = generate_keyspace(Address.parse(server.url(family=name)), KeyspaceSpec(JOBS, 5, NOW), processes=1)
    found = lasting(dump(client))
    client.flushdb()
    jobs = list(family.generate(JOBS, 5, NOW))
    store(client, family, family.default_prefix, jobs, NOW)
    expected = lasting(dump(client))
    assert found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []
    assert generated.census.jobs == JOBS
    assert generated.census.by_state == {
        state: sum(job.state == state for job in jobs) for state in {str(job.state) for job in jobs}
    }


@pytest.mark.parametrize("name", ["bee", "kombu"])
def test_several_processes_write_what_one_would(server: Server, client: redis.Redis, name: str) -> None:
    rule = next(rule.id for rule in get_family(name).rules if rule.id in get_family(name).injectable)
    spec = KeyspaceSpec(2 * BLOCK_SIZE + 100, 3, NOW, {rule: 2})
    address = Address.parse(server.url(family=name))
    generate_keyspace(address, spec, processes=1)
    alone = lasting(dump(client))
    client.flushdb()
    calls: list[int] = []
    generated = generate_keyspace(address, spec, lambda _phase, done, _total: calls.append(done), processes=2)
    assert lasting(dump(client)) == alone
    assert generated.census.jobs == spec.jobs
    assert calls[-1] == spec.jobs


def test_a_server_that_refuses_a_command_is_an_error_that_names_it(server: Server, client: redis.Redis) -> None:
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerError, match=r"refuses SADD .*(OOM|maxmemory)"):
            generate_keyspace(Address.parse(server.url(family="kue")), KeyspaceSpec(50, 1, NOW), processes=1)
    finally:
        client.config_set("maxmemory", 0)


@each_family
def test_lots_made_apart_are_the_jobs_made_at_once(name: str) -> None:
    family = get_family(name)
    together = list(family.generate(2 * BLOCK_SIZE + 10, 2, NOW))
    apart = [list(family.generate(2 * BLOCK_SIZE + 10, 2, NOW, Shard(first, 3))) for first in range(3)]
    assert [len(block) for block in apart] == [BLOCK_SIZE, BLOCK_SIZE, 10]
    assert [(job, job.position) for block in apart for job in block] == [(job, job.position) for job in together]


def test_every_lot_is_told_how_many_cards_of_a_kind_were_dealt_before_it() -> None:
    numbers = iter(range(10**6))
    sample = StratifiedSample(lambda: "rare" if next(numbers) % 10 == 0 else "usual")
    drawn: list[str] = []
    for block, random in Shard().blocks(3 * BLOCK_SIZE, 1):
        before = sample.counts_before(block, lambda kind: kind)
        assert (before["rare"], before["usual"]) == (drawn.count("rare"), drawn.count("usual"))
        drawn += sample.draw(block, random)
