"""Which errors mean what to kombu: reconnect, or give up this one operation.

kombu and Celery look at class attributes of the transport. A connection error closes the connection and opens another one;
a channel error is the caller's to see. Errors of the server that pass by themselves (loading, failover) count as connection
errors, so that a worker waits instead of dying.
"""

from __future__ import annotations

import redis
from amqp.exceptions import RecoverableConnectionError
from kombu import exceptions
from kombu.exceptions import ChannelError, InconsistencyError, OperationalError

from ..schema.connection.listener import ConnectionLost
from ..schema.errors import FerrymanError, PublishRefused, ServerError, Unroutable

CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AuthenticationError,
    redis.exceptions.InvalidResponse,
    OSError,
    RecoverableConnectionError,
)
"""The last one is kombu's own: it raises it for a declaration on a channel that it has closed after an earlier error. A producer
that lives long, such as that of beat, gets a new channel only if the error is in this list. Its base class is not in the list,
because ``NoRoute`` derives from it, and no new connection helps there.
"""

CHANNEL_ERRORS: tuple[type[Exception], ...] = (
    ChannelError,
    redis.exceptions.ResponseError,
    redis.exceptions.DataError,
    FerrymanError,
)


BatchPublishError: type[Exception] = getattr(exceptions, "BatchPublishError", OperationalError)
"""kombu has had a name for it since 5.7."""


class BrokerFull(PublishRefused, OperationalError):  # type: ignore[misc]
    """The server is at maxmemory: nothing was stored. kombu's OperationalError, as for any broker that can't take a message."""


class NoRoute(Unroutable, InconsistencyError):  # type: ignore[misc]
    """A message was published to a direct exchange that has no queue bound under its routing key; nothing was stored."""


class NotFound(ChannelError):  # type: ignore[misc]
    """A passive declaration names a queue or an exchange that does not exist."""

    def __init__(self, what: str) -> None:
        super().__init__(f"NOT_FOUND - no {what}", (50, 10), "declare", 404)


class LeaseLapsed(ConnectionLost):
    """The server has given away what a channel held: what was taken and not begun belongs to other consumers now."""

    def __init__(self) -> None:
        super().__init__("a lease has lapsed: what was taken and not begun belongs to other consumers now")


class Unavailable(redis.exceptions.ConnectionError):
    """The server can do nothing for us at the moment, for a reason that passes by itself or that an operator sees to."""


class NotDurable(ServerError, redis.exceptions.ConnectionError):
    """A message is stored, but not as safely as the option ``durability`` demands. kombu repeats it, which stores none twice."""


TRANSIENT = ("NOREPLICAS", "MASTERDOWN", "UNBLOCKED", "BUSY", "MISCONF")
"""Error words that redis-py has no connection error for: too few replicas, a failover, a long script, a full disk."""


def transient(error: redis.exceptions.ResponseError) -> Exception:
    """The error itself, or Unavailable for one that passes by itself: a worker must wait then, not die."""
    return Unavailable(str(error)) if str(error).startswith(TRANSIENT) else error
