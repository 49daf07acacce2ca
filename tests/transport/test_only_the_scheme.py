"""Only the scheme changes: what kombu's ``redis://`` takes is done the same, or named with the reason why it means nothing."""

from __future__ import annotations

import ast
import datetime
import inspect
import logging
import ssl
from pathlib import Path

import kombu.connection
import kombu.messaging
import kombu.transport.redis as kombu_redis
import kombu.transport.virtual.base as kombu_virtual
import pytest
import redis
from ferryman.schema.connection import tls
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.ignored import IGNORED_OPTIONS
from ferryman.schema.errors import AddressError, UsageError
from ferryman.transport import settings as settings_module
from ferryman.transport.settings import Settings
from kombu import Connection, Exchange, Producer, Queue
from kombu.serialization import dumps, loads
from kombu.transport.redis import SentinelChannel

from ..support.brokers import FERRYMAN, REDIS

URL = "ferryman://localhost:1/0"

VALUES = {
    "callback": None,
    "credential_provider": redis.UsernamePasswordCredentialProvider("u", "p"),
    "global_keyprefix": "g",
    "health_check_interval": 25,
    "priority_steps": [0, 3, 6, 9],
    "queue_order_strategy": "sorted",
    "sentinel_kwargs": {"password": "p"},
    "socket_connect_timeout": 3,
    "socket_keepalive_options": {},
    "socket_timeout": 3,
}
"""Options that need a value of a kind; the others get 1."""


def read_by_kombu() -> set[str]:
    """The names that kombu reads out of ``transport_options``, from its own tables and from its sources."""
    names = set(SentinelChannel.from_transport_options)
    for module in (kombu_redis, kombu_virtual, kombu.connection):
        for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text())):
            names.update(_name_in(node))
    ensure = inspect.signature(Connection.ensure).parameters
    # A publish with a retry policy writes it into the options of its connection.
    return names | {name for name in ensure if name not in ("self", "obj", "fun")}


def _name_in(node: ast.AST) -> set[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return {name} if _is_options(holder) else set()
        case ast.Subscript(value=holder, slice=ast.Constant(value=str(name))):
            return {name} if _is_options(holder) else set()
        case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In()], comparators=[holder]):
            return {name} if _is_options(holder) else set()
    return set()


def _is_options(node: ast.AST) -> bool:
    return ast.unparse(node).rpartition(".")[2] in ("transport_options", "transport_opts", "topts")


def of(url: str = URL, **arguments) -> Settings:
    """What a kombu connection's URL and options come to."""
    return Settings.of(Connection(url, **arguments))


@pytest.fixture
def warnings(caplog, monkeypatch):
    """What has been said, also by options that earlier tests had."""
    monkeypatch.setattr(settings_module, "_warned", set())
    caplog.set_level(logging.WARNING, "ferryman.transport")
    return caplog


# Options


def test_kombus_own_list_has_what_we_know_of_it():
    assert {"visibility_timeout", "deadletter_queue", "max_retries", "sep", "master_name", "retry_errors"} <= read_by_kombu()


@pytest.mark.parametrize("name", sorted(read_by_kombu()))
def test_every_option_that_kombu_reads_is_taken(name, warnings):
    of(transport_options={name: VALUES.get(name, 1)})
    assert [name in line for line in warnings.messages] == [True] * (name in IGNORED_OPTIONS)


def test_an_option_that_means_nothing_is_named_once_with_the_reason(warnings):
    for _ in range(2):
        of(transport_options={"visibility_timeout": 3600})
        of(f"{URL}?unacked_key=u")
    assert len(warnings.messages) == 2
    assert "a worker renews the lease on what it holds" in warnings.messages[0]
    assert "what a worker holds stands in keys of its queue" in warnings.messages[1]


@pytest.mark.parametrize("name", ["db", "prefetch_multiplier", "region", "retry_on_startup", "retry_policy"])
def test_an_option_that_belongs_elsewhere_is_named_with_its_place(name, warnings):
    of(transport_options={name: 1})
    assert [name in line for line in warnings.messages] == [True]


def test_an_option_that_nobody_knows_is_refused_with_those_that_are_known():
    with pytest.raises(UsageError, match=r"unknown transport option 'visibilty_timeout'; known are: .*lease"):
        of(transport_options={"visibilty_timeout": 1})


def test_none_is_the_default_and_never_to_wait_for_ever(warnings):
    options = ("socket_timeout", "socket_connect_timeout", "client_name", "health_check_interval", "retry_on_timeout")
    found = of(transport_options=dict.fromkeys(options))
    assert found.reply_timeout == settings_module.SOCKET_TIMEOUT
    assert warnings.messages == [
        "socket_timeout=None means nothing to ferryman://: after 5 s without an answer a server counts as gone"
    ]


def test_a_health_check_interval_of_0_is_no_check():
    found = of(transport_options={"health_check_interval": 0})
    assert found.links.client().connection_pool.connection_kwargs["health_check_interval"] == 0


def test_a_key_prefix_with_braces_is_written_without_them(server, client, warnings):
    with FERRYMAN.connection(server, global_keyprefix="{my}:") as connection:
        connection.SimpleQueue("q").put("x")
        assert client.exists("%7Bmy%7D::{q}:meta")
    assert any("each queue has a hash tag of its own" in line for line in warnings.messages)
    assert of(f"{URL}?global_keyprefix=%7Bmy%7D:").prefix == "%7Bmy%7D:"
    with pytest.raises(UsageError, match="must not contain"):
        Connection(URL, transport_options={"prefix": "{my}"}).transport  # noqa: B018 - a property that connects nothing


# URLs


@pytest.mark.parametrize(
    ("url", "db"),
    [
        ("ferryman://localhost:1//", 0),
        ("ferryman://localhost:1", 0),
        ("ferryman://localhost:1/", 0),
        ("ferryman://localhost:1/3", 3),
        ("ferryman+socket:///tmp/redis.sock", 0),
        ("ferryman+socket:///tmp/redis.sock?virtual_host=3", 3),
        ("ferryman+unix:///tmp/redis.sock?virtual_host=/3", 3),
        ("ferryman://localhost:1/2?heartbeat=10", 2),
        ("ferryman://localhost:1/2?login_method=PLAIN&insist=1", 2),
    ],
)
def test_shapes_of_urls_that_kombu_takes(url, db):
    assert of(url).address.db == db


def test_a_credential_provider_may_stand_in_the_url():
    found = of(f"{URL}?credential_provider=redis.credentials.UsernamePasswordCredentialProvider")
    assert isinstance(found.links.client().connection_pool.connection_kwargs["credential_provider"], redis.CredentialProvider)
    with pytest.raises(UsageError, match=r"credential_provider 'no\.such\.Class' can't be used"):
        of(f"{URL}?credential_provider=no.such.Class").links.client()


SENTINELS = (("a", 26379), ("b", 1))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ferryman+sentinel://a;ferryman+sentinel://b:1", {"master_name": "m"}),
        ("ferryman+sentinel://a/3;ferryman+sentinel://b:1/3", {"master_name": "m"}),
        ("ferryman+sentinel://a//;ferryman+sentinel://b:1//", {"master_name": "m"}),
        ("ferryman+sentinel://a,b:1/3", {"master_name": "m"}),
        ("ferryman+sentinel://a,b:1/m/3", {}),
        ("ferryman+sentinel://a,b:1/m/3", {"master_name": "m"}),
        ("ferryman+sentinel://a/m/3;ferryman+sentinel://b:1/m/3", {}),
    ],
)
def test_sentinels_are_named_in_one_url_or_in_a_list(url, options):
    connection = Connection(url, transport_options=options)
    for _ in range(2):
        address = Settings.of(connection).address
        assert address.hosts == SENTINELS
        assert (address.service, address.db) == ("m", 3 if "3" in url else 0)
        connection.maybe_switch_next()  # as kombu does when one does not answer
    assert Settings.of(connection.clone()).address.hosts == SENTINELS


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("ferryman+sentinel://a;ferryman+sentinel://b", {}, "master_name"),
        ("ferryman+sentinel://a/m/0", {"master_name": "n"}, "names the service 'm' and master_name is 'n'"),
        ("ferryman+sentinel://a;ferryman://b", {"master_name": "m"}, "list of Sentinels"),
        ("ferryman+sentinel://a,b;ferryman+sentinel://c", {"master_name": "m"}, "list of Sentinels"),
    ],
)
def test_sentinels_that_can_not_be_are_refused(url, options, text):
    with pytest.raises(UsageError, match=text):
        of(url, transport_options=options)


def test_options_for_sentinels_reach_them():
    options = {"master_name": "m", "min_other_sentinels": 2, "sentinel_kwargs": {"password": "p"}}
    found = of("ferryman+sentinel://a;ferryman+sentinel://b", transport_options=options)
    manager = found.links.client().connection_pool.sentinel_manager
    assert manager.min_other_sentinels == 2
    assert manager.sentinel_kwargs["password"] == "p"


# Messages


@pytest.mark.parametrize("broker", [FERRYMAN, REDIS], ids=str)
@pytest.mark.parametrize("priority", [-1, 256, 10**30, "high", "3", 2.5, None, float("nan")])
def test_a_priority_that_can_not_be_is_the_nearest_that_can(server, broker, priority):
    with broker.connection(server) as connection, connection.channel() as channel:
        queue = Queue("q")(channel)
        queue.declare()
        Producer(channel).publish("x", routing_key="q", priority=priority)
        assert queue.get().payload == "x"


def test_priorities_keep_their_range_of_0_to_255(server):
    with FERRYMAN.connection(server) as connection, connection.channel() as channel:
        for priority in (300, 7, -5, 255, 0):
            Producer(channel).publish(priority, routing_key="q", priority=priority)
        found = [channel.basic_get("q") for _ in range(5)]
    assert [message.payload for message in found] == [-5, 0, 7, 300, 255]
    assert [message.delivery_info["priority"] for message in found] == [0, 0, 7, 255, 255]


@pytest.mark.parametrize("broker", [FERRYMAN, REDIS], ids=str)
@pytest.mark.filterwarnings("ignore::kombu.transport.virtual.base.UndeliverableWarning")
def test_what_a_direct_exchange_has_no_queue_for_goes_to_the_deadletter_queue(server, broker):
    with broker.connection(server, deadletter_queue="graves") as connection, connection.channel() as channel:
        exchange = Exchange("ex", "direct")
        Queue("q", exchange, routing_key="known")(channel).declare()
        Queue("graves")(channel).declare()
        for key in ("unknown", "known"):
            Producer(channel).publish(key, exchange=exchange, routing_key=key)
        assert Queue("graves")(channel).get().payload == "unknown"
        assert Queue("graves")(channel).get() is None
        assert Queue("q")(channel).get().payload == "known"


def test_the_deadletter_queue_is_made_if_there_is_none(server):
    with FERRYMAN.connection(server, deadletter_queue="graves") as connection, connection.channel() as channel:
        channel.exchange_declare("ex", "direct")
        Producer(channel).publish("x", exchange="ex", routing_key="nobody's")
        assert channel.basic_get("graves").payload == "x"


# TLS


def arguments(url: str, **options) -> dict[str, object]:
    """What a connection of redis-py is given."""
    return of(url, **options).links.client().connection_pool.connection_kwargs


def test_every_tls_setting_that_there_is_is_known():
    names = {name for name in inspect.signature(redis.SSLConnection.__init__).parameters if name.startswith("ssl_")}
    assert names <= {*tls.OPTIONS, *tls.OBJECTS}


@pytest.mark.parametrize("word", ["CERT_NONE", "none"])
def test_the_words_of_celerys_docs_are_taken_in_urls(word):
    for scheme in ("ferryman", "ferrymans"):
        found = arguments(f"{scheme}://localhost:1/0?ssl_cert_reqs={word}&ssl_ca_certs=%2Fvar%2Fssl%2Fmyca.pem")
        assert (found["ssl_cert_reqs"], found["ssl_check_hostname"]) == ("none", False)
        assert found["ssl_ca_certs"] == "/var/ssl/myca.pem"


@pytest.mark.parametrize("prefix", ["", "ssl_"])
def test_every_key_of_broker_use_ssl_is_honoured(prefix):
    given = {
        "ca_data": "PEM",
        "ca_path": "/etc/ssl",
        "cert_reqs": ssl.CERT_OPTIONAL,
        "certfile": "c",
        "check_hostname": False,
        "ciphers": "ECDHE+AESGCM",
        "keyfile": "k",
        "min_version": ssl.TLSVersion.TLSv1_3,
        "password": "secret",
    }
    found = arguments(URL, ssl={f"{prefix}{name}": value for name, value in given.items()})
    expected = {f"ssl_{name}": value for name, value in given.items()} | {"ssl_cert_reqs": "optional"}
    assert {name: found[name] for name in expected} == expected


def test_a_url_and_a_dict_are_one_setting_and_the_dict_wins():
    url = "ferrymans://localhost:1/0?ssl_cert_reqs=none&ssl_ciphers=A"
    found = arguments(url, ssl={"ssl_ciphers": "B", "ssl_ca_certs": None})
    assert (found["ssl_cert_reqs"], found["ssl_ciphers"], found["ssl_check_hostname"]) == ("none", "B", False)


@pytest.mark.parametrize(
    ("url", "given"),
    [
        (URL, {"ca_certs": "x"}),
        ("ferryman+sentinel://a/m/0", {"ca_certs": "x"}),
        ("ferryman+sentinel://a/m/0?ssl_ca_certs=x", False),
        ("ferrymans://localhost:1/0", False),
        ("ferryman://localhost:1/0?ssl_ca_certs=x", False),
        (URL, True),
    ],
)
def test_host_names_are_verified_whatever_the_client_library_would_do(url, given):
    found = arguments(url, ssl=given)
    assert (found["ssl_cert_reqs"], found["ssl_check_hostname"]) == ("required", True)


@pytest.mark.parametrize("given", [{"ca_certs": "x"}, False])
def test_the_nodes_of_a_cluster_have_the_same_tls(given):
    found = of("ferryman+cluster://a/0" if given else "ferryman+cluster://a/0?ssl_ca_certs=x", ssl=given)
    node = found.links.node_client("b", 2).connection_pool
    assert issubclass(node.connection_class, redis.SSLConnection)
    assert (node.connection_kwargs["ssl_ca_certs"], node.connection_kwargs["ssl_check_hostname"]) == ("x", True)


@pytest.mark.parametrize(
    ("url", "given", "text"),
    [
        (URL, {"ssl_ca_cert": "x"}, "'ssl_ca_cert', which ferryman:// does not know; known are: .*ssl_ca_certs"),
        (URL, {"server_hostname": "x"}, "'server_hostname'"),
        (URL, {"ssl_cert_reqs": "maybe"}, "'ssl_cert_reqs' must be one of required, optional, none"),
        (URL, {"ssl_min_version": "3"}, "'ssl_min_version' must be one of"),
        (URL, {"ssl_cert_reqs": "none", "ssl_check_hostname": True}, "ssl_check_hostname needs a certificate"),
        (URL, "yes", "must be true, false or a dict"),
        ("ferryman+unix:///tmp/redis.sock", True, "no TLS with ferryman\\+unix"),
        ("ferryman+unix:///tmp/redis.sock?ssl_ca_certs=x", False, "for TLS, which ferryman\\+unix:// has not"),
        (f"{URL}?ssl_ca_cert=x", False, "unknown parameter 'ssl_ca_cert'"),
    ],
)
def test_a_tls_setting_that_can_not_be_honoured_is_refused_by_name(url, given, text):
    with pytest.raises(UsageError, match=text):
        of(url, ssl=given).links.client()


def test_a_setting_that_the_installed_client_library_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(tls, "_known_to_redis", lambda: frozenset({"ssl_cert_reqs", "ssl_check_hostname"}))
    with pytest.raises(UsageError, match="ssl_ciphers needs a newer redis-py"):
        arguments(URL, ssl={"ciphers": "A"})


def test_a_url_with_tls_settings_can_be_written_and_read_again_and_shows_no_secret():
    url = "ferrymans://localhost:1/0?ssl_min_version=1.3&ssl_password=hush&ssl_ciphers=A:B"
    address = of(url).address
    assert Address.parse(address.url()) == address
    assert "hush" not in f"{address!r} {address} {of(url)!r} {Connection(url).as_uri()}"


# What else uses kombu


def test_kombus_own_json_is_left_alone():
    value = {"at": datetime.datetime(2026, 1, 2), "name": "x"}
    content_type, encoding, text = dumps(value, "json")
    assert loads(text, content_type, encoding) == value


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("ferryman://user:secret@host:1/2", "redis://user:***@host:1/2"),
        ("ferrymans://host/2", "rediss://host:6379/2"),
        ("ferryman+unix:///tmp/redis.sock", "redis://host:6379/0"),
    ],
)
def test_a_result_backend_of_ours_says_that_it_is_none_and_which_to_use(url, instead):
    from celery import Celery
    from celery.exceptions import ImproperlyConfigured

    with Celery(broker=URL, backend=url) as app, pytest.raises(ImproperlyConfigured) as caught:
        app.backend  # noqa: B018 - a property that makes it
    assert f"is a broker and keeps no results; set result_backend to {instead} " in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_part_after_the_host_is_still_checked():
    with pytest.raises(AddressError, match="database number"):
        of("ferryman://localhost:1/3/")
