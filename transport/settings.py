"""Settings: one kombu connection's URL and options, checked and in one place.

Options come from the URL's query and from ``transport_options`` (Celery: ``broker_transport_options``), which win. Reading
happens once for each kombu connection; nothing else looks at kombu's connection parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from ..schema.connection import tls
from ..schema.connection.address import ANY_FAMILY, DEFAULT_FAMILY, DEFAULT_PORT, OPTIONS, Address, Kind, without_braces
from ..schema.connection.ignored import IGNORED_OPTIONS, SENTINEL_OPTIONS
from ..schema.connection.secret import credential_provider
from ..schema.errors import UsageError
from ..schema.native.keys import DEFAULT_PREFIX, check_prefix
from ..schema.native.scripts.queue_scripts import DEFAULT_DEAD_LETTER_LIMITS, FETCH_BYTES, DeadLetterLimits
from ..schema.native.scripts.waiting_score import PriorityOrder
from .connection.factory import SOCKET_TIMEOUT, LinkFactory
from .telemetry import Telemetry

if TYPE_CHECKING:
    from ..schema.live import ForeignFamily
    from .live.mapping import JobMapping

logger = logging.getLogger("ferryman.transport")

LEASE = 30.0
"""Seconds. A killed worker's messages run again after at most this long."""
FETCH_LIMIT = 100
"""Messages one call may take."""
DELIVERY_LIMIT = 20
"""Deliveries after which a message is a dead letter; 0 = never."""

KOMBU_OPTIONS = frozenset(
    {"max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout", "errback", "callback"}
    | {"on_revive", "retry_errors"}
)
"""Options that kombu reads by itself. It writes the policy of a publish that it retries among them, too."""
FILE_OPTIONS = frozenset({"checksum"})
"""Options that snapshot files alone have."""
NOT_IN_URLS = frozenset({"socket_keepalive", "socket_keepalive_options", "credential_provider", "deadletter_queue"})
"""Options that have no place in a URL."""

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
    telemetry: Telemetry | None = field(default=None, eq=False, repr=False)
    """What makes OpenTelemetry's spans; None: nothing does."""
    history: bool | None = None
    """Whether the queues that are declared keep a history of their rates, depths and times from now on; None: as it stands, and
    new ones do."""
    dead_letter_limits: DeadLetterLimits = DEFAULT_DEAD_LETTER_LIMITS
    """What the queues that are declared keep of their dead letters."""
    queue_order: str = "round_robin"
    """Which of several queues is polled first: each in turn, ``sorted`` by name, or ``priority``: as they were consumed."""
    deadletter_queue: str | None = None
    """kombu's option: the queue for messages to a direct exchange that no queue wants."""
    connection_arguments: Mapping[str, Any] = field(factory=dict, repr=False)
    """For redis-py, beyond what the address says."""
    foreign: ForeignFamily | None = field(default=None, repr=False)
    """The keyspace of another system that carries the tasks (``family=``); None: ferryman's own carries all."""
    mapping: JobMapping | None = field(default=None, repr=False)
    """Which task a job of that system is, and which job a task (option ``mapping``); None: every name is the task's own."""

    @property
    def prefix(self) -> str:
        """The namespace of ferryman's own keys; those of another system begin with ``address.prefix``."""
        if self.foreign is None:
            return self.address.prefix
        side_prefix: str = self.address.options.get("side_prefix", DEFAULT_PREFIX)
        return side_prefix

    @property
    def lease_ms(self) -> int:
        """The lease in ms, as the scripts want it."""
        return round(self.lease * 1000)

    @property
    def reply_timeout(self) -> float:
        """Seconds after which a server that owes a reply counts as gone."""
        return self.links.reply_timeout

    @property
    def renewal_timeout(self) -> float:
        """Seconds to wait for the reply to a renewal: so few that the lease can be renewed on another attempt."""
        return min(self.reply_timeout, self.lease / 3)

    @property
    def links(self) -> LinkFactory:
        """What opens connections to this address."""
        return LinkFactory(self.address, self.connection_arguments)

    @classmethod
    def of(cls, client: Any) -> Settings:
        """The settings of a kombu ``Connection``.

        Raises UsageError for an unknown option or a URL that can't be used; the text never holds the password.
        """
        given = {name: value for name, value in (client.transport_options or {}).items() if _is_set(name, value)}
        address = _address(client, given)
        for name in address.ignored:
            _warn_once(f"the URL's {name}", IGNORED_OPTIONS[name])
        address = _with_family(address, given)
        arguments = _connection_arguments(address, given, client)
        options = {**address.options, **_options(address, given)}
        if client.connect_timeout:
            arguments.setdefault("socket_connect_timeout", client.connect_timeout)
        arguments |= {name: options[name] for name in ("socket_timeout", "socket_connect_timeout") if name in options}
        foreign = _foreign(address, options)
        return cls(
            address=evolve(address, options=options),
            lease=_lease(options.get("lease", LEASE), foreign),
            fetch_limit=options.get("fetch_limit", FETCH_LIMIT),
            fetch_bytes=options.get("fetch_bytes", FETCH_BYTES),
            delivery_limit=options.get("delivery_limit", DELIVERY_LIMIT),
            priority_order=options.get("priority_order", "ascending"),
            durability=options.get("durability", "local"),
            remove_revoked=options.get("remove_revoked", True),
            history=options.get("history"),
            dead_letter_limits=_dead_letter_limits(options),
            telemetry=Telemetry() if options.get("otel") else None,
            queue_order=options.get("queue_order_strategy", "round_robin"),
            deadletter_queue=given.get("deadletter_queue"),
            connection_arguments=arguments,
            foreign=foreign,
            mapping=_mapping(options["mapping"]) if "mapping" in options else None,
        )


def _address(client: Any, given: Mapping[str, Any]) -> Address:
    """kombu hands over either the whole URL as ``hostname``, or (after a failover switch) its parts."""
    service = given.get("master_name")
    urls = [str(url) for url in client.alt if str(url).startswith(f"{Kind.SENTINEL}:")]
    _check_alternates(client.alt, urls)
    if len(client.alt) > 1 and urls:  # Sentinels of one server: any that answers will do, whichever kombu has switched to
        first, *others = (Address.parse(url, service=service, as_broker=True) for url in urls)
        return evolve(first, hosts=tuple(dict.fromkeys(host for each in (first, *others) for host in each.hosts)))
    host = client.hostname or ""
    if "://" in host:
        url = f"{client.uri_prefix}+{host}" if client.uri_prefix else host
        is_sentinel = url.startswith(f"{Kind.SENTINEL}:")
        address = Address.parse(url, service=service if is_sentinel else None, as_broker=True)
    else:
        address = _from_parts(client, host)
    if client.ssl and address.kind in (Kind.UNIX, Kind.RDB):
        raise UsageError(f"there is no TLS with {address.kind}://; leave ssl (Celery: broker_use_ssl) out")
    return address


def _from_parts(client: Any, host: str) -> Address:
    scheme = client.transport_cls if client.transport_cls in tuple(Kind) else Kind.TCP
    vhost = str(client.virtual_host or "").strip("/")
    address = Address.parse(f"{scheme}://localhost/{vhost}", as_broker=True)
    password = client.password() if callable(client.password) else client.password
    return evolve(
        address,
        hosts=((host or "localhost", int(client.port or DEFAULT_PORT)),),
        username=client.userid or None,
        password=password or None,
    )


def _check_alternates(urls: Sequence[str], sentinels: Sequence[str]) -> None:
    """kombu takes the second and later URLs of a list apart by itself, and knows only plain ones."""
    if len(urls) < 2:
        return
    if sentinels and (len(sentinels) < len(urls) or any("?" in url or "," in url for url in urls)):
        raise UsageError(
            "in a list of Sentinels every URL must be a plain ferryman+sentinel:// one of one host without '?'; options go "
            "into transport_options (Celery: broker_transport_options)"
        )
    if not sentinels and any("?" in url or "+" in url.partition("://")[0] for url in urls):
        raise UsageError(
            "in a list of brokers every URL must be a plain ferryman:// or ferrymans:// one without '?'; options go into "
            "transport_options (Celery: broker_transport_options)"
        )


def _is_set(name: str, value: Any) -> bool:
    """None is the default, as on ``redis://``; but ours for a timeout is not to wait for ever."""
    if value is None and name == "socket_timeout":
        _warn_once(f"{name}=None", f"after {SOCKET_TIMEOUT:g} s without an answer a server counts as gone")
    return value is not None


def _with_family(address: Address, given: dict[str, Any]) -> Address:
    """The address with the family, its parameters and the prefix that ``transport_options`` name. Takes those out of them."""
    name = str(given.pop("family", address.family))
    if name != address.family:
        if name == ANY_FAMILY:
            address = evolve(address, family=name)
        elif name == DEFAULT_FAMILY:
            address = evolve(address, family=name, prefix=DEFAULT_PREFIX, settings=())
        else:
            address = evolve(address, family=name, prefix="", settings=())
            address = evolve(address, prefix=address.key_family.default_prefix)
    if address.family == ANY_FAMILY:
        raise UsageError("a broker serves one keyspace: write which, as in family=kue&prefix=q")
    if address.family == DEFAULT_FAMILY:
        prefix = given.pop("prefix", None) or _prefix(given.pop("global_keyprefix", None))
        return evolve(address, prefix=str(prefix)) if prefix else address
    prefix = given.pop("prefix", given.pop("global_keyprefix", None))
    if prefix is not None:  # an empty one is some systems' own
        address = evolve(address, prefix=str(prefix))
    own = address.key_family.parameters
    settings = dict(address.settings)
    for option in [option for option in given if option in own]:
        try:
            settings[option] = own[option](_text(given.pop(option)))
        except ValueError as error:
            raise UsageError(f"transport option {option!r}: {error}") from None
    return evolve(address, settings=tuple(sorted(settings.items())))


def _text(value: Any) -> str:
    """An option's value as it would stand in a URL."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _foreign(address: Address, options: Mapping[str, Any]) -> ForeignFamily | None:
    """The family that carries the tasks; None for ferryman's own.

    Raises UsageError for a family that can't be in use, and where its keys would not be apart from ferryman's own.
    """
    if address.family == DEFAULT_FAMILY:
        for name in ("side_prefix", "mapping"):
            if name in options:
                raise UsageError(f"the option {name} is for the keyspaces of other systems; it needs family=, as in family=kue")
        return None
    family, prefix = address.key_family, address.prefix
    side_prefix: str = options.get("side_prefix", DEFAULT_PREFIX)
    check_prefix(side_prefix)
    if prefix and f"{side_prefix}:".startswith(f"{prefix.removesuffix(':')}:"):
        raise UsageError(
            f"ferryman's own keys can't be among those of {family.name}: side_prefix={side_prefix} must not begin with {prefix!r}"
        )
    foreign = family.live(prefix, side_prefix)
    if foreign is None:
        raise UsageError(
            f"family={family.name} can be read and migrated, but not be a broker; leave family= out of the URL for ferryman's own"
        )
    if address.kind is Kind.CLUSTER and not family.has_hash_tags(prefix):
        raise UsageError(
            f"on a cluster the keys of {family.name} are on several nodes, and no step of a job could be one transaction; "
            f"it needs a prefix with a hash tag for all of them, as in prefix={{{prefix or family.name}}}"
        )
    return foreign


def _mapping(path: str) -> JobMapping:
    """The mapping in a file. Raises UsageError."""
    from .live.mapping import load

    return load(path)


def _lease(seconds: float, foreign: ForeignFamily | None) -> float:
    """A lease, s: no longer than another system itself waits for a silent worker, so that what ours hold comes back as fast."""
    longest = None if foreign is None else foreign.longest_lease_ms
    return seconds if longest is None else min(seconds, longest / 1000)


def _dead_letter_limits(options: Mapping[str, Any]) -> DeadLetterLimits:
    ttl = options.get("dead_letter_ttl")
    # A time of less than a millisecond is not "without limit".
    ttl_ms = None if ttl is None else max(1, round(ttl * 1000)) if ttl else 0
    return DeadLetterLimits(options.get("dead_letter_limit"), options.get("dead_letter_bytes"), ttl_ms)


def _prefix(given: Any) -> str | None:
    """kombu's ``global_keyprefix``, with which several applications share a database."""
    if not given:
        return None
    prefix = without_braces(str(given))
    if prefix != given:
        _warn_once(f"a brace in global_keyprefix {given!r}", f"each queue has a hash tag of its own; keys begin with {prefix!r}")
    return prefix


def _connection_arguments(address: Address, given: Mapping[str, Any], client: Any) -> dict[str, Any]:
    """redis-py's arguments that no URL can say."""
    arguments: dict[str, Any] = {"socket_timeout": SOCKET_TIMEOUT}
    arguments |= {name: given[name] for name in ("socket_keepalive", "socket_keepalive_options") if name in given}
    # kombu's connections have the attribute since 5.6.1.
    provider = given.get("credential_provider") or getattr(client, "credential_provider", None)
    if provider is not None:
        arguments |= {"credential_provider": credential_provider(provider), "username": None, "password": None}
    if address.kind is Kind.SENTINEL:
        arguments |= {name: given[name] for name in ("sentinel_kwargs", "min_other_sentinels") if given.get(name)}
    if client.ssl:
        of_url = {name: value for name, value in address.options.items() if name in tls.OPTIONS}
        arguments |= tls.arguments({**of_url, **tls.from_kombu(client.ssl)})
    return arguments


def _options(address: Address, given: Mapping[str, Any]) -> dict[str, Any]:
    options = {}
    for name, value in given.items():
        if name in OPTIONS and name not in NOT_IN_URLS | FILE_OPTIONS:
            try:
                options[name] = OPTIONS[name](str(value))
            except ValueError as error:
                raise UsageError(f"transport option {name!r}: {error}") from None
        elif name in SENTINEL_OPTIONS and address.kind is Kind.SENTINEL:
            continue
        elif name in IGNORED_OPTIONS:
            _warn_once(f"the transport option {name}", IGNORED_OPTIONS[name])
        elif name not in KOMBU_OPTIONS | NOT_IN_URLS:
            known = ", ".join(sorted({"prefix", *OPTIONS, *NOT_IN_URLS} - FILE_OPTIONS))
            raise UsageError(f"unknown transport option {name!r}; known are: {known}")
    return options


def _warn_once(what: str, reason: str) -> None:
    if what not in _warned:
        _warned.add(what)
        logger.warning("%s means nothing to ferryman://: %s", what, reason)
