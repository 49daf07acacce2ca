"""Failures: what goes wrong in a task, with where it was and what to do about it. Called by the steps and the runners."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

from ...schema.errors import FerrymanError, ServerError


@contextlib.contextmanager
def located(work: str) -> Iterator[None]:
    """Adds to a FerrymanError inside the block what a task was doing, and on which machine."""
    try:
        yield
    except FerrymanError as error:
        raise type(error)(f"{error} [{work}, on {socket.gethostname()}]") from error


@contextlib.contextmanager
def work_errors(folder: str) -> Iterator[None]:
    """Turns what goes wrong with files below the work folder, inside the block, into a ServerError that says what to do."""
    try:
        yield
    except (BrokenPipeError, InterruptedError):
        raise
    except OSError as error:
        path = os.fsdecode(error.filename) if error.filename else folder
        reason, remedy = explained(error)
        raise ServerError(f"{path}: {reason}; {remedy}, and go on with --resume, or begin again") from error


def explained(error: OSError) -> tuple[str, str]:
    """What is wrong with a work folder, and what to do about it."""
    known = _REMEDIES.get(error.errno or 0)
    if known is not None:
        return known
    text = error.strerror or str(error)  # all that object stores give
    found = (both for word, both in _STORE_REMEDIES.items() if word in text)
    return next(found, (" ".join(text.split()), "see to that folder"))


_FULL = "there is no room left for what is read", "make room, or let --work name a folder with more"
_LOCKED = "it can't be written to", "let --work name a folder that the driver and all executors may write to"
_LOST = "it is gone, or not the same folder on every machine", "let --work name one that lasts and that all of them share"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _LOCKED),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ESTALE), _LOST),
}
_STORE_REMEDIES = {
    "NO_SUCH_BUCKET": ("there is no such bucket", "let --work name one that is there"),
    "ACCESS_DENIED": _LOCKED,
    "NETWORK_CONNECTION": ("its server can't be reached", "see to the network, and to AWS_ENDPOINT_URL if it is not Amazon's"),
}
"""By a word of Arrow's errors."""
