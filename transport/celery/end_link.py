"""EndLink: a process's own connection over which its tasks end the foreign jobs that they are.

There is one for each server in each process, opened when it is first needed; a forked process opens its own, and never touches
its parent's. Used by ``foreign_run.py``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from attrs import evolve

from ...schema.connection.address import Address
from ...schema.connection.call import Call
from ...schema.errors import FerrymanError, UsageError
from ...schema.live import ForeignFamily
from ..errors import CONNECTION_ERRORS
from ..settings import Settings

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between attempts at a server that is away or full."""
TRANSIENT: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, redis.exceptions.OutOfMemoryError)
"""Errors after which another attempt may succeed."""

ERRORS: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, redis.exceptions.ResponseError, FerrymanError)
"""All with which ``run`` gives up."""


class EndLink:
    """Use ``end_link()``. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        if settings.foreign is None:
            raise UsageError("the broker's URL names no family any more, though jobs of another system were taken from it")
        self._family = settings.foreign
        self._link = settings.links.link()
        self.lease = settings.lease
        """Seconds that a job which is not renewed remains its holder's."""

    def run(self, build: Callable[[ForeignFamily], Call[T]], patience: float) -> tuple[T, bool]:
        """The result of a transition, and whether it was asked for more than once, so that it may have happened unheard.

        Raises the last error after so many seconds, and other errors than the passing ones at once.
        """
        deadline, pause, is_repeated = time.monotonic() + patience, FIRST_PAUSE, False
        call = build(self._family)
        while True:
            try:
                return self._link.run(call), is_repeated
            except TRANSIENT as error:
                if time.monotonic() + pause > deadline:
                    raise
                is_repeated = is_repeated or isinstance(error, CONNECTION_ERRORS)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if self._link.failed:
                with contextlib.suppress(*CONNECTION_ERRORS):
                    self._link.reopen()


_links: dict[tuple[int, str, str], EndLink] = {}
"""By process, server and prefix. What a forked process inherits stays there unused: its sockets are its parent's."""


def end_link(app: Any, address: Address) -> EndLink:
    """This process's link to an address. ``app``: the Celery app whose broker it is."""
    key = os.getpid(), address.url(), address.prefix
    link = _links.get(key)
    if link is None:
        with app.connection_for_read() as connection:
            settings = Settings.of(connection)
        # Of a list of brokers the app's settings name the first; the job may have come from another.
        link = _links[key] = EndLink(evolve(settings, address=address))
    return link
