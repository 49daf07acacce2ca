"""The one tree of errors. Every error names what is at fault (a key, a queue, an option) and what to do next.

No message here may ever carry a password: callers pass addresses through ``Address.display()`` first.
"""

from __future__ import annotations


class FerrymanError(Exception):
    """Base of every error that ferryman raises on purpose."""


class UsageError(FerrymanError, ValueError):
    """Something the caller wrote is wrong: a URL, an option, an argument. Exit status 2 on the command line."""


class AddressError(UsageError):
    """A URL that can't be used; the text names the part at fault, never the password."""


class UnknownFamily(UsageError):
    """No key family of this name is installed."""


class QueueArgumentsError(UsageError):
    """A queue is declared with arguments that can't be honoured, or that contradict its first declaration."""


class ExchangeTypeError(UsageError):
    """An exchange is declared with another type than it has."""


class KeyspaceNotFound(UsageError):
    """A database holds no key of the family under the prefix."""


class KeyspaceRefused(UsageError):
    """A keyspace can't be served live; the text says why, and what to do. Nothing was written."""


class MigrationRefused(UsageError):
    """The target, or what an earlier run left there, forbids this migration. Nothing was overwritten."""


class Unrepairable(FerrymanError):
    """No command mends a finding safely; the text says why, and what to do."""


class ServerError(FerrymanError):
    """The Redis server, or a file, failed or can't be reached. Exit status 3 on the command line."""


class SchemaVersionError(ServerError):
    """The keyspace was written by a newer ferryman than this one."""


class PublishRefused(ServerError):
    """The server has no memory left for a new job. Nothing was stored; publish again when consumers have drained."""


class StaleWriter(ServerError):
    """Another run took over what this one was writing. What this one sent last was not applied."""


class Unroutable(FerrymanError):
    """A message was published for which no queue is bound, or to a queue that does not exist."""


class MalformedValue(FerrymanError):
    """Bytes found in Redis do not have the form that their key promises."""
