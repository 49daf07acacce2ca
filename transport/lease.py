"""Keeper: the thread that renews the leases of every consumer in this process.

One renewal covers everything that a consumer holds of a queue, however much it is. The thread has connections of its own, so
that a busy event loop, a blocking pool or a long task never lets a lease lapse; only a dead or frozen process does. It also
sends acks that a slow callback keeps back (``acks.py``), and keeps temporary queues alive that this process consumes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from .acks import LINGER
from .errors import CONNECTION_ERRORS
from .wire import Wire

if TYPE_CHECKING:
    from .channel import Channel

logger = logging.getLogger("ferryman.transport")

RETRY_AFTER = 1.0
"""Seconds between attempts while the server can't be reached, and between looks at what a lost connection has left behind."""


class Keeper:
    """Use ``keeper()``: there is one for each process."""

    def __init__(self) -> None:
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._orphans: set[Channel] = set()
        """Channels of lost connections that still hold something; nobody else may know them any more."""
        self._lock = threading.Lock()
        self._stirred = threading.Event()
        self._thread: threading.Thread | None = None
        self._wires: dict[str, Wire] = {}
        """By the server's full URL."""

    def add(self, channel: Channel) -> None:
        """Renews this channel's leases from now on."""
        with self._lock:
            self._channels.add(channel)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ferryman-leases", daemon=True)
                self._thread.start()
        self._stirred.set()

    def adopt(self, channel: Channel) -> None:
        """Looks after what a channel of a lost connection still holds, until that is settled."""
        with self._lock:
            if channel in self._channels:
                self._orphans.add(channel)
        self._stirred.set()

    def remove(self, channel: Channel) -> None:
        """Leaves this channel's leases alone from now on."""
        with self._lock:
            self._channels.discard(channel)
            self._orphans.discard(channel)

    def stir(self) -> None:
        """Has pending acks sent soon."""
        self._stirred.set()

    def _run(self) -> None:
        due: dict[int, float] = {}
        while True:
            with self._lock:
                channels = list(self._channels)
            now = time.monotonic()
            due = {id(channel): due.get(id(channel), now) for channel in channels}
            for channel in channels:
                if due[id(channel)] <= now:
                    renewed = self._renew(channel)
                    again = channel.renewal_interval if renewed and not channel.closed else RETRY_AFTER
                    due[id(channel)] = time.monotonic() + again
            self._close_idle(channels)
            pause = min(due.values(), default=now + 60.0) - time.monotonic()
            del channels
            if self._stirred.wait(max(pause, 0.0)):
                self._stirred.clear()
                time.sleep(LINGER)
                self._flush()

    def _renew(self, channel: Channel) -> bool:
        with channel.renewing:
            calls = channel.renewals()
            if channel.closed:
                calls += (("", call) for call in channel.abandoned())
            if not calls:
                return True
            url = channel.settings.address.url()
            wire = self._wires.get(url)
            if wire is None or wire.failed:
                wire = self._wires[url] = Wire(channel.settings.client())
            try:
                known = wire.run_all([call for _, call in calls])
            except CONNECTION_ERRORS as error:
                logger.warning("leases can't be renewed now, trying again: %s", error)
                return False
            except Exception:
                # The thread must outlive whatever one channel runs into; the others' leases hang on it.
                logger.exception("leases of one channel can't be renewed")
                return False
        for (queue, _), is_known in zip(calls, known, strict=True):
            if is_known is False:  # and not 0, which other calls may answer
                channel.lease_lost(queue)
        return True

    def _close_idle(self, channels: list[Channel]) -> None:
        needed = {channel.settings.address.url() for channel in channels}
        for url in [url for url in self._wires if url not in needed]:
            self._wires.pop(url).close()

    def _flush(self) -> None:
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            try:
                channel.acks.flush()
            except Exception as error:  # noqa: BLE001 - the thread must live on
                # Whoever uses the channel meets the same trouble; unacked jobs are delivered again.
                logger.warning("acks could not be sent: %s", error)


_keeper = Keeper()
_pid = os.getpid()


def keeper() -> Keeper:
    """This process's keeper. A forked child gets a new one: its parent's thread and connections did not come with it."""
    global _keeper, _pid
    if _pid != os.getpid():
        _keeper, _pid = Keeper(), os.getpid()
    return _keeper
