"""How the family's scripts reply, and which exception a refusal becomes.

Every script replies ``[b"ok", result]`` or ``[status, detail…]`` (rule 3 of ``lua/_common.lua``). Errors arrive as replies, so
they are raised where a reply is read, however the call was sent. Called by the parse functions of ``queue_scripts.py`` and
``exchange.py``.
"""

from __future__ import annotations

from typing import Any

from ...errors import (
    ExchangeTypeError,
    MalformedValue,
    PublishRefused,
    QueueArgumentsError,
    SchemaVersionError,
    ServerError,
    UsageError,
)
from ...text import show


def result(reply: Any, what: str) -> Any:
    """The result of a script about ``what`` (``queue 'celery'``).

    Raises SchemaVersionError, PublishRefused (the server has no memory for it), QueueArgumentsError, ExchangeTypeError,
    UsageError (what was asked for can't be, and why) or MalformedValue (a key at fault holds something else than it should).
    """
    status, *details = reply
    match status:
        case b"ok":
            return details[0]
        case b"schema":
            raise SchemaVersionError(
                f"{what} was written by a newer ferryman (schema {show(details[0])}, this one knows 1): update this one"
            )
        case b"full":
            raise PublishRefused(f"{what}: the server is at maxmemory and stored nothing; retry when consumers have drained")
        case b"order":
            order = show(details[0])
            raise QueueArgumentsError(
                f"{what} has priority_order {order!r} since its first declaration: use that, or delete the queue first"
            )
        case b"lasts":
            raise QueueArgumentsError(
                f"{what} was declared to last and has messages, which would vanish with it: declare it without x-expires, "
                "or delete or empty it first"
            )
        case b"type":
            known, wanted = map(show, details)
            raise ExchangeTypeError(f"{what} is a {known} exchange and can't be declared as {wanted}: delete it first")
        case b"refused":
            raise UsageError(f"{what}: {show(details[0])}")
        case b"damaged":
            key, detail = details
            raise MalformedValue(f"{what}: key {show(key)!r} is damaged ({show(detail)}): audit the keyspace, move the key away")
        case _:
            raise ServerError(f"{what}: a script replied with the unknown status {show(status)!r}")
