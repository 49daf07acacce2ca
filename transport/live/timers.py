"""Timers: the clockwork of other systems' keyspaces, run by every process that consumes one.

That system's own programs promote what is due, expire what has run too long, give back what dead workers held, and make
recurring jobs. They may all be gone, so each of ours does the same, every second, in a thread of its own with connections of its
own: neither a busy event loop nor a slow script may keep the other waiting. Doing it twice does no harm. Called by
``channel.py``.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref

from ...schema.connection.after_fork import renew_in_children
from ...schema.live import ForeignFamily
from ..connection.factory import LinkCache
from ..errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from ..session import Session

logger = logging.getLogger("ferryman.transport")

INTERVAL = 1.0
"""Seconds between rounds."""
EXPECTED: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, *CHANNEL_ERRORS)
"""Errors that need no traceback."""
ROUNDS = 20
"""How often one timer is called again at once, while it says that there is more to do."""


class Timers:
    """Use ``timers()``: there is one for each process. A forked child's begin with nothing."""

    def __init__(self) -> None:
        self._begin()
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: the parent's thread and connections did not come with it."""
        self._begin()

    def _begin(self) -> None:
        self._sessions: weakref.WeakKeyDictionary[Session, ForeignFamily] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._is_running = False
        self._links = LinkCache()
        self._failing: dict[str, str] = {}
        """What has failed in the last round, by keyspace: it is said once."""

    def add(self, session: Session, family: ForeignFamily) -> None:
        """Runs the timers of this connection's keyspace for as long as the connection is open."""
        with self._lock:
            self._sessions[session] = family
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="ferryman-timers", daemon=True).start()

    def remove(self, session: Session) -> None:
        """The connection is closed."""
        with self._lock:
            self._sessions.pop(session, None)
            self._changed.set()

    def _run(self) -> None:
        while True:
            begun = time.monotonic()
            for name, (session, family) in self._keyspaces().items():
                self._run_timers(name, session, family)
            with self._lock:
                if not self._sessions:
                    self._is_running = False
                    self._links.close_others(set())
                    return
            self._changed.wait(max(0.0, begun + INTERVAL - time.monotonic()))
            self._changed.clear()

    def _keyspaces(self) -> dict[str, tuple[Session, ForeignFamily]]:
        """One connection for each keyspace."""
        with self._lock:
            return {session.settings.address.display(): (session, family) for session, family in list(self._sessions.items())}

    def _run_timers(self, name: str, session: Session, family: ForeignFamily) -> None:
        settings = session.settings
        try:
            link = self._links.get(settings.links, settings.reply_timeout)
            for call in family.timers(delivery_limit=settings.delivery_limit or None):
                for _ in range(ROUNDS):
                    if not link.run(call):
                        break
            if self._failing.pop(name, None) is not None:
                logger.info("the timers of %s run again", name)
        except EXPECTED as error:
            self._report(name, f"the timers of {name} can't run now, trying again: {error}")
        except Exception as error:
            # The thread must outlive whatever one keyspace runs into.
            logger.exception("the timers of %s can't run: %s", name, error)

    def _report(self, name: str, text: str) -> None:
        if self._failing.get(name) != text:
            self._failing[name] = text
            logger.warning("%s", text)


_timers = Timers()


def timers() -> Timers:
    """This process's timers."""
    return _timers
