"""NoBackend: what Celery gets for ``result_backend="ferryman://…"``: an error that says which URL to give instead.

Named by the entry points ``celery.result_backends``.
"""

from __future__ import annotations

from typing import Any

from ..schema.connection.address import Address, Kind
from ..schema.errors import UsageError

SCHEMES = {Kind.TCP: "redis", Kind.TLS: "rediss"}
"""Schemes of Celery's backends for the same server."""


class NoBackend:
    """Raises ``ImproperlyConfigured`` when it is made."""

    def __init__(self, app: Any = None, url: str | None = None, **_: Any) -> None:
        from celery.exceptions import ImproperlyConfigured

        raise ImproperlyConfigured(
            f"ferryman:// is a broker and keeps no results; set result_backend to {_instead(url)} "
            "(the same server will do), or leave it out if nobody asks for results"
        )


def _instead(url: str | None) -> str:
    """The backend on the same server, without its password."""
    try:
        address = Address.parse(url or "ferryman://localhost:6379/0")
    except UsageError:
        return "redis://host:6379/0"
    login = f"{address.username or ''}:***@" if address.username or address.password else ""
    (host, port), db = address.hosts[0], address.db
    return f"{SCHEMES[address.kind]}://{login}{f'[{host}]' if ':' in host else host}:{port}/{db}"
