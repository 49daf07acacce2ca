"""Broker: ferryman's own queues on a live server, for the commands that ask it directly.

Those are ``dead``, ``cancel``, ``metrics`` and ``backlog``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.connection.connect import server_errors
from ..schema.connection.shared import current
from ..schema.errors import UsageError
from ..schema.native.scripts.queue_scripts import QueueScripts
from ..transport.connection.factory import LinkFactory
from ..transport.connection.link import ServerLink
from ..transport.publish.revocation import durable_queues


@frozen
class Broker:
    """A connection to queues, of one server or of a cluster."""

    link: ServerLink
    scripts: QueueScripts

    def queues(self, chosen: tuple[str, ...]) -> list[str]:
        """The queues that were chosen; all durable ones, if none was."""
        return list(chosen) or durable_queues(self.link, self.scripts)


@contextlib.contextmanager
def open_broker(url: Address, **overrides: Any) -> Iterator[Broker]:
    """The queues at an address, for the length of the block, in which a failing server is a ServerError.

    ``overrides`` go to redis-py's connections. Raises UsageError for the keyspace of another system.
    """
    if url.family != DEFAULT_FAMILY:
        raise UsageError(
            f"these are ferryman's own queues only; for {url.family} there is ferryman jobs URL --state failed, and tasks "
            "are cancelled by app.control.revoke and ferryman.transport.revoke"
        )

    with open_link(url, **overrides) as link:
        yield Broker(link, QueueScripts(url.prefix))


@contextlib.contextmanager
def open_link(url: Address, **overrides: Any) -> Iterator[ServerLink]:
    """A link to an address, for the length of the block, in which a failing server is a ServerError.

    One that was open before, where this thread shares connections (``schema/connection/shared.py``).
    """

    def make() -> ServerLink:
        return LinkFactory(url).link(**overrides)

    shared = current()
    key = ("link", url.url(), *sorted(overrides.items()))
    with server_errors(url), contextlib.closing(make()) if shared is None else shared.lent(key, make) as link:
        yield link
