"""The kombu transport: ``ferryman://`` as a Celery broker URL.

Importing this package registers the URL schemes; the transport itself is loaded when a connection needs it. With Celery
no import is needed at all; with bare kombu, ``import ferryman.transport`` before the first connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import aliases as aliases

if TYPE_CHECKING:
    from .publish.revocation import revoke
    from .transport import Transport

__all__ = ["Transport", "revoke"]


def __getattr__(name: str) -> Any:
    if name == "Transport":
        from .transport import Transport

        return Transport
    if name == "revoke":
        from .publish.revocation import revoke

        return revoke
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
