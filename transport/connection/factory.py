"""LinkFactory: opens every connection of the transport to one address. LinkCache: one thread's links, one to each server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import redis
from attrs import field, frozen

from ...schema.connection.address import Address, Kind
from ...schema.connection.connect import connect, connect_node
from .blocking_connection import BlockingConnection
from .cluster_link import ClusterLink
from .link import NodeLink, ServerLink

SOCKET_TIMEOUT = 5.0
"""Seconds to wait for a reply: a frozen server is an error after this, not a hang."""


@frozen
class LinkFactory:
    """Makes clients and links for one address. They connect when they are first used."""

    address: Address
    arguments: Mapping[str, Any] = field(factory=dict, repr=False)
    """For redis-py, beyond what the address says. Those of a call come before them."""

    @property
    def reply_timeout(self) -> float:
        """Seconds after which a server that owes a reply counts as gone."""
        seconds: float = self.arguments.get("socket_timeout", SOCKET_TIMEOUT)
        return seconds

    def client(self, **overrides: Any) -> redis.Redis:
        """A new redis-py client for this address. Raises UsageError for one that is not of one server."""
        return connect(self.address, **{**self.arguments, **overrides})

    def node_client(self, host: str, port: int, **overrides: Any) -> redis.Redis:
        """A new redis-py client for one node of the cluster."""
        return connect_node(self.address, (host, port), **{**self.arguments, **overrides})

    def link(self, **overrides: Any) -> ServerLink:
        """A new link to this address, of one server or of a cluster."""
        if self.address.kind is Kind.CLUSTER:
            nodes = partial(self.node_client, **overrides)
            return ClusterLink(self.address.hosts, nodes, overrides.get("socket_timeout", self.reply_timeout))
        return NodeLink(self.client(**overrides))

    def blocking(self, on_close: Callable[[int], None]) -> BlockingConnection:
        """A new connection for blocking commands; ``on_close`` gets the file descriptor of each socket before it is closed."""
        return BlockingConnection(self.client(), self.reply_timeout, on_close)


class LinkCache:
    """One thread's own links, one to each server."""

    def __init__(self) -> None:
        self._links: dict[str, ServerLink] = {}

    def get(self, factory: LinkFactory, timeout: float) -> ServerLink:
        """The link to a server, a new one if it has failed. It gives up after so many seconds without a reply."""
        url = factory.address.url()
        link = self._links.get(url)
        if link is None or link.failed:
            link = self._links[url] = factory.link(socket_timeout=timeout, socket_connect_timeout=timeout)
        return link

    def close_others(self, urls: set[str]) -> None:
        """Closes the links to all other servers than these."""
        for url in self._links.keys() - urls:
            self._links.pop(url).close()
