"""Registers the ``ferryman`` URL schemes with kombu.

kombu has no entry point for transports. The one group it loads early is ``kombu.serializers``, so the entry point there names
SERIALIZER below, and the aliases are registered as a side effect: ``Celery(broker="ferryman://…")`` works with no import. There
is no serializer behind that name: ``serializer="ferryman"`` is an error like any other unknown one. This module must import
nothing but the standard library at its top and must never raise: a broken entry point would break every program that uses kombu.
"""

from __future__ import annotations

TRANSPORT = "ferryman.transport:Transport"
SCHEMES = ("ferryman", "ferrymans", "ferryman+sentinel")
"""``ferryman+unix``, ``ferryman+cluster`` … come to the alias ``ferryman``: kombu splits URLs at the plus sign. But where it
goes on to the next of a list of Sentinels it asks for the whole scheme."""


def register() -> None:
    """Adds the schemes to kombu's table, unless somebody has put other classes there."""
    from kombu.transport import TRANSPORT_ALIASES

    for scheme in SCHEMES:
        TRANSPORT_ALIASES.setdefault(scheme, TRANSPORT)


SERIALIZER = (None, None, "application/x-ferryman", "utf-8")
"""kombu's form of a serializer: encoder, decoder, content type, encoding. It is none. Its content type must be nobody's: one that
kombu knows, JSON say, would lose kombu's own decoder."""

try:
    register()
except Exception:  # whatever kombu looks like, its users must not suffer
    import logging

    logging.getLogger("ferryman.transport").exception("the ferryman:// URL schemes could not be registered with kombu")
