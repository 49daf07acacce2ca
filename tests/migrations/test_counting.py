"""Counting by the lengths of indexes: the same numbers as from reading every job, for a few commands."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import pytest
import redis
from ferryman.migrations.counting import count
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.queues import QueueStatus
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError
from ferryman.schema.family import get_family
from ferryman.schema.job import State
from ferryman.testing.keyspaces import store

from ..support.captures import Capture, captures, load
from ..support.servers import Server, free_port

pytestmark = pytest.mark.in_turn

NOW = 1_795_262_676_000
DAY_MS = 86_400_000
SOUND = [each for each in captures("kue") if each.name != "crashed"]


Numbers = dict[str, dict[State, int]]


def both(address: Address, now_ms: int) -> tuple[Numbers, Numbers]:
    """The states of all queues, counted and read."""
    counted = count(address, now_ms)
    assert counted is not None
    return numbers(counted[1]), numbers(LocalEngine().queues(address, now_ms))


def numbers(statuses: Iterable[QueueStatus]) -> Numbers:
    return {status.queue: dict(+status.states) for status in statuses}


@pytest.mark.parametrize("capture", SOUND, ids=str)
def test_a_sound_capture_has_as_many_jobs_counted_as_read(server: Server, client: redis.Redis, capture: Capture) -> None:
    load(capture, client)
    counted, read = both(Address.parse(server.url(family="kue", prefix=quote(capture.prefix))), capture.captured_at_ms)
    assert counted == read
    assert counted


@pytest.mark.parametrize("name", ["ferryman", "kue"])
def test_no_job_is_read_for_it(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, family.generate(300, 3, NOW), NOW)
    address = Address.parse(server.url(family=name))
    counted, read = both(address, NOW)
    assert counted == read
    assert sum(sum(states.values()) for states in counted.values()) == 300
    client.config_resetstat()
    count(address)
    sent = {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in client.info("commandstats").items()}
    reading = {"smembers", "zrange", "zcard", "zcount", "zrangebyscore", "hget", "scard", "time"}
    assert sent.keys() <= reading | {"config|resetstat", "info", "hello", "client|setinfo"}
    assert sum(sent.values()) < 200


@pytest.mark.parametrize("name", ["ferryman", "kue"])
def test_what_has_become_due_waits_though_nobody_looks(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, family.generate(300, 3, NOW), NOW)
    address = Address.parse(server.url(family=name))
    sums = []
    for now_ms in (NOW, NOW + 10 * DAY_MS, NOW + 1000 * DAY_MS):
        counted, read = both(address, now_ms)
        assert counted == read
        sums.append({state: sum(states.get(state, 0) for states in read.values()) for state in (State.WAITING, State.SCHEDULED)})
    assert len({sum(numbers.values()) for numbers in sums}) == 1
    assert sums[0][State.SCHEDULED] > sums[1][State.SCHEDULED] > sums[2][State.SCHEDULED] == 0


@pytest.mark.parametrize("name", ["ferryman", "kue"])
def test_keys_of_wrong_types_count_nothing(server: Server, client: redis.Redis, name: str) -> None:
    for key in ("ferryman:queues", "q:job:types"):
        client.sadd(key, "mail", b"\xff\xfe", "")
    for key in ("ferryman:{mail}:waiting", "ferryman:{mail}:consumers", "q:jobs:mail:inactive"):
        client.set(key, "no zset")
    found = count(Address.parse(server.url(family=name)))
    assert found is not None
    assert {status.states.total() for status in found[1]} == {0}
    assert {"mail", "\udcff\udcfe"} <= {status.queue for status in found[1]}


def test_a_registry_of_a_wrong_type_lists_no_queue(server: Server, client: redis.Redis) -> None:
    client.set("q:job:types", "no set")
    found = count(Address.parse(server.url(family="kue")))
    assert found is not None
    assert found[1] == []


def test_where_only_jobs_tell_nothing_is_counted(server: Server) -> None:
    assert count(Address.parse(server.url(family="qless"))) is None


def test_a_server_that_is_down_is_named() -> None:
    with pytest.raises(ServerError, match="can't be reached"):
        count(Address.parse(f"ferryman://127.0.0.1:{free_port()}/0"))
