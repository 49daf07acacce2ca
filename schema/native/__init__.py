"""ferryman's own key family: keys, message frame, queue scripts, reader, writer and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .family import FAMILY

__all__ = ["FAMILY"]


def __getattr__(name: str) -> Any:
    # A broker needs keys and scripts, and no more: reader, writer and rules take half as long to load as Celery itself.
    if name == "FAMILY":
        from .family import FAMILY

        return FAMILY
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
