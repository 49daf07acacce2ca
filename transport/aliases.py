"""Teaches kombu the ``ferryman`` URL schemes, and registers a serializer.

kombu has no entry point for transports. The one group it loads early is ``kombu.serializers``, so the entry point there
names SERIALIZER below and the aliases are registered as a side effect: ``Celery(broker="ferryman://…")`` works with no
import. This module must import nothing but the standard library at its top and must never raise: a broken entry point
would break every program that uses kombu.
"""

from __future__ import annotations

import json
from typing import Any

TRANSPORT = "ferryman.transport:Transport"
SCHEMES = ("ferryman", "ferrymans")
"""``ferryman+unix``, ``ferryman+sentinel`` … come to the alias ``ferryman``: kombu splits URLs at the plus sign."""


def register() -> None:
    """Adds the schemes to kombu's table, unless somebody has put other classes there."""
    from kombu.transport import TRANSPORT_ALIASES

    for scheme in SCHEMES:
        TRANSPORT_ALIASES.setdefault(scheme, TRANSPORT)


def dumps(value: Any) -> str:
    """Compact JSON: what the serializer ``ferryman-json`` writes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """The value of a JSON text."""
    return json.loads(text)


SERIALIZER = (dumps, loads, "application/json", "utf-8")
"""kombu's form of a serializer: encoder, decoder, content type, encoding."""

try:
    register()
except Exception:  # whatever kombu looks like, its users must not suffer
    import logging

    logging.getLogger("ferryman.transport").exception("the ferryman:// URL schemes could not be registered with kombu")
