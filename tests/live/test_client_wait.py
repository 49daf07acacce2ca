"""Waiting without Celery: a client sleeps until the server says that a job may be there, or a delayed one is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.compat.client import ForeignClient
from ferryman.schema.connection import listener
from ferryman.schema.connection.permission import Forbidden
from ferryman.schema.errors import KeyspaceRefused, UsageError
from ferryman.schema.live import ForeignFamily

from ..models.bee_original import OriginalBee
from ..models.kickq_original import OriginalKickq, perform
from ..models.kue_original import Original
from ..support import live_systems, pjq_program
from ..support.acl import for_family, kue_shop_rule, user
from ..support.live_systems import LiveSystem
from ..support.proxy import proxy
from ..support.qless_original import OriginalQless
from ..support.servers import Server, ServerKind

QUEUE = "mail"
LONG = 60.0
"""Seconds that nothing here is to take."""
LEASE = 600_000
"""ms: no lease ends meanwhile."""
DELAY = 300
"""ms."""

# The program of pjq that tests have writes no prefix.
SYSTEMS = [evolve(each, prefix="") if each.family == "pjq" else each for each in live_systems.SYSTEMS]
KUE = next(each for each in SYSTEMS if each.family == "kue")

every_system = pytest.mark.parametrize("system", SYSTEMS, ids=str)
delaying_systems = pytest.mark.parametrize("system", [each for each in SYSTEMS if each.family not in ("pjq", "kombu")], ids=str)


def now_ms() -> int:
    return round(time.time() * 1000)


def put_as_the_original(system: LiveSystem, server: Server, delay: int = 0) -> None:
    """What a producer of the system's own sends, command by command."""
    client = server.client()
    match system.family:
        case "kue":
            producer = Original(client, now_ms, "producer")
            producer.run = producer.create(QUEUE, delay=delay)
            producer.finish()
        case "kickq":
            perform(client, OriginalKickq().create(QUEUE, {"n": 1}, now_ms(), **({"delay": delay} if delay else {})))
        case "qless":
            OriginalQless(client, QUEUE).put(time.time(), "a", delay=delay / 1000)
        case "bee":
            OriginalBee(client, "producer:1:x").put(now_ms(), "a", QUEUE, [1], {"delay": delay})
        case "pjq":
            job = {"uuid": "a", "queue_name": QUEUE, "command": "true"}
            pjq_program.run(pjq_program.Program(client, now_ms()).add_job(job))
        case "kombu":
            system.put(ForeignClient(system.live, client), QUEUE, 1)


@contextmanager
def client_of(system: LiveSystem, server: Server | str | redis.Redis) -> Iterator[ForeignClient[ForeignFamily]]:
    given = server.client() if isinstance(server, Server) else server
    with ForeignClient(system.live, given, lease_ms=LEASE) as ours:
        yield ours


@contextmanager
def asleep(ours: ForeignClient[ForeignFamily], server: Server, seconds: float = LONG) -> Iterator[Future[bool]]:
    """A client that waits for the queue in a thread. It sleeps before the block begins: its listener was heard last."""
    assert ours.take(QUEUE) == ()
    assert not ours.wait(QUEUE, 0)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(ours.wait, QUEUE, seconds)
        until(lambda: any(each["cmd"] == "ping" for each in listeners(server)))
        yield result


def listeners(server: Server) -> list[dict[str, Any]]:
    """The connections that hear of changes, as the server sees them."""
    with server.client() as client:
        return [each for each in client.client_list() if "t" in each["flags"]]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@every_system
def test_a_job_of_the_originals_own_wakes(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours, asleep(ours, server) as woken:
        put_as_the_original(system, server)
        assert woken.result()
        (job,) = ours.take(QUEUE)
        ours.complete(job)


@every_system
def test_a_job_of_another_client_of_ours_wakes_all_that_wait_for_its_queue(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours, client_of(system, server) as other, client_of(system, server) as third:
        with asleep(ours, server) as one, asleep(other, server) as two:
            system.put(third, "parcel", {"n": 1})
            system.put(third, QUEUE, {"n": 1})
            assert one.result()
            assert two.result()
        assert sum(len(each.take(QUEUE)) for each in (ours, other)) == 1


@delaying_systems
def test_a_delayed_job_of_the_originals_own_wakes_when_it_is_due(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours, asleep(ours, server) as woken:
        put_as_the_original(system, server, DELAY)
        assert woken.result()
        assert len(ours.take(QUEUE)) == 1  # so it did not wake before


@pytest.mark.parametrize("system", [each for each in SYSTEMS if each.family != "kombu"], ids=str)
def test_a_job_that_another_retries_later_wakes_when_it_is_due(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours, client_of(system, server) as other:
        system.put(other, QUEUE, {"n": 1}, attempts=2)
        (job,) = other.take(QUEUE)
        with asleep(ours, server) as woken:
            assert other.retry(job, DELAY) == "scheduled"
            assert woken.result()
        assert len(ours.take(QUEUE)) == 1


@delaying_systems
def test_a_delay_that_was_there_before_is_waited_for(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours:
        put_as_the_original(system, server, DELAY)
        assert ours.wait(QUEUE, LONG)
        assert len(ours.take(QUEUE)) == 1


@every_system
def test_nothing_that_came_before_the_wait_is_missed(system: LiveSystem, server: Server) -> None:
    with client_of(system, server) as ours:
        assert ours.take(QUEUE) == ()
        put_as_the_original(system, server)
        assert ours.wait([QUEUE, "parcel"], LONG)
        (job,) = ours.take(QUEUE)
        assert ours.wait(QUEUE, LONG)  # there may have been more
        assert ours.take(QUEUE) == ()
        ours.complete(job)
        assert not ours.wait(QUEUE, 0)
        system.put(ours, QUEUE, {"n": 2})
        assert ours.wait(QUEUE, LONG)


@pytest.fixture(scope="module")
def quiet_server(any_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that nobody else has ever had a connection to."""
    with ServerKind(any_server.kind, any_server.binary).start(tmp_path_factory.mktemp("quiet")) as running:
        yield running


@every_system
def test_time_that_passes_is_told_and_costs_no_command(system: LiveSystem, quiet_server: Server) -> None:
    with client_of(system, quiet_server) as ours, quiet_server.client() as counted:
        counted.flushall()
        assert ours.take(QUEUE) == ()
        assert not ours.wait(QUEUE, 0)

        def commands(seconds: float) -> int:
            before: int = counted.info("stats")["total_commands_processed"]
            assert not ours.wait(QUEUE, seconds)
            after: int = counted.info("stats")["total_commands_processed"]
            return after - before

        assert commands(0.5) == commands(0)


@every_system
def test_a_connection_that_is_lost_is_an_error_at_once_and_the_next_wait_misses_nothing(
    system: LiveSystem, server: Server
) -> None:
    with proxy(server) as between, redis.Redis(port=between.port) as through, client_of(system, through) as ours:
        with asleep(ours, server) as woken:
            between.break_all()
            with pytest.raises(redis.exceptions.ConnectionError):
                woken.result()
        put_as_the_original(system, server)
        assert ours.wait(QUEUE, LONG)
        assert len(ours.take(QUEUE)) == 1


@contextmanager
def lesser(server: Server, rule: list[str]) -> Iterator[redis.Redis]:
    """A client with the rights of a rule."""
    restricted = redis.Redis(host=server.host, port=server.port, username="shop", password="secret")
    with server.client() as admin, user(admin, "shop", rule), restricted:
        yield restricted


@every_system
def test_the_published_rule_lets_a_client_wait(system: LiveSystem, server: Server) -> None:
    with lesser(server, for_family(kue_shop_rule(), system.family)) as restricted, client_of(system, restricted) as ours:
        assert not ours.wait(QUEUE, 0)


@pytest.mark.parametrize("missing", ["+client|tracking", "+subscribe", "&__redis__:invalidate"])
@every_system
def test_a_user_who_may_not_listen_is_told_which_right_is_missing(system: LiveSystem, server: Server, missing: str) -> None:
    rule = [word for word in for_family(kue_shop_rule(), system.family) if word != missing]
    refused = pytest.raises(Forbidden, match="the user may not")
    with lesser(server, rule) as restricted, client_of(system, restricted) as ours, refused as error:
        ours.wait(QUEUE, LONG)
    assert f"grant {missing} " in str(error.value)
    assert "secret" not in str(error.value)


def test_a_server_that_has_gone_silent_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no endless wait: the listener asks, when it has heard nothing for long."""
    monkeypatch.setattr(listener, "SILENCE", 0.1)
    with proxy(server) as between, redis.Redis(port=between.port, socket_timeout=3) as through:
        ours = ForeignClient(KUE.live, through, lease_ms=LEASE)
        with asleep(ours, server) as woken:
            between.stall()
            with pytest.raises(redis.exceptions.ConnectionError, match="has not answered"):
                woken.result()


def test_options_of_the_clients_connection_do_not_disturb_its_listener(server: Server) -> None:
    """Health checks read an answer that comes in another form where messages are received; so does RESP3."""
    for options in ({"health_check_interval": 0.001}, {"protocol": 3}, {"protocol": 2}):
        with redis.Redis(host=server.host, port=server.port, **options) as given, client_of(KUE, given) as ours:
            assert not ours.wait(QUEUE, 0)
            time.sleep(0.002)  # so that a health check is due, whatever the processor does
            assert not ours.wait(QUEUE, 0)
            with asleep(ours, server) as woken:
                put_as_the_original(KUE, server)
                assert woken.result()
            ours.complete(*ours.take(QUEUE))


@pytest.mark.parametrize(("queues", "seconds"), [([], 1.0), (QUEUE, -1.0), (QUEUE, float("nan"))])
def test_what_can_not_be_waited_for_is_refused(server: Server, queues: Any, seconds: float) -> None:
    with client_of(SYSTEMS[0], server) as ours, pytest.raises(UsageError, match="wait for one queue"):
        ours.wait(queues, seconds)


def test_a_keyspace_of_another_system_is_refused(server: Server) -> None:
    with server.client() as client, client_of(KUE, server) as ours:
        client.lpush("q:jobs", "no zset")
        with pytest.raises(KeyspaceRefused):
            ours.wait(QUEUE, LONG)


def test_the_listener_goes_with_the_client(server: Server) -> None:
    with client_of(SYSTEMS[0], server) as ours:
        assert not ours.wait(QUEUE, 0)
        until(lambda: len(listeners(server)) == 1)  # those of others before may go only now
    until(lambda: listeners(server) == [])
