"""A migration that goes through is right, and a verification says so: whatever state the source is in, whatever the target."""

from __future__ import annotations

from collections.abc import Iterator

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.migrations.engine import Difference, Verification
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.family import family_names, get_family
from ferryman.schema.text import dump_json
from ferryman.testing.keyspaces import expire_sooner
from kombu import Connection, Exchange, Producer, Queue

from ..support.captures import DATA, Capture, captures, load
from ..support.mending import NOW
from ..support.servers import Server, installed_servers

ENGINE = LocalEngine()
CASES = [case for folder in sorted(DATA.iterdir()) if folder.is_dir() for case in captures(folder.name)]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all: what is compared here does not depend on its make."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("faultless")) as server:
        yield server


def address(server: Server, db: int, family: str, prefix: str | None = None) -> Address:
    prefix = get_family(family).default_prefix if prefix is None else prefix
    return Address(Address.parse(server.url()).kind, ((server.host, server.port),), db, family=family, prefix=prefix)


def carried_and_compared(
    source: Address, target: Address, server: Server, now_ms: int, *, lossy: bool
) -> tuple[Verification, list[Difference]]:
    """Migrates into an empty database, lets an hour pass for the times to live at the source, and verifies."""
    server.client(target.db).flushdb()
    plan = Plan.between(source, target, now_ms, lossy=lossy)
    ENGINE.migrate(source, target, plan, lambda _finding: None)
    expire_sooner(server.client(source.db), HOUR_MS)
    differences: list[Difference] = []
    return ENGINE.verify(source, target, plan, differences.append), differences


@pytest.mark.parametrize("ends", [False, True], ids=["as-is", "keys-that-expire"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_capture_that_is_carried_to_any_family_is_right_there(lasting: Server, case: Capture, ends: bool) -> None:
    client = lasting.client(0)
    client.flushdb()
    load(case, client)
    if ends:
        for key in list(client.scan_iter(count=1000)):
            client.pexpire(key, 100 * HOUR_MS)
    source = address(lasting, 0, case.system, case.prefix)
    for family in ("ferryman", case.system) if ends else family_names():
        _, found = carried_and_compared(source, address(lasting, 1, family), lasting, case.captured_at_ms, lossy=not ends)
        assert found == [], family


def test_of_a_message_in_two_places_the_one_that_goes_over_is_compared(lasting: Server) -> None:
    client = lasting.client(0)
    client.flushdb()
    message = {
        "body": "W10=",
        "headers": {"task": "app.add", "id": "1"},
        "properties": {
            "delivery_tag": "1",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "body_encoding": "base64",
        },
    }
    client.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
    client.lpush("celery", dump_json(message))
    client.hset("unacked", "1", dump_json([message, "", "celery"]))
    client.zadd("unacked_index", {"1": NOW / 1000})
    source, target = address(lasting, 0, "kombu"), address(lasting, 1, "ferryman")
    outcome, found = carried_and_compared(source, target, lasting, NOW, lossy=False)
    assert found == []
    assert (outcome.source_jobs, outcome.target_jobs, outcome.matched, outcome.refused) == (2, 1, 1, 1)


def test_a_message_in_several_queues_stays_where_ids_are_not_kept_apart(lasting: Server) -> None:
    (case,) = [each for each in captures("kombu") if each.name == "healthy"]
    client = lasting.client(0)
    client.flushdb()
    load(case, client)
    target = address(lasting, 1, "bee")
    outcome, found = carried_and_compared(
        address(lasting, 0, "kombu", case.prefix), target, lasting, case.captured_at_ms, lossy=True
    )
    assert found == []
    assert outcome.refused >= 2
    assert outcome.source_jobs == outcome.target_jobs + outcome.refused


@pytest.mark.parametrize("family", ["bee", "kickq", "pjq", "qless"])
def test_a_message_that_an_exchange_has_sent_to_several_queues_stays_too(lasting: Server, family: str) -> None:
    for db in (0, 1):
        lasting.client(db).flushdb()
    media = Exchange("media", "topic")
    with Connection(lasting.url(0)) as connection, connection.channel() as channel:
        for queue, binding in (("all", "image.#"), ("large", "image.*.large"), ("sound", "sound")):
            Queue(queue, media, binding).declare(channel=channel)
        for key in ("image.cat.large", "image.cat.small", "sound"):
            Producer(channel, media).publish({"key": key}, routing_key=key)
    outcome, found = carried_and_compared(address(lasting, 0, "ferryman"), address(lasting, 1, family), lasting, NOW, lossy=True)
    assert found == []
    assert (outcome.source_jobs, outcome.refused, outcome.target_jobs) == (4, 2, 2)
