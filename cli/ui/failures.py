"""Failures: errors as pages that say in one sentence what is wrong and what to do; never a traceback. Called by ``app.py``."""

from __future__ import annotations

import logging

import redis
from attrs import frozen

from ...schema.connection.permission import is_forbidden
from ...schema.errors import FerrymanError, KeyspaceNotFound, ServerError, UsageError
from .records import NotRecorded

AGAIN_S = 5
"""After so many seconds a page of a server that is away looks again."""

logger = logging.getLogger("ferryman.ui")


class NotFound(UsageError):
    """There is no such queue or job, or not any more."""


class NotAllowed(FerrymanError):
    """The visitor may not do this."""


@frozen
class Failure:
    """What a page tells of an error."""

    status: int
    title: str
    text: str
    again_s: int | None = None


def _is_read_only(error: BaseException | None) -> bool:
    """Whether this error, or what it was raised from, is a replica's."""
    while error is not None:
        if isinstance(error, redis.exceptions.ReadOnlyError):
            return True
        error = error.__cause__ or error.__context__
    return False


def failure(error: BaseException) -> Failure:
    """The page for an error. What nobody has foreseen goes to the log."""
    text = str(error)
    match error:
        case NotFound() | KeyspaceNotFound():
            return Failure(404, "Not there", text)
        case NotRecorded():
            return Failure(500, "Done, but not recorded", text)
        case NotAllowed():
            return Failure(403, "Not allowed", text)
        case UsageError():
            return Failure(400, "This can't be shown", text)
        case ServerError() if is_forbidden(error):
            return Failure(403, "The Redis user has no right to do this", text)
        case FerrymanError() if _is_read_only(error):
            return Failure(
                503,
                "The server is read-only",
                f"{text}. It is a replica, or a failover is under way: nothing was changed. This page looks again by itself.",
                AGAIN_S,
            )
        case ServerError():
            return Failure(503, "The server does not answer", f"{text}. This page looks again by itself.", AGAIN_S)
        case FerrymanError():
            return Failure(400, "This can't be done", text)
        case _:
            logger.error("an unexpected error", exc_info=error)
            return Failure(500, "Something went wrong", "The log of ferryman ui says what; please report it.")
