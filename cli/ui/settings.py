"""Settings: what ``ferryman ui`` was asked for, and the roles of its visitors. Plain values; made by ``serve.py``."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...schema.connection.address import Address

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = frozenset({"localhost", LOOPBACK, "::1"})
"""What a browser on this machine calls it."""


class Role(StrEnum):
    """What a visitor may do."""

    READER = "reader"
    """Look at everything, change nothing."""
    OPERATOR = "operator"
    """With ``--write``: act, too."""


@frozen
class Proxy:
    """A reverse proxy that knows who its users are."""

    header: str
    """The header in which it names them, in lower case."""
    operators: frozenset[str]
    """Users who are operators; all others are readers."""
    addresses: frozenset[str]
    """Where it asks from; the header means nothing from elsewhere."""


@frozen
class Settings:
    """One running web page."""

    address: Address
    host: str = LOOPBACK
    port: int = 0
    may_write: bool = False
    tokens: Mapping[Role, str] = field(factory=dict, repr=False)
    """The secret by which a visitor has a role; none: whoever reaches the port is one, but for a proxy."""
    proxy: Proxy | None = None
    public_hosts: frozenset[str] = frozenset()
    """More names by which browsers may call this host."""
    audit_log: Path | None = None
    """Where each action is noted; None: stderr."""
    app: Any = None
    """The Celery app whose result backend learns of cancelled tasks, where the page runs for one."""

    @property
    def hosts(self) -> frozenset[str]:
        """The names that a Host header may have: whoever else is named is an attacker's (DNS rebinding)."""
        own = frozenset() if is_wildcard(self.host) else frozenset({self.host.lower()})
        return LOCAL_NAMES | own | self.public_hosts

    @property
    def asks_who(self) -> bool:
        """Whether visitors must say who they are."""
        return bool(self.tokens) or self.proxy is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether it is one IP address, not a name or a network."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_wildcard(host: str) -> bool:
    """Whether it is every address of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
