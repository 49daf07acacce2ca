"""``ferryman metrics``: Prometheus gets the numbers that stand in Redis, whatever stands there, and whether or not it answers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.exchange import Exchanges
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.scripts.results import COUNTERS

from ..support.acl import BROKER
from ..support.captures import captures, load
from ..support.command import ferryman
from ..support.endpoint import exporter
from ..support.metrics import Samples, samples
from ..support.servers import Server, ServerKind, free_port, installed_servers
from ..support.topologies import wait_until
from ..support.workers import celery

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()
exchanges = Exchanges()


def once(server: Server, **options: str) -> Samples:
    outcome = ferryman("metrics", server.url(**options))
    assert outcome.status == 0, outcome.stderr
    return samples(outcome.stdout)


def declare(client: redis.Redis, queue: str, **arguments: object) -> None:
    client.sadd("ferryman:queues", queue.encode("utf-8", "surrogateescape"))
    run(client, scripts.declare(queue, {name.replace("_", "-"): value for name, value in arguments.items()}))


def publish(client: redis.Redis, queue: str, numbers: range, **fields: int) -> None:
    run(client, scripts.publish(queue, "p", [Publication(f"p-{n}", b'{"headers":{}}\n[]', **fields) for n in numbers]))


def test_every_state_and_counter_of_a_queue_is_told(server: Server, client: redis.Redis) -> None:
    declare(client, "mail", x_dead_letter_exchange="graves")
    publish(client, "mail", range(1, 6), priority=3)
    publish(client, "mail", range(6, 8), priority=0)
    publish(client, "mail", range(8, 9), delay_ms=3_600_000)
    for job in run(client, scripts.take("mail", "ann", 3, 60_000)).jobs[:2]:
        run(client, scripts.reject("mail", "ann", job.id, "rejected"))
    found = once(server)
    states = {key[2:]: value for key, value in found.items() if key[0] == "ferryman_queue_messages"}
    assert states == {
        ("waiting", "3"): 4,
        ("scheduled", ""): 1,
        ("active", ""): 1,
        ("completed", ""): 0,
        ("failed", ""): 2,
    }
    assert found["ferryman_up",] == found["ferryman_queue_up", "mail"] == found["ferryman_queue_consumers", "mail"] == 1
    assert found["ferryman_queue_outbox_messages", "mail"] == 2
    totals = {name: found[f"ferryman_queue_{name}_total", "mail"] for name in COUNTERS}
    assert {name: number for name, number in totals.items() if number} == {"published": 8, "delivered": 3, "dead": 2}


def test_every_metric_stands_in_the_docs(server: Server, client: redis.Redis) -> None:
    declare(client, "mail")
    publish(client, "mail", range(1, 3))
    page = BROKER.read_text(encoding="utf-8")
    names = {re.sub("_(bucket|count|sum)$", "", key[0]) for key in once(server)}
    assert [name for name in names if not name.endswith("_total") and f"`{name}" not in page] == []
    (counters,) = re.findall(r"^\| `ferryman_queue_…_total\{queue\}` \| counters: (.*?) \|$", page, re.MULTILINE)
    assert counters.split(", ") == list(COUNTERS)


def test_the_numbers_that_people_and_autoscalers_use_are_sums_over_priorities(server: Server, client: redis.Redis) -> None:
    for queue in ("mail", "idle"):
        declare(client, queue)
    now = client.time()[0] * 1000
    for first, fields, ago_ms in ((1, {"priority": 3}, 50_000), (3, {"delay_ms": 1000}, 90_000), (5, {"priority": 7}, 100)):
        jobs = [Publication(f"p-{n}", b'{"headers":{}}\n[]', **fields) for n in (first, first + 1)]
        run(client, scripts.publish("mail", "p", jobs, now=now - ago_ms))
    publish(client, "mail", range(7, 8), delay_ms=3_600_000)
    found = once(server)
    names = ("backlog", "waiting", "latency_seconds")
    backlog, waiting, latency = (found[f"ferryman_queue_{name}", "mail"] for name in names)
    assert (backlog, waiting) == (6, 6)
    assert 89 <= latency < 150, "the oldest is one that has become due"
    assert found["ferryman_queue_messages", "mail", "waiting", ""] == 2, "those that have become due"
    assert found["ferryman_queue_messages", "mail", "scheduled", ""] == 1
    run(client, scripts.take("mail", "ann", 5, 60_000))
    found = once(server)
    backlog, waiting, latency = (found[f"ferryman_queue_{name}", "mail"] for name in names)
    assert (backlog, waiting) == (6, 1)
    assert latency < 89
    assert [found[f"ferryman_queue_{name}", "idle"] for name in names] == [0, 0, 0], "a graph has no gaps"


def test_redeliveries_are_counted_and_what_was_never_begun_is_none(server: Server, client: redis.Redis) -> None:
    declare(client, "mail")
    publish(client, "mail", range(1, 4))
    ids = [job.id for job in run(client, scripts.take("mail", "ann", 3, 60_000)).jobs]
    run(client, scripts.requeue("mail", "ann", ids[:2]))
    run(client, scripts.release("mail", "ann", ids[2:]))
    assert len(run(client, scripts.take("mail", "bob", 3, 60_000)).jobs) == 3
    found = once(server)
    assert [found[f"ferryman_queue_{name}_total", "mail"] for name in ("delivered", "redelivered")] == [6, 2]


def test_messages_that_no_queue_wanted_are_told_by_exchange_and_are_nothing_strange(server: Server, client: redis.Redis) -> None:
    declare(client, "mail")
    assert not any(key[0].startswith("ferryman_exchange") for key in once(server))
    for name, number in (("shop", 2), ("größe", 1), ("shop", 3)):
        run(client, exchanges.count_unroutable(name, number))
    unroutable = {key[1]: value for key, value in once(server).items() if key[0] == "ferryman_exchange_unroutable_total"}
    assert unroutable == {"shop": 5, "größe": 1}
    audit = ferryman("audit", server.url())
    assert (audit.status, "No findings" in audit.stdout) == (0, True), audit.stdout
    detected = ferryman("detect", f"redis://{server.host}:{server.port}/0")
    assert "unroutable" not in detected.stdout
    client.set("ferryman:unroutable", "damaged")
    assert once(server)["ferryman_queue_up", "mail"] == 1


def test_an_age_is_that_of_the_oldest_message_of_its_priority_since_it_was_due(server: Server, client: redis.Redis) -> None:
    declare(client, "mail")
    for number, (priority, age) in enumerate([(0, 40), (0, 50), (5, 900), (5, 100)]):
        now = client.time()[0] * 1000
        job = Publication(f"p-{number}", b'{"headers":{}}\n[]', priority, due_ms=now - 20_000 if age == 50 else None)
        run(client, scripts.publish("mail", "p", [job], now=now - age * 1000))
    ages = {key[1:]: value for key, value in once(server).items() if key[0] == "ferryman_queue_oldest_age_seconds"}
    assert ages.keys() == {("mail", "0"), ("mail", "5"), ("mail", "")}
    assert 20 <= ages["mail", ""] < 40, "of one that has become due, nobody has looked at the priority yet"
    assert 40 <= ages["mail", "0"] < 900 <= ages["mail", "5"]
    run(client, scripts.take("mail", "ann", 1, 60_000))
    assert 20 <= once(server)["ferryman_queue_oldest_age_seconds", "mail", "0"] < 40, "the delay is no waiting"


def test_a_queue_that_can_not_be_read_hides_no_other(server: Server, client: redis.Redis) -> None:
    for queue in ("sound", "torn", "newer"):
        declare(client, queue)
    publish(client, "sound", range(1, 4))
    client.delete("ferryman:{torn}:waiting")
    client.set("ferryman:{torn}:waiting", "no zset")
    client.hset("ferryman:{newer}:meta", "schema", 2)
    client.hset("ferryman:{sound}:meta", "acked", "many")
    client.sadd("ferryman:queues", "gone")
    found = once(server)
    assert {key[1]: value for key, value in found.items() if key[0] == "ferryman_queue_up"} == {"sound": 1, "torn": 0, "newer": 0}
    assert found["ferryman_queue_messages", "sound", "waiting", "0"] == 3
    assert found["ferryman_queue_acked_total", "sound"] == 0
    assert {key[1] for key in found if len(key) > 1 and key[0] != "ferryman_queue_up"} == {"sound"}


def test_names_of_any_kind_are_labels(server: Server, client: redis.Redis) -> None:
    names = ['quo"ted', "back\\slash", "li\nne", "{braced}", "grün", "\udcff", "\x1b[2J", "\x9b2J", "\u202egnp", "a\u2028b"]
    for name in names:
        declare(client, name)
    queues = {key[1] for key in once(server) if key[0] == "ferryman_queue_up"}
    assert queues == {*names[:5], "\\xff", "\\x1b[2J", "\\x9b2J", "\\u202egnp", "a\\u2028b"}
    assert all(line.isprintable() for line in ferryman("metrics", server.url()).stdout.split("\n"))


@pytest.mark.parametrize("family", ["kue", "kickq", "qless", "bee", "kombu", "pjq"])
def test_other_systems_have_the_numbers_of_their_queues(server: Server, client: redis.Redis, family: str) -> None:
    capture = next(each for each in captures(family) if each.name != "crashed")
    load(capture, client)
    url = server.url(family=family, prefix=capture.prefix) if capture.prefix else server.url(family=family)
    found = samples(ferryman("metrics", url).stdout)
    for line in ferryman("queues", url, "--format", "json").lines():
        for state in ("waiting", "scheduled", "active", "completed", "failed"):
            messages = [number for key, number in found.items() if key[:3] == ("ferryman_queue_messages", line["queue"], state)]
            assert sum(messages) == line[state], (line, state)


def test_a_server_that_is_down_is_told_by_the_metric_and_the_exit_status() -> None:
    url = f"ferryman://127.0.0.1:{free_port()}/0"
    outcome = ferryman("metrics", url)
    assert samples(outcome.stdout) == {("ferryman_up",): 0}
    assert outcome.status == 3
    assert outcome.error.startswith(f"ferryman: {url}: can't be reached")


def scrape(address: str) -> Samples:
    with urllib.request.urlopen(address, timeout=30) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        return samples(reply.read().decode())


def test_it_may_begin_before_the_server(tmp_path: Path) -> None:
    port = free_port()
    with exporter(f"ferryman://127.0.0.1:{port}/0", "--listen", "127.0.0.1:0") as (_, address):
        assert scrape(address) == {("ferryman_up",): 0}
        with installed_servers()[0].start(tmp_path, port=port):
            assert scrape(address) == {("ferryman_up",): 1}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_each_request_is_one_look_also_when_the_server_goes_and_comes_back(tmp_path: Path, end: signal.Signals) -> None:
    kind: ServerKind = installed_servers()[0]
    port = free_port()
    with kind.start(tmp_path, port=port) as server, server.client() as client:
        declare(client, "mail")
        with exporter(server.url(), "--listen", "0") as (process, address):
            assert address.startswith("http://127.0.0.1:")
            assert scrape(address)["ferryman_queue_messages", "mail", "waiting", ""] == 0
            publish(client, "mail", range(1, 3))
            before, connected = client.info("commandstats"), client.info("stats")["total_connections_received"]
            assert scrape(address)["ferryman_queue_messages", "mail", "waiting", "0"] == 2
            assert client.info("stats")["total_connections_received"] == connected + 1
            calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
            sent = {name: calls[name] - before.get(name, {}).get("calls", 0) for name in calls}
            assert sent["cmdstat_smembers"] == sent["cmdstat_evalsha"] == 1
            assert sent["cmdstat_hgetall"] == 1, "of the counter of unroutable messages, which is bounded"
            assert {"cmdstat_scan", "cmdstat_keys"}.isdisjoint(sent)
            os.kill(server.pid, signal.SIGKILL)
            assert scrape(address) == {("ferryman_up",): 0}
            with kind.start(tmp_path, port=port):
                assert scrape(address) == {("ferryman_up",): 1}
                process.send_signal(end)
                assert process.wait(120) == 0
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


def test_a_frozen_server_is_told_to_all_who_ask_meanwhile(tmp_path: Path) -> None:
    with (
        installed_servers()[0].start(tmp_path) as server,
        exporter(server.url(socket_timeout=1), "--listen", "0") as (_, address),
        ThreadPoolExecutor(20) as requests,
    ):
        assert scrape(address)["ferryman_up",] == 1
        os.kill(server.pid, signal.SIGSTOP)
        assert list(requests.map(scrape, [address] * 20)) == [{("ferryman_up",): 0}] * 20
        os.kill(server.pid, signal.SIGCONT)
        wait_until(lambda: scrape(address)["ferryman_up",] == 1)


@pytest.mark.parametrize("address", ["", "localhost", "localhost:http", "localhost:99999", ":-1"])
def test_an_address_that_is_none_is_refused(server: Server, address: str) -> None:
    outcome = ferryman("metrics", server.url(), "--listen", address)
    assert (outcome.status, "[HOST:]PORT" in outcome.stderr) == (2, True)


def test_a_port_that_is_taken_is_one_line(server: Server) -> None:
    outcome = ferryman("metrics", server.url(), "--listen", str(server.port))
    assert outcome.status == 2
    assert f"127.0.0.1:{server.port}: Address already in use" in outcome.error


def test_a_family_whose_jobs_must_be_read_is_not_served_by_http(server: Server) -> None:
    outcome = ferryman("metrics", server.url(family="kickq"), "--listen", "0")
    assert outcome.status == 2
    assert "reading every job" in outcome.error


def test_without_prometheus_client_the_error_names_what_to_install(server: Server) -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; from ferryman.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "metrics", server.url()], capture_output=True, check=False, timeout=300)
    assert done.returncode == 2
    assert b"pip install 'ferryman[metrics]'" in done.stderr


def test_the_broker_of_an_app_has_metrics_too(server: Server, client: redis.Redis) -> None:
    declare(client, "mail")
    assert samples(celery(server, "ferryman", "metrics").stdout)["ferryman_queue_up", "mail"] == 1
