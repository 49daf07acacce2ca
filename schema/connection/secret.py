"""Secret: a password that a URL only names, by an environment variable or a file of the machine that connects.

Such a URL may stand in arguments, logs and Spark jobs. The password is read again for each connection, so that one that is
changed under a running process is followed. It is never kept, shown or pickled. Called by connect.py.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import redis
from attrs import field, frozen

from ..errors import UsageError
from .address import Address


@frozen
class Secret(redis.CredentialProvider):
    """What redis-py asks for user and password."""

    address: Address = field(repr=False)
    option: str
    """``password_env`` or ``password_file``."""
    source: str
    """The variable's name, or the file's."""

    @classmethod
    def of(cls, address: Address) -> Secret | None:
        """The secret that an address names; None when it names none."""
        for option in ("password_env", "password_file"):
            if option in address.options:
                return cls(address, option, address.options[option])
        return None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Raises UsageError that says what is missing, and on which machine."""
        password = self._variable() if self.option == "password_env" else self._file()
        if not password:
            raise self._missing("is empty")
        return (self.address.username, password) if self.address.username else (password,)

    def _variable(self) -> str:
        value = os.environ.get(self.source)
        if value is None:
            raise self._missing("is not set")
        return value

    def _file(self) -> str:
        try:
            return Path(self.source).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise self._missing(f"can't be read ({reason})") from None

    def _missing(self, what: str) -> UsageError:
        noun = "environment variable" if self.option == "password_env" else "file"
        return UsageError(
            f"{self.address.display()}: the {noun} {self.source!r} ({self.option}) {what} on {socket.gethostname()}"
        )


def credential_provider(given: Any) -> redis.CredentialProvider:
    """redis-py's credential provider: an object, or the dotted name of a class without arguments, as kombu takes it.

    Raises UsageError for anything else.
    """
    try:
        provider = resolve_name(given)() if isinstance(given, str) else given
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise UsageError(f"credential_provider {given!r} can't be used: {error}") from None
    if not isinstance(provider, redis.CredentialProvider):
        raise UsageError(f"credential_provider must be a redis.CredentialProvider, not a {type(provider).__name__}")
    return provider
