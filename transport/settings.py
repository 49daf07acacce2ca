"""Settings: one kombu connection's URL and options, checked and in one place.

Options come from the URL's query and from ``transport_options`` (Celery: ``broker_transport_options``), which win. Reading
happens once for each kombu connection; nothing else looks at kombu's connection parameters.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import redis
from attrs import evolve, field, frozen
from kombu.utils.imports import symbol_by_name
from redis import CredentialProvider

from ..schema.address import DEFAULT_PORT, IGNORED_OPTIONS, OPTIONS, Address, Kind
from ..schema.connect import connect
from ..schema.errors import UsageError
from ..schema.native.live import FETCH_BYTES
from ..schema.native.place import PriorityOrder
from .cluster import ClusterWire
from .wire import NodeWire, Wire

logger = logging.getLogger("ferryman.transport")

LEASE = 30.0
"""Seconds. A killed worker's messages run again after at most this long."""
FETCH_LIMIT = 100
"""Messages one call may take."""
DELIVERY_LIMIT = 20
"""Deliveries after which a message is a dead letter; 0 = never."""
SOCKET_TIMEOUT = 5.0
"""Seconds to wait for a reply: a frozen server is an error after this, not a hang."""

KOMBU_OPTIONS = frozenset(
    {"max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout", "errback", "callback"}
    | {"polling_interval", "confirm_publish", "confirm_timeout", "queue_name_prefix", "predefined_queues"}
    | {"socket_keepalive", "socket_keepalive_options", "retry_on_timeout", "master_name", "sentinel_kwargs", "body_encoding"}
    | {"credential_provider"}
)
"""Options that have no place in a URL, are kombu's own, or have no meaning here: they may stand in transport_options."""

_warned: set[str] = set()


@frozen
class Settings:
    """What one connection needs to know. Durations are seconds."""

    address: Address
    lease: float = LEASE
    fetch_limit: int = FETCH_LIMIT
    fetch_bytes: int = FETCH_BYTES
    delivery_limit: int = DELIVERY_LIMIT
    priority_order: PriorityOrder = "ascending"
    durability: str = "local"
    remove_revoked: bool = True
    """Whether Celery's ``revoke`` also removes the tasks from their queues."""
    queue_order: str = "round_robin"
    """Which of several queues is asked first: each in turn, ``sorted`` by name, or ``priority``: as they were consumed."""
    connection_arguments: Mapping[str, Any] = field(factory=dict, repr=False)
    """For redis-py, beyond what the address says."""

    @property
    def prefix(self) -> str:
        """The namespace of all keys."""
        return self.address.prefix

    @property
    def lease_ms(self) -> int:
        """The lease in ms, as the scripts want it."""
        return round(self.lease * 1000)

    @property
    def reply_timeout(self) -> float:
        """Seconds after which a server that owes a reply counts as gone."""
        seconds: float = self.connection_arguments.get("socket_timeout", SOCKET_TIMEOUT)
        return seconds

    def client(self, **overrides: Any) -> redis.Redis:
        """A new redis-py client for this address, which must be of one server."""
        return connect(self.address, **{**self.connection_arguments, **overrides})

    def node_client(self, host: str, port: int, **overrides: Any) -> redis.Redis:
        """A new redis-py client for one node of the cluster."""
        has_tls = any(name.startswith("ssl_") for name in self.address.options)
        node = evolve(self.address, kind=Kind.TLS if has_tls else Kind.TCP, hosts=((host, port),))
        return connect(node, **{**self.connection_arguments, **overrides})

    @property
    def is_cluster(self) -> bool:
        """Whether the keys are spread over several servers."""
        return self.address.kind is Kind.CLUSTER

    def wire(self, **overrides: Any) -> Wire:
        """A new wire to this address."""
        if self.is_cluster:
            nodes = partial(self.node_client, **overrides)
            return ClusterWire(self.address.hosts, nodes, overrides.get("socket_timeout", self.reply_timeout))
        return NodeWire(self.client(**overrides))

    @classmethod
    def of(cls, client: Any) -> Settings:
        """The settings of a kombu ``Connection``.

        Raises UsageError for an unknown option or a URL that can't be used; the text never holds the password.
        """
        _check_alternates(client.alt)
        given = dict(client.transport_options or {})
        address = _address(client)
        prefix = given.pop("prefix", None) or given.pop("global_keyprefix", None)
        if prefix:
            address = evolve(address, prefix=str(prefix))
        if given.pop("family", address.family) != "ferryman" or address.family != "ferryman":
            raise UsageError("as a broker, ferryman:// serves its own key family; leave family= out of the URL")
        options = {**address.options, **_options(given)}
        arguments: dict[str, Any] = {"socket_timeout": SOCKET_TIMEOUT}
        if client.connect_timeout:
            arguments["socket_connect_timeout"] = client.connect_timeout
        arguments |= {name: options[name] for name in ("socket_timeout", "socket_connect_timeout") if name in options}
        arguments |= {name: given[name] for name in ("socket_keepalive", "socket_keepalive_options") if name in given}
        provider = given.get("credential_provider") or client.credential_provider
        if provider is not None:
            arguments |= {"credential_provider": _provider(provider), "username": None, "password": None}
        if address.kind is Kind.SENTINEL and given.get("sentinel_kwargs"):
            arguments["sentinel_kwargs"] = given["sentinel_kwargs"]
        arguments |= _tls(client.ssl)
        if arguments.get("ssl") and address.kind is Kind.TCP:
            address = evolve(address, kind=Kind.TLS)
        return cls(
            address=evolve(address, options=options),
            lease=options.get("lease", LEASE),
            fetch_limit=options.get("fetch_limit", FETCH_LIMIT),
            fetch_bytes=options.get("fetch_bytes", FETCH_BYTES),
            delivery_limit=options.get("delivery_limit", DELIVERY_LIMIT),
            priority_order=options.get("priority_order", "ascending"),
            durability=options.get("durability", "local"),
            remove_revoked=options.get("remove_revoked", True),
            queue_order=options.get("queue_order_strategy", "round_robin"),
            connection_arguments=arguments,
        )


def _address(client: Any) -> Address:
    """kombu hands over either the whole URL as ``hostname``, or (after a failover switch) its parts."""
    host = client.hostname or ""
    if "://" in host:
        url = f"{client.uri_prefix}+{host}" if client.uri_prefix else host
        return Address.parse(url)
    scheme = client.transport_cls if client.transport_cls in tuple(Kind) else Kind.TCP
    vhost = str(client.virtual_host or "").strip("/")
    address = Address.parse(f"{scheme}://localhost/{vhost}")
    password = client.password() if callable(client.password) else client.password
    return evolve(
        address,
        hosts=((host or "localhost", int(client.port or DEFAULT_PORT)),),
        username=client.userid or None,
        password=password or None,
    )


def _check_alternates(urls: Sequence[str]) -> None:
    """kombu takes the second and later URLs of a list apart by itself, and knows only plain ones."""
    if len(urls) > 1 and any("?" in url or "+" in url.partition("://")[0] for url in urls):
        raise UsageError(
            "in a list of brokers every URL must be a plain ferryman:// or ferrymans:// one without '?'; options go into "
            "transport_options (Celery: broker_transport_options)"
        )


def _provider(given: Any) -> CredentialProvider:
    """redis-py's credential provider: an object, or the dotted name of a class without arguments."""
    provider = symbol_by_name(given)() if isinstance(given, str) else given
    if not isinstance(provider, CredentialProvider):
        raise UsageError(f"credential_provider must be a redis.CredentialProvider, not a {type(provider).__name__}")
    return provider


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    options = {}
    for name, value in given.items():
        if name in IGNORED_OPTIONS:
            _say_once(name)
        elif name in OPTIONS:
            try:
                options[name] = OPTIONS[name](str(value))
            except ValueError as error:
                raise UsageError(f"transport option {name!r}: {error}") from None
        elif name not in KOMBU_OPTIONS:
            known = ", ".join(sorted({"prefix", *OPTIONS}))
            raise UsageError(f"unknown transport option {name!r}; known are: {known}")
    return options


def _say_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        logger.warning("transport option %r has no meaning for ferryman:// and is ignored", name)


def _tls(given: Any) -> dict[str, Any]:
    """redis-py's arguments for kombu's ``ssl``: True, or a dict with or without the prefix ``ssl_``."""
    if not given:
        return {}
    options = {} if given is True else {name.removeprefix("ssl_"): value for name, value in given.items()}
    renamed = {"ca_certs": "ssl_ca_certs", "certfile": "ssl_certfile", "keyfile": "ssl_keyfile"}
    arguments: dict[str, Any] = {renamed[name]: options[name] for name in renamed if name in options}
    requirement = options.get("cert_reqs", ssl.CERT_REQUIRED)
    words = {ssl.CERT_NONE: "none", ssl.CERT_OPTIONAL: "optional", ssl.CERT_REQUIRED: "required"}
    arguments["ssl_cert_reqs"] = words.get(requirement, requirement)
    if "check_hostname" in options:
        arguments["ssl_check_hostname"] = bool(options["check_hostname"])
    return {"ssl": True} | arguments
