"""Ways to a server: unix socket, TLS, users with few rights, passwords that change. Safe by default, and errors that say why."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
import redis
from ferryman.schema.connection.connect import connect
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.steering import NativeSteering
from ferryman.schema.steering import Action, JobFilter
from ferryman.transport.publish.revocation import durable_queues
from kombu import Connection, Consumer, Exchange, Producer, Queue
from redis import CredentialProvider

from ..support.acl import published_rules
from ..support.certificates import OPENSSL, Authority, authority
from ..support.messages import round_trip
from ..support.servers import Server, ServerKind, free_port
from ..support.workers import Ledger, celery, worker

ROOT = Path(__file__).parents[2]
NOTE = "tests.support.tasks.note"


# Unix sockets


def test_a_unix_socket_serves_kombu_and_celery(kind, server, tmp_path):
    path = tmp_path / "redis.sock"
    with kind.start(tmp_path, "--unixsocket", str(path)) as local:
        url = f"ferryman+unix://{path}?db=3"
        round_trip(url)
        with worker(server, tmp_path, broker=url):
            from celery import Celery

            with Celery(broker=url) as app:
                app.send_task(NOTE, ["over the socket"])
            Ledger(server).wait_for("run", 1)
        with local.client(db=3) as client:
            assert client.exists("ferryman:{celery}:meta")


# TLS


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if OPENSSL is None:
        pytest.skip("needs the openssl program to make certificates")
    return authority(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="module")
def tls_port(kind: ServerKind, ours: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The TLS port of a server that asks clients for a certificate only if they have one."""
    port = free_port()
    with tls_server(kind, tmp_path_factory.mktemp("server"), ours, port, "--tls-auth-clients", "optional"):
        yield port


def tls_server(
    kind: ServerKind, folder: Path, certificates: Authority, port: int, *options: str
) -> AbstractContextManager[Server]:
    if b"tls-auth-clients" not in Path(kind.binary).read_bytes():
        pytest.skip(f"{kind.binary} is built without TLS")
    files = ["--tls-cert-file", str(certificates.certificate), "--tls-key-file", str(certificates.key)]
    return kind.start(folder, "--tls-port", str(port), *files, "--tls-ca-cert-file", str(certificates.ca), *options)


def test_tls_serves_whoever_trusts_the_servers_authority(tls_port, ours):
    round_trip(f"ferrymans://127.0.0.1:{tls_port}/0?ssl_ca_certs={ours.ca}")
    round_trip(f"ferryman://127.0.0.1:{tls_port}/0", ssl={"ca_certs": str(ours.ca)})
    round_trip(f"ferryman://127.0.0.1:{tls_port}/0", ssl={"ssl_ca_certs": str(ours.ca), "ssl_cert_reqs": ssl.CERT_REQUIRED})


def test_tls_settings_of_celery_reach_the_connection(tls_port, ours, kind, tmp_path):
    round_trip(f"ferryman://127.0.0.1:{tls_port}/0", ssl={"ssl_ca_data": ours.ca.read_text(), "ssl_min_version": "1.2"})
    port = free_port()
    with tls_server(kind, tmp_path, ours, port, "--tls-auth-clients", "no", "--tls-protocols", "TLSv1.2"):
        url = f"ferrymans://127.0.0.1:{port}/0?ssl_ca_certs={ours.ca}"
        round_trip(f"{url}&ssl_ciphers=ECDHE%2BAESGCM")
        for setting in ({"ssl_min_version": ssl.TLSVersion.TLSv1_3}, {"ssl_ciphers": "ECDHE-ECDSA-AES128-SHA"}):
            with Connection(url, ssl=setting) as connection, pytest.raises(connection.connection_errors, match=r"(?i)ssl|tls"):
                connection.connect()


def test_tls_verifies_the_server_unless_told_otherwise(tls_port, tmp_path):
    other = authority(tmp_path / "other", "other")
    for url in (f"ferrymans://127.0.0.1:{tls_port}/0", f"ferrymans://127.0.0.1:{tls_port}/0?ssl_ca_certs={other.ca}"):
        with Connection(url) as connection, pytest.raises(connection.connection_errors, match="CERTIFICATE_VERIFY_FAILED"):
            connection.connect()
    connection = Connection(f"ferryman://127.0.0.1:{tls_port}/0", ssl=True)
    with connection, pytest.raises(connection.connection_errors, match="CERTIFICATE_VERIFY_FAILED"):
        connection.connect()
    round_trip(f"ferrymans://127.0.0.1:{tls_port}/0?ssl_cert_reqs=none")


def test_tls_refuses_a_certificate_of_another_host(kind, tmp_path):
    if OPENSSL is None:
        pytest.skip("needs the openssl program to make certificates")
    elsewhere, port = authority(tmp_path / "elsewhere", "elsewhere", "elsewhere.example"), free_port()
    with tls_server(kind, tmp_path, elsewhere, port, "--tls-auth-clients", "no"):
        url = f"ferrymans://127.0.0.1:{port}/0?ssl_ca_certs={elsewhere.ca}"
        with Connection(url) as connection, pytest.raises(connection.connection_errors, match="CERTIFICATE_VERIFY_FAILED"):
            connection.connect()
        round_trip(url + "&ssl_check_hostname=false")


def test_tls_shows_a_client_certificate_where_the_server_wants_one(kind, ours, tmp_path):
    port = free_port()
    with tls_server(kind, tmp_path, ours, port, "--tls-auth-clients", "yes"):
        url = f"ferrymans://127.0.0.1:{port}/0?ssl_ca_certs={ours.ca}"
        with Connection(url) as connection, pytest.raises(connection.connection_errors):
            connection.connect()
        round_trip(f"{url}&ssl_certfile={ours.certificate}&ssl_keyfile={ours.key}")


def test_a_worker_runs_over_tls(tls_port, ours, server, tmp_path):
    from celery import Celery

    url = f"ferrymans://127.0.0.1:{tls_port}/1?ssl_ca_certs={ours.ca}"
    with worker(server, tmp_path, broker=url), Celery(broker=url) as app:
        app.send_task(NOTE, ["over TLS"])
        Ledger(server).wait_for("run", 1)
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60", broker=url)
        assert "pong" in ping.stdout, ping.stdout + ping.stderr


# Users with few rights


@pytest.fixture
def shop(client: redis.Redis, server: Server) -> Iterator[str]:
    """The URL of a user with the published rule, and nothing more."""
    client.execute_command("ACL", "SETUSER", "shop", "reset", *published_rules()[0])
    client.execute_command("ACL", "LOG", "RESET")
    yield f"ferryman://shop:secret@{server.host}:{server.port}/2"
    client.execute_command("ACL", "DELUSER", "shop")


def refused(client: redis.Redis) -> list[object]:
    """What the server has refused to the user."""
    return [(entry["reason"], entry["object"]) for entry in client.acl_log() if entry["username"] == "shop"]


def test_the_published_rule_is_enough_for_kombu(shop, client):
    round_trip(shop)
    round_trip(shop + "?client_name=shop&health_check_interval=1")
    allowed_to_lack = {"client|setinfo"}  # redis-py introduces itself and does not mind
    assert {what for _, what in refused(client)} <= allowed_to_lack


@pytest.mark.parametrize("rule", ["published", "categories"])
def test_a_users_rule_is_enough_for_workers_remote_control_and_purging(shop, client, server, tmp_path, rule):
    from celery import Celery

    if rule == "categories":  # what an administrator gives who thinks in kinds of commands
        words = ["on", ">secret", "~ferryman:*", "&ferryman:*", "+@all", "-@dangerous", "-@admin"]
        client.execute_command("ACL", "SETUSER", "shop", "reset", *words)
    with worker(server, tmp_path, broker=shop) as running, Celery(broker=shop) as app:
        for n in range(3):
            app.send_task(NOTE, [n], countdown=n / 2)
        Ledger(server).wait_for("run", 3)
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60", broker=shop)
        assert "pong" in ping.stdout, ping.stdout + ping.stderr
        assert running.stop() == 0
    send_only = celery(server, "purge", "-f", broker=shop)
    assert send_only.returncode == 0, send_only.stderr
    assert {what for _, what in refused(client)} <= {"client|setinfo"}


def test_the_published_rules_name_the_commands_that_the_sources_send_and_no_other():
    one, more = ({word[1:].upper() for word in rule if word.startswith("+")} for rule in published_rules())
    scripts = "\n".join(path.read_text() for path in (ROOT / "schema" / "native" / "scripts" / "lua").glob("*.lua"))
    sent = set(re.findall(r"(?:call|attempt|pcall|in_slices)\('([A-Z]+)'", scripts))
    sent_to_clusters = set()
    say = r"(?:command\(|Command\(\(|wait\(\w+, |_plain\(|return \()\"([A-Z]{3,})\"(?:, \"(SLOTS|ID|TRACKING)\")?"
    folders = (ROOT / "transport", ROOT / "schema" / "native")
    connections = [ROOT / "schema" / "connection" / name for name in ("call.py", "listener.py")]
    for path in [*(path for folder in folders for path in folder.rglob("*.py")), *connections]:
        commands = {"|".join(filter(None, words)) for words in re.findall(say, path.read_text())}
        (sent_to_clusters if path.name in ("cluster_link.py", "listener.py") else sent).update(commands)
    of_connections = {"SELECT", "PING", "CLIENT|SETNAME"}  # the database of the URL, health checks, client_name
    of_durability = {"WAIT", "WAITAOF"}  # named beside the rule: servers before 7.2 would refuse it with them
    of_errors = {"INFO"}  # for the version of a server that lacks something; it may be denied
    assert one - of_connections == sent - of_durability - of_errors
    assert more == sent_to_clusters - of_connections


def test_each_command_of_the_published_rule_is_called(shop, client, server):
    """So that taking one away would be refused. Those that a producer sends, a consumer, and who deletes and lists."""
    client.script_flush()  # EVAL is for scripts that the server does not know
    client.config_resetstat()
    many = [f'["q","{n}",""]' for n in range(1_500)]
    with Connection(shop + "?client_name=shop&health_check_interval=1") as connection, connection.channel() as channel:
        queue = Queue("q", Exchange("e"), "key", queue_arguments={"x-max-length-bytes": 10**9})
        queue(channel).declare()
        temporary = Queue("t", Exchange("news", "fanout"), expires=60)
        temporary(channel).declare()
        Queue("lasting", Exchange("news", "fanout"))(channel).declare()
        received = []
        with Consumer(channel, [queue, temporary], on_message=received.append):
            producer = Producer(channel)
            producer.publish(1, routing_key="key", exchange="e", headers={"unique": "k"})
            producer.publish(2, exchange="news")
            while len(received) < 2:
                connection.drain_events(timeout=10)
        for message in received:
            message.ack()
        session = channel.session
        link, scripts, exchanges = session.link, session.scripts, session.exchanges
        link.run(exchanges.fanout_publish("news", b"again", 100, True))
        link.run(scripts.publish("q", "p", [Publication("p-1", b"{}\n", unique="k")]))
        for n in ("one", "two"):
            with server.client(2) as there:
                there.sadd("ferryman:{q}:blocked", n)
                there.sadd(f"ferryman:{{q}}:needs:{n}", "p-1")
                there.sadd("ferryman:{q}:unblocks:p-1", n)
        blocked = NativeSteering(scripts.prefix).act_on_matching(Action.DELETE, "q", State.BLOCKED, JobFilter(), dry_run=True)
        assert blocked is not None
        assert link.run(blocked).done == 2
        link.run(scripts.remove("q", "one"))
        (job,) = link.run(scripts.take("q", "ann", 9, 60_000)).jobs
        link.run(scripts.ack("q", "ann", [job.id]))
        link.run(scripts.size("q", by_priority=True))
        link.run(scripts.take("q", "ann", 9, 60_000, now=client.time()[0] * 1000 + 120_000))  # its history has a minute more
        link.run(exchanges.count_unroutable("e"))
        link.run(scripts.declare("t", {"x-max-length": 9}))
        with server.client(2) as there:
            there.hset("ferryman:exchange:e", mapping=dict.fromkeys(many, ""))
            there.hset("ferryman:fanout:{news}:cursors", mapping={f"q{n}": "0-1" for n in range(1_500)})
        link.run(exchanges.fanout_bind("news", "q"))
        assert len(list(channel.list_bindings())) > 1_500
        assert durable_queues(link, scripts) == ["lasting", "q"]
        channel.queue_purge("q")
        channel.queue_delete("q")
    called = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    wanted = {word[1:] for word in published_rules()[0] if word.startswith("+")}
    assert wanted - called - {"ping"} == set()


def test_a_user_without_a_right_gets_an_error_that_names_it_and_nothing_is_lost(shop, client):
    round_trip(shop)
    with Connection(shop) as connection, connection.channel() as channel:
        Producer(channel).publish("kept", routing_key="q")
        client.execute_command("ACL", "SETUSER", "shop", "-zrem")
        with pytest.raises(connection.channel_errors, match=r"(?i)permission|can't run this command"):
            channel.basic_get("q")
        client.execute_command("ACL", "SETUSER", "shop", "+zrem")
        assert channel.basic_get("q").payload == "kept"


def test_keys_outside_the_prefix_are_out_of_reach(shop):
    connection = Connection(shop, transport_options={"prefix": "other"})
    refusal = pytest.raises(connection.channel_errors, match=r"(?i)permission|can't run this command")
    with connection, connection.channel() as channel, refusal:
        Producer(channel).publish("nothing", routing_key="q")


# Passwords that change


class Rotating(CredentialProvider):
    """Gives the password of the moment."""

    password = "first"

    def get_credentials(self):
        return "rotating", self.password


@pytest.mark.parametrize("way", ["argument", "option", "dotted name"])
def test_a_changed_password_is_asked_for_with_the_next_connection(server, client, monkeypatch, way):
    rule = ["reset", "on", "~*", "+@all"]
    client.execute_command("ACL", "SETUSER", "rotating", *rule, ">first")
    monkeypatch.setattr(Rotating, "password", "first")
    options = {
        "argument": {"credential_provider": Rotating()},
        "option": {"transport_options": {"credential_provider": Rotating()}},
        "dotted name": {"transport_options": {"credential_provider": f"{__name__}:Rotating"}},
    }[way]
    received = []
    try:
        with Connection(server.url(), **options) as connection:
            producer = Producer(connection)
            with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=received.append):
                producer.publish("before", routing_key="q")
                connection.drain_events(timeout=10)
                client.execute_command("ACL", "SETUSER", "rotating", "resetpass", ">second")
                monkeypatch.setattr(Rotating, "password", "second")
                producer.publish("open connections go on", routing_key="q")
                connection.drain_events(timeout=10)
            client.client_kill_filter(_type="normal", skipme=True)
            producer.publish("new ones have the new password", routing_key="q", retry=True, retry_policy={"interval_start": 0})
        assert client.execute_command("ACL", "LOG", "RESET")
    finally:
        client.execute_command("ACL", "DELUSER", "rotating")
    assert len(received) == 2


# Addresses


@pytest.mark.parametrize("second", ["ferryman://localhost/0?lease=3", "ferryman+unix:///tmp/redis.sock"])
def test_a_list_of_brokers_that_kombu_could_not_switch_to_is_refused_at_once(second):
    with pytest.raises(ValueError, match="list of brokers"):
        Connection(f"ferryman://localhost/0;{second}").connect()


def test_a_list_of_brokers_goes_on_to_the_next_one(server):
    url = f"ferryman://localhost:{free_port()}/0;{server.url()}"
    with Connection(url, transport_options={"lease": 7}) as connection:
        connection.ensure_connection(max_retries=3, interval_start=0)
        assert connection.transport.session.settings.lease == 7
        with connection.channel() as channel:
            Producer(channel).publish("found", routing_key="q")


@pytest.mark.parametrize(
    "url",
    [
        "ferrymans://user:secret@localhost:1/0",
        "ferryman+unix://user:secret@/tmp/redis.sock",
        "ferryman+sentinel://user:secret@localhost:1,localhost:2/service/0",
    ],
)
def test_no_kind_of_address_shows_its_password(url):
    connection = Connection(url)
    assert "secret" not in f"{connection!r} {connection.as_uri()}"
    assert "secret" not in repr(connection.transport.session.settings)
    assert "secret" not in repr(connect(connection.transport.session.settings.address))
