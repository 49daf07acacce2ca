"""Opens connections to the server that an Address names, and turns what redis-py raises into one-line errors.

The only place that knows how an address becomes a client. Callers: migrations, spark, cli, transport.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import redis
from attrs import evolve
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from ..errors import ServerError, UsageError
from . import incapable, permission, tls
from .address import Address, Kind
from .secret import Secret, credential_provider
from .shared import current
from .slot_map import Node

CONNECT_TIMEOUT = 5.0
"""Seconds to wait for a server to accept, unless the URL says ``socket_connect_timeout``."""
SOCKET_TIMEOUT = 30.0
"""Seconds to wait for a reply, unless the URL says ``socket_timeout``. Never endless: a frozen server must become an error."""


def connect(
    address: Address,
    *,
    sentinel_kwargs: Mapping[str, Any] | None = None,
    min_other_sentinels: int = 0,
    **overrides: Any,
) -> redis.Redis:
    """A client with bytes replies. It connects on first use; ``overrides`` go to redis-py's connection.

    ``sentinel_kwargs``: how to reach the Sentinels, where that differs from the server (a password, no TLS).
    ``min_other_sentinels``: how many others a Sentinel must know to be believed.

    Raises UsageError for a kind of address that names no server, or one that this version can't reach, and for a password
    that is not where the address says.
    """
    options = address.options
    arguments: dict[str, Any] = {
        "db": address.db,
        "socket_timeout": options.get("socket_timeout", SOCKET_TIMEOUT),
        "socket_connect_timeout": options.get("socket_connect_timeout", CONNECT_TIMEOUT),
        "client_name": options.get("client_name"),
        # One shape of replies on every server and with every version of redis-py.
        "protocol": 2,
        # A command is repeated by who knows that it may be, never by the connection.
        "retry": Retry(NoBackoff(), 0),
    }
    if "health_check_interval" in options:
        arguments["health_check_interval"] = options["health_check_interval"]
    arguments |= _credentials(address) | _tls(address) | overrides
    match address.kind:
        case Kind.UNIX:
            return redis.Redis(unix_socket_path=address.path, **arguments)
        case Kind.SENTINEL:
            ways = {name: arguments[name] for name in arguments if name.startswith(("ssl", "socket_"))}
            ways |= {"socket_timeout": arguments["socket_connect_timeout"]} | dict(sentinel_kwargs or {})
            sentinel = Sentinel(list(address.hosts), min_other_sentinels, sentinel_kwargs=ways)
            client: redis.Redis = sentinel.master_for(address.service, **arguments)
            return client
        case Kind.CLUSTER:
            raise UsageError("a cluster can be a broker, and the source and target of a migration; this needs one server")
        case Kind.RDB:
            raise UsageError(f"{address.display()} is a snapshot file, not a server")
    host, port = address.hosts[0]
    return redis.Redis(host=host, port=port, **arguments)


def connect_node(address: Address, node: Node, **overrides: Any) -> redis.Redis:
    """A client of one node of the cluster at this address, with the same user, TLS and timeouts."""
    return connect(evolve(address, kind=Kind.TCP, hosts=(node,)), **overrides)


def new_connection(client: redis.Redis, **overrides: Any) -> Any:
    """A connection as the client's pool would make it. The pool counts, and refuses after so many that came to nothing."""
    pool = client.connection_pool
    return pool.connection_class(**pool.connection_kwargs | overrides)


def _credentials(address: Address) -> dict[str, Any]:
    if "credential_provider" in address.options:
        return {"credential_provider": credential_provider(address.options["credential_provider"])}
    secret = Secret.of(address)
    if secret is None:
        return {"username": address.username, "password": address.password}
    secret.get_credentials()  # what is missing is said now, not by the first command
    return {"credential_provider": secret}


def _tls(address: Address) -> dict[str, Any]:
    """Any ``ssl_`` option asks for TLS, also under ``ferryman://``, as on ``redis://``."""
    given = {name: value for name, value in address.options.items() if name in tls.OPTIONS}
    return tls.arguments(given) if given or address.kind is Kind.TLS else {}


@contextlib.contextmanager
def server_errors(address: Address) -> Iterator[None]:
    """Turns redis-py's errors inside the block into a ServerError that names the address and what to do."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise ServerError(
            f"{address.display()}: the server refuses the credentials ({_reason(error)}); name the user in the URL (user@host), "
            "and where the password is: ?password_env=VARIABLE or ?password_file=PATH"
        ) from error
    except redis.exceptions.TimeoutError as error:
        raise ServerError(
            f"{address.display()}: no answer in time ({_reason(error)}); is the server overloaded or frozen?"
        ) from error
    except redis.exceptions.ConnectionError as error:
        raise ServerError(f"{address.display()}: can't be reached ({_reason(error)}); is the server running?") from error
    except redis.exceptions.RedisError as error:
        plain = incapable.explained(permission.explained(error), lambda: _info(address))
        raise ServerError(f"{address.display()}: {_reason(plain)}") from error


@contextlib.contextmanager
def open_client(address: Address, **overrides: Any) -> Iterator[redis.Redis]:
    """A client for the length of the block, in which a failing server is a ServerError that names the address.

    One that was open before, where this thread shares connections (``shared.py``).
    """
    shared = current()
    if shared is None:
        with server_errors(address), connect(address, **overrides) as client:
            yield client
        return
    key = ("client", address.url(), *sorted(overrides.items()))
    with server_errors(address), shared.lent(key, lambda: connect(address, **overrides)) as client:
        yield client


def _info(address: Address) -> str:
    with connect(address) as client:
        return incapable.info_text(client)


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(os.extsep)
