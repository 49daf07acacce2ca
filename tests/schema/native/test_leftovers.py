"""What a crash leaves in outboxes and under dedup keys is found, and what stands there in the course of things is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count

import pytest
import redis
from ferryman.migrations.engine import audit
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.recheck import Recheck
from ferryman.migrations.repair import Outcome, applied
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.native import FAMILY, keys
from ferryman.schema.native.rules import STALE_MS
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.moved import PACE
from ...support.movers import Step, moving
from ...support.native import LEASE, Send
from ...support.servers import Server
from ...support.topologies import wait_until

scripts = QueueScripts()
q = scripts.keys("q")
NOW = 1_800_000_000_000
LEFT = ("NATIVE-19", "NATIVE-20", "NATIVE-21", "NATIVE-22")
AUDITS = 20
BODY = b'{"headers":{"task":"app.mail"},"properties":{}}\n[[1],{}]'


def found(client: redis.Redis, now: int = NOW) -> list[Finding]:
    return [each for each in read_keyspace(FAMILY, dump(client).values(), "ferryman", now).findings() if each.rule in LEFT]


def publish(send: Send, *numbers: int, unique: str | None = None, life: int | None = None) -> None:
    jobs = [Publication(f"p-{n}", BODY, unique=unique and f"{unique}{n}", unique_ttl_ms=life) for n in numbers]
    send(scripts.publish("q", "p", jobs, now=NOW))


@pytest.fixture
def forwarding(send: Send, client: redis.Redis) -> redis.Redis:
    """A queue whose dead letters go to an exchange."""
    send(scripts.declare("q", {"x-dead-letter-exchange": "graves", "x-retention": 10**6}, now=NOW))
    client.sadd(keys.queues("ferryman"), "q")
    client.sadd(keys.forwarding("ferryman"), "q")
    return client


def make_dead(send: Send) -> None:
    """Publishes two jobs, and rejects one of them."""
    publish(send, 1, 2)
    send(scripts.take("q", "ann", 1, LEASE, now=NOW))
    send(scripts.reject("q", "ann", "p-1", "rejected", now=NOW))


def test_a_letter_is_stale_when_nobody_has_carried_it_for_long(send: Send, forwarding: redis.Redis) -> None:
    make_dead(send)
    assert found(forwarding, NOW + STALE_MS) == []
    (finding,) = found(forwarding, NOW + STALE_MS + 2)
    assert (finding.rule, finding.job_id, finding.queue) == ("NATIVE-19", "p-1", "q")
    assert "no consumer of any queue looks" in finding.detail
    dead_letters = send(scripts.outbox("q")).dead_letters
    send(scripts.forwarded("q", [(dead_letter, False) for dead_letter in dead_letters]))
    assert found(forwarding, NOW + 10**9) == [], "what no queue wanted stays dead, and waits for nothing"


def test_letters_of_a_queue_that_has_no_exchange_any_more_can_stay_dead(
    send: Send, server: Server, forwarding: redis.Redis
) -> None:
    make_dead(send)
    address, later = Address.parse(server.url()), NOW + 10**9
    assert applied(address, ["NATIVE-19"], later)[0].outcome is not Outcome.MENDED, "somebody may still carry it"
    send(scripts.declare("q", {"x-max-length": 9}))
    (finding,) = found(forwarding, later)
    assert "has none any more" in finding.detail
    assert [each.outcome for each in applied(address, ["NATIVE-19"], later)] == [Outcome.MENDED]
    assert found(forwarding, later) == []
    assert [dead_letter.job.id for dead_letter in send(scripts.dead_letters("q"))] == ["p-1"]


def test_dedup_keys_are_valid_wherever_their_jobs_have_gone(send: Send, forwarding: redis.Redis) -> None:
    publish(send, 1, 2, 3, 4, 5, unique="k")
    publish(send, 6, unique="timed", life=10**6)
    assert found(forwarding) == []
    send(scripts.take("q", "ann", 4, LEASE, now=NOW))
    send(scripts.take("q", "bob", 2, LEASE, no_ack=True, now=NOW))
    send(scripts.ack("q", "ann", ["p-1"], now=NOW))
    send(scripts.reject("q", "ann", "p-2", "rejected", now=NOW))
    send(scripts.reject("q", "ann", "p-3", "rejected", now=NOW))
    send(scripts.requeue("q", "ann", ["p-4"], now=NOW))
    assert found(forwarding) == []
    send(scripts.revive("q", ["p-2"], now=NOW))
    assert forwarding.get(q.unique("k2")) == b"p-2"
    assert found(forwarding) == []


@pytest.mark.parametrize("end", ["gone", "dead", "done", "of another"])
def test_a_dedup_key_of_a_job_that_has_ended_is_found_and_deleted(
    send: Send, server: Server, forwarding: redis.Redis, end: str
) -> None:
    publish(send, 1, unique="k")
    send(scripts.take("q", "ann", 1, LEASE, now=NOW))
    match end:
        case "gone":
            send(scripts.delete("q"))
            send(scripts.declare("q", {}))
        case "dead":
            send(scripts.reject("q", "ann", "p-1", "rejected", now=NOW))
        case "done":
            send(scripts.ack("q", "ann", ["p-1"], now=NOW))
    name = q.unique("other" if end == "of another" else "k1")
    forwarding.set(name, "p-1")
    assert [(each.rule, each.key.encode(), each.job_id) for each in found(forwarding)] == [("NATIVE-21", name, "p-1")]
    assert [each.outcome for each in applied(Address.parse(server.url()), ["NATIVE-21"], NOW)] == [Outcome.MENDED]
    assert found(forwarding) == []
    assert forwarding.exists(name) == 0
    assert end != "of another" or forwarding.get(q.unique("k1")) == b"p-1"


def life(client: redis.Redis) -> Iterator[Step]:
    """Jobs with dedup keys are published, taken, acked, rejected, put back, revived and forwarded, for ever."""
    for first in count(0, 20):
        ids = [f"p-{n}" for n in range(first, first + 20)]
        yield partial(run, client, scripts.publish("q", "p", [Publication(each, BODY, unique=each) for each in ids]))
        yield partial(run, client, scripts.take("q", "ann", 20, LEASE))
        for each in ids[:10]:
            yield partial(run, client, scripts.reject("q", "ann", each, "rejected"))
        yield partial(run, client, scripts.requeue("q", "ann", ids[10:15]))
        yield partial(run, client, scripts.revive("q", ids[:5]))
        outbox = run(client, scripts.outbox("q"))
        assert outbox is not None
        yield partial(run, client, scripts.forwarded("q", [(dead_letter, True) for dead_letter in outbox.dead_letters]))
        yield partial(run, client, scripts.take("q", "ann", 20, LEASE))
        yield partial(run, client, scripts.ack("q", "ann", ids))


def test_audits_of_a_queue_in_full_swing_find_nothing(
    server: Server, forwarding: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(forwarding, scripts.declare("q", {"x-dead-letter-exchange": "graves"}))
    # An audit of these takes so long that jobs of the other queue move meanwhile.
    store(forwarding, FAMILY, "ferryman", FAMILY.generate(600, 1, NOW), NOW)
    with moving(server, life) as taken:
        wait_until(lambda: taken() > 100)
        with monkeypatch.context() as patch:
            patch.setattr(audit, "open_recheck", lambda _address, keyspace, *_: nullcontext(Recheck(keyspace, None)))
            assert any(audited(server) for _ in range(AUDITS)), "no job was seen on its way: what follows proves nothing"
        steps = taken()
        assert [finding for _ in range(AUDITS // 4) for finding in audited(server)] == []
        assert taken() > steps


def audited(server: Server) -> list[Finding]:
    """What an audit in the midst of it finds."""
    findings: list[Finding] = []
    with server.client() as client:
        now = int(client.time()[0]) * 1000
    LocalEngine(PACE).audit(Address.parse(server.url()), now, findings.append)
    return [each for each in findings if each.rule in LEFT]
