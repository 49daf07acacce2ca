"""Address: the one URL form of ferryman, used as Celery broker URL, on the command line and as Spark option ``url``.

    ferryman://[user:pass@]host[:port]/db[?family=kue&prefix=q&…]      plain TCP
    ferrymans://…                                                      TLS, certificates verified
    ferryman+unix:///path/redis.sock?db=0                              also ferryman+socket://, as kombu calls it
    ferryman+sentinel://h1:26379,h2:26379/service/db
    ferryman+cluster://h1:6379,h2:6379/0
    ferryman+rdb:///path/dump.rdb?family=kue&prefix=q                  a snapshot file, read-only

A password that shall not stand in the URL is named there: ``password_env=VARIABLE`` or ``password_file=PATH`` (see secret.py).
Parsing says which part of a URL is wrong and never repeats the password, wherever in the text it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from attrs import evolve, field, frozen

from ..errors import AddressError
from ..text import parse_flag
from . import tls
from .ignored import IGNORED_OPTIONS, SENTINEL_OPTIONS

if TYPE_CHECKING:
    from ..family import KeyFamily

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
DEFAULT_FAMILY = "ferryman"
ANY_FAMILY = "auto"
"""``family=auto``: whatever keyspace stands there, under the given prefix or any. For commands that look before they read."""


class Kind(StrEnum):
    """How a server (or file) is reached; the value is the URL scheme."""

    TCP = "ferryman"
    TLS = "ferrymans"
    UNIX = "ferryman+unix"
    SENTINEL = "ferryman+sentinel"
    CLUSTER = "ferryman+cluster"
    RDB = "ferryman+rdb"


SCHEMES = {"ferryman+socket": "ferryman+unix"}
"""Other names of schemes: what kombu's become if only ``redis`` is changed."""


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError("must be a number of seconds above 0")
    return number


def _pause(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError("must be a number of seconds, 0 for never")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be a whole number above 0")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("must be a whole number, 0 or more")
    return number


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return parse


def _name(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _durability(text: str) -> str:
    word, colon, number = text.partition(":")
    if (word in ("local", "fsync") and not colon) or (word == "replica" and number.isdecimal() and int(number) > 0):
        return text
    raise ValueError("must be local, replica:N or fsync")


OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "lease": _seconds,
    "fetch_limit": _whole,
    "fetch_bytes": _whole,
    "delivery_limit": _count,
    "dead_letter_limit": _count,
    "dead_letter_bytes": _count,
    "dead_letter_ttl": _pause,
    "priority_order": _one_of("ascending", "descending"),
    "queue_order_strategy": _one_of("round_robin", "sorted", "priority"),
    "remove_revoked": parse_flag,
    "history": parse_flag,
    "otel": parse_flag,
    "side_prefix": _name,
    "mapping": _name,
    "durability": _durability,
    "client_name": str,
    "password_env": _name,
    "password_file": _name,
    "credential_provider": _name,
    "health_check_interval": _pause,
    "socket_timeout": _seconds,
    "socket_connect_timeout": _seconds,
    **tls.OPTIONS,
    "checksum": parse_flag,
}
"""Query parameters beside ``family``, ``prefix`` and ``db``, with what parses them."""

SECRETS = frozenset({"ssl_password"})
"""Options whose values nobody may see."""

OF_CONNECTIONS = frozenset(
    {"client_name", "password_env", "password_file", "credential_provider", "health_check_interval", "checksum"}
    | {"socket_timeout", "socket_connect_timeout", *tls.OPTIONS}
)
"""Those that say how a server or a file is read, whatever stands there. The others are the broker's."""


@frozen
class Address:
    """A parsed URL. ``repr`` and ``display`` leave the password out."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    db: int = 0
    path: str = ""
    """The socket or the snapshot file."""
    service: str = ""
    """The Sentinel service name."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    family: str = DEFAULT_FAMILY
    prefix: str = DEFAULT_FAMILY
    options: Mapping[str, Any] = field(factory=dict, repr=lambda options: repr(_without_secrets(options)))
    """Parsed values by option name."""
    ignored: tuple[str, ...] = ()
    """Options of ``redis://`` that stood in a broker's URL and mean nothing here."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Parsed values of the family's own parameters, by name."""

    @property
    def key_family(self) -> KeyFamily:
        """The family, as the URL's parameters have it. Raises UnknownFamily."""
        return _family(self.family, self.settings)

    @classmethod
    def parse(cls, url: str, *, service: str | None = None, as_broker: bool = False) -> Address:
        """The address a URL names. ``service``: the Sentinel service, where the URL need not name it.

        ``as_broker``: the options of kombu's ``redis://`` that mean nothing here are let pass.
        Raises AddressError that says which part is wrong and what would be right.
        """
        scheme, separator, rest = url.partition("://")
        kind = _kind(scheme if separator else "")
        try:
            parts = urlsplit("//" + rest)
        except ValueError:  # its text would repeat the URL
            raise AddressError("the host is not written as a host; put an IPv6 address in [brackets]") from None
        if parts.fragment:
            raise AddressError("a URL can't have a '#' part; write '#' as %23")
        query = _query(parts.query)
        username, password, hosts_text = _credentials(parts.netloc)
        address = cls(kind, username=username, password=password)
        match kind:
            case Kind.UNIX | Kind.RDB:
                address = _with_path(address, hosts_text + parts.path, query)
            case Kind.SENTINEL:
                address = _with_service(address, hosts_text, parts.path, service)
            case _:
                db = parts.path.removeprefix("/") or query.pop("db", "")
                address = evolve(address, hosts=_hosts(hosts_text, DEFAULT_PORT), db=_db(db))
        if kind is Kind.CLUSTER and address.db:
            raise AddressError("a cluster has database 0 only; end the URL with /0")
        if kind in (Kind.TCP, Kind.TLS) and len(address.hosts) > 1:
            raise AddressError("several hosts need ferryman+cluster:// or ferryman+sentinel://")
        return _with_options(address, query, as_broker)

    def unchecked(self) -> Address:
        """The same snapshot file, whose checksum is not to be compared."""
        return evolve(self, options={**self.options, "checksum": False})

    def of_keyspace(self) -> Address:
        """The same keyspace, for who only reads it: without a broker's options, which mean nothing to other families."""
        if self.family == DEFAULT_FAMILY:
            return self
        return evolve(self, options={name: value for name, value in self.options.items() if name in OF_CONNECTIONS})

    def display(self) -> str:
        """The URL for people: complete but for the password."""
        shown = evolve(self, options=_without_secrets(self.options))
        return shown._url("***" if self.password else None)

    def url(self) -> str:
        """The URL with the password, for handing to another process. Never print it."""
        return self._url(quote(self.password, safe="") if self.password else None)

    def _url(self, password: str | None) -> str:
        login = quote(self.username, safe="") if self.username else ""
        if password is not None:
            login += f":{password}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        query = {"family": self.family} if self.family != DEFAULT_FAMILY else {}
        if self.prefix != _default_prefix(self.family):
            query["prefix"] = self.prefix
        query |= {name: _option_text(value) for name, value in (*self.options.items(), *self.settings)}
        match self.kind:
            case Kind.UNIX | Kind.RDB:
                location = quote(self.path)
                query = {"db": str(self.db)} | query if self.db else query
            case Kind.SENTINEL:
                location = f"{hosts}/{quote(self.service, safe='')}/{self.db}"
            case _:
                location = f"{hosts}/{self.db}"
        return f"{self.kind}://{login + '@' if login else ''}{location}{'?' + urlencode(query) if query else ''}"

    def __str__(self) -> str:
        return self.display()


def _kind(scheme: str) -> Kind:
    try:
        return Kind(SCHEMES.get(scheme.lower(), scheme.lower()))
    except ValueError:
        known = ", ".join(f"{kind}://" for kind in Kind)
        # A text without a scheme may be a bare password or host: it is not repeated.
        shown = f"scheme {scheme!r}" if scheme.replace("+", "").isalnum() and len(scheme) < 30 else "this"
        raise AddressError(f"{shown} is no ferryman URL; it starts with one of {known}") from None


def _query(text: str) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, strict_parsing=False):
        if name in query:
            raise AddressError(f"parameter {name!r} stands twice in the URL")
        query[name] = value
    return query


def _credentials(netloc: str) -> tuple[str | None, str | None, str]:
    login, separator, hosts = netloc.rpartition("@")
    if not separator:
        return None, None, hosts
    username, separator, password = login.partition(":")
    return unquote(username) or None, unquote(password) if separator else None, hosts


def _hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    return tuple(_host(each, default_port) for each in (text or "localhost").split(","))


def _host(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not port:
        return host or "localhost", default_port
    # The text between ':' and '/' may be half of a password with an unescaped '@' or '/' in it: it is not repeated.
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise AddressError(
            "the port must be a number from 1 to 65535 (in a password write '@' as %40, ':' as %3A, '/' as %2F, '?' as %3F)"
        )
    return host or "localhost", int(port)


def _db(text: str) -> int:
    if text in ("", "/"):  # a URL that ends in // is AMQP's habit
        return 0
    if not text.isascii() or not text.isdigit():
        raise AddressError("the part after the host must be a database number, as in ferryman://localhost:6379/0")
    return int(text)


def _with_path(address: Address, path: str, query: dict[str, str]) -> Address:
    if not path.startswith("/") or path == "/":
        raise AddressError(f"{address.kind}:// needs an absolute path after it, as in {address.kind}:///var/lib/redis/…")
    db = query.pop("db", None) or query.pop("virtual_host", "")
    return evolve(address, path=unquote(path), db=_db(db.removeprefix("/")))


def _with_service(address: Address, hosts: str, path: str, given: str | None) -> Address:
    name, _, db = path.removeprefix("/").partition("/")
    service = unquote(name)
    if given and db in ("", "/") and (not name or name.isdecimal()):  # as on sentinel://, the path is the database
        service, db = given, name
    if not hosts or not service:
        raise AddressError(
            "write ferryman+sentinel://host1:26379,host2:26379/service/db, or give the service as transport option master_name"
        )
    if given and service != given:
        raise AddressError(f"the URL names the service {service!r} and master_name is {given!r}; give it once")
    return evolve(address, hosts=_hosts(hosts, DEFAULT_SENTINEL_PORT), service=service, db=_db(db))


def _with_options(address: Address, query: dict[str, str], as_broker: bool) -> Address:
    if "global_keyprefix" in query:
        query.setdefault("prefix", without_braces(query.pop("global_keyprefix")))
    family = query.pop("family", DEFAULT_FAMILY)
    prefix = query.pop("prefix", _default_prefix(family))
    own = {} if family in (DEFAULT_FAMILY, ANY_FAMILY) else _family(family).parameters
    has_all = family == DEFAULT_FAMILY or as_broker
    allowed = {name: OPTIONS[name] for name in OPTIONS if has_all or name in OF_CONNECTIONS} | dict(own)
    options: dict[str, Any] = {}
    ignored = []
    for name, text in query.items():
        if as_broker and name not in own and name in IGNORED_OPTIONS and name not in SENTINEL_OPTIONS:
            ignored.append(name)
            continue
        if name not in allowed:
            known = ", ".join(sorted({"family", "prefix", "db", *allowed}))
            what = f"unknown parameter {name!r} in the URL"
            if name in OPTIONS or name in IGNORED_OPTIONS or _is_of_a_family(name):
                what = f"the parameter {name!r} in the URL means nothing to family={family}"
            raise AddressError(f"{what}; known are: {known}")
        try:
            options[name] = allowed[name](text)
        except ValueError as error:
            reason = str(error) if str(error).startswith("must") else "is not a number"
            raise AddressError(f"parameter {name!r} {reason}") from None
    settings = tuple((name, options.pop(name)) for name in sorted(own) if name in options)
    if "checksum" in options and address.kind is not Kind.RDB:
        raise AddressError(f"parameter 'checksum' is for snapshot files ({Kind.RDB}://): a server has none")
    if (address.password is not None) + ("password_env" in options) + ("password_file" in options) > 1:
        raise AddressError("give the password once: in the URL, by password_env or by password_file")
    if address.kind in (Kind.UNIX, Kind.RDB) and (found := sorted(options.keys() & tls.OPTIONS.keys())):
        raise AddressError(f"parameter {found[0]!r} is for TLS, which {address.kind}:// has not")
    return evolve(address, family=family, prefix=prefix, options=options, ignored=tuple(ignored), settings=settings)


def _is_of_a_family(name: str) -> bool:
    """Whether any family has a parameter of this name."""
    from ..family import family_names

    return any(name in _family(family).parameters for family in family_names())


def without_braces(prefix: str) -> str:
    """kombu's ``global_keyprefix`` as a prefix: braces are percent-encoded, because here each queue has a hash tag of its own."""
    return prefix.replace("{", "%7B").replace("}", "%7D")


def _default_prefix(family: str) -> str:
    """Raises UnknownFamily. A broker URL loads no family: the native one's readers and rules are nothing a worker needs."""
    if family == ANY_FAMILY:
        return ""
    return DEFAULT_FAMILY if family == DEFAULT_FAMILY else _family(family).default_prefix


def _without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "***" if name in SECRETS else value for name, value in options.items()}


def _option_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _family(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> KeyFamily:
    # A broker of ferryman's own queues asks no family, and so need not wait until what it stands on is loaded.
    from ..family import get_family

    return get_family(name, settings)
