"""LeaseRenewer: the thread that renews the leases of every consumer in this process.

One renewal covers everything that a consumer holds of a queue, however much it is. The thread has connections of its own, so
that a busy event loop, a blocking pool or a long task never lets a lease lapse; only a dead or frozen process does. It also
sends acks that a slow callback keeps back (``acks.py``), and keeps temporary queues alive that this process consumes. Under
gevent and eventlet it is a green thread, which a task can block; under gevent, ``gevent_renewer.py`` sees to the leases then.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
import weakref

from ...schema.connection.after_fork import renew_in_children
from ...schema.native.scripts.results import Renewed
from ..connection.factory import LinkCache
from ..consume.acks import FLUSH_AFTER
from ..errors import CONNECTION_ERRORS
from .gevent_renewer import IDLE, RETRY_AFTER, GeventLeaseRenewer, gevent_renewer
from .leaseholder import Leaseholder

logger = logging.getLogger("ferryman.transport")

EXIT_TIMEOUT = 5.0
"""Seconds for which a process that ends waits for a server that is away, if work is finished and not yet acked."""


class LeaseRenewer:
    """Use ``renewer()``: there is one for each process. A forked child's begins with nothing."""

    def __init__(self) -> None:
        self._begin()
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: the parent's thread and connections did not come with it, and its leases are the parent's."""
        self._begin()

    def _begin(self) -> None:
        self._due: weakref.WeakKeyDictionary[Leaseholder, float] = weakref.WeakKeyDictionary()
        """When to renew each channel's leases next, on the monotonic clock."""
        self._orphans: dict[Leaseholder, float] = {}
        """Channels of lost connections that still hold something, and when what they hold lapses; only we may know them."""
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._is_running = False
        self._links = LinkCache()
        self._gevent_renewer: GeventLeaseRenewer | None = None

    def add(self, holder: Leaseholder) -> None:
        """Renews this channel's leases from now on."""
        self._watch(holder, holder.renewal_interval)

    def adopt(self, holder: Leaseholder) -> None:
        """Renews what a channel of a lost connection still holds, until that is settled; begins at once."""
        with self._lock:
            self._orphans[holder] = time.monotonic() + holder.settings.lease
        self._watch(holder, 0.0)

    def remove(self, holder: Leaseholder) -> None:
        """Leaves this channel's leases alone from now on."""
        with self._lock:
            self._due.pop(holder, None)
            self._orphans.pop(holder, None)
        if self._gevent_renewer is not None:
            self._gevent_renewer.remove(holder)

    def check(self, holder: Leaseholder, seconds: float) -> None:
        """Renew this channel's leases, and check what it holds, in so many seconds at the latest."""
        self._watch(holder, seconds)

    def wake(self) -> None:
        """Has pending acks sent soon."""
        self._awake.set()

    def _watch(self, holder: Leaseholder, seconds: float) -> None:
        self._schedule(holder, seconds)
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="ferryman-leases", daemon=True).start()
                self._gevent_renewer = gevent_renewer()
                atexit.register(self._flush_at_exit)
        if self._gevent_renewer is not None:
            self._gevent_renewer.add(holder)
        self._awake.set()

    def _schedule(self, holder: Leaseholder, seconds: float) -> None:
        """Sees to it that the channel's time comes in so many seconds, if not sooner."""
        at = time.monotonic() + seconds
        with self._lock:
            self._due[holder] = min(at, self._due.get(holder, at))

    def _flush_at_exit(self) -> None:
        """Before the process ends: the last chance for acks that could not be sent yet, whose work would be repeated."""
        deadline = time.monotonic() + EXIT_TIMEOUT
        while time.monotonic() < deadline:
            with self._lock:
                if not any(holder.acks for holder in self._orphans):
                    return
            time.sleep(FLUSH_AFTER)

    def _run(self) -> None:
        while True:
            self._renew_due()
            with self._lock:
                next_due = min(self._due.values(), default=math.inf)
            if self._awake.wait(min(max(next_due - time.monotonic(), 0.0), IDLE)):
                self._awake.clear()
                time.sleep(FLUSH_AFTER)
                self._flush()

    def _renew_due(self) -> None:
        """Renews the leases of every channel whose time has come."""
        now = time.monotonic()
        with self._lock:
            due = [holder for holder, at in self._due.items() if at <= now]
            for holder in due:
                self._due[holder] = now + (RETRY_AFTER if holder.closed else holder.renewal_interval)
        out_of_reach: set[str] = set()
        for holder in due:
            url = holder.settings.address.url()
            # One silent server must not keep the leases on others waiting for each of its channels in turn.
            if url in out_of_reach or not self._renew(holder):
                out_of_reach.add(url)
                if self._orphans.get(holder, math.inf) < now and not holder.is_in_use:
                    self.remove(holder)  # what it held has lapsed by itself
                    continue
                self._schedule(holder, min(RETRY_AFTER, holder.renewal_interval / 2))
        self._close_idle()

    def _renew(self, holder: Leaseholder) -> bool:
        """Renews one channel's leases, or gives back what it leaves behind. False if the server could not be reached."""
        link = self._links.get(holder.settings.links, holder.settings.renewal_timeout)
        try:
            if holder.closed:
                holder.acks.flush()
            with holder.renewing:
                renewals, now = holder.renewals(), time.monotonic()
                known = link.run_all([call for _, call in renewals])
                holder.renewed_at = now
                check_in = holder.check_held(link)
                if holder.closed:
                    holder.release_unstarted(link)
        except CONNECTION_ERRORS as error:
            logger.warning("leases can't be renewed now, trying again: %s", error)
            return False
        except Exception:
            # The thread must outlive whatever one channel runs into; the others' leases hang on it.
            logger.exception("leases of one channel can't be renewed")
            return True
        for (queue, _), is_known in zip(renewals, known, strict=True):
            if is_known is Renewed.LAPSED:  # and not 0, which other calls may answer
                holder.on_lapse(queue)
            else:
                holder.renewed(queue, now)
        if any(getattr(each, "more", False) for each in known):
            self._schedule(holder, 0.0)
        if check_in is not None:
            self._schedule(holder, check_in)
        return True

    def _close_idle(self) -> None:
        with self._lock:
            needed = {holder.settings.address.url() for holder in self._due}
        self._links.close_others(needed)

    def _flush(self) -> None:
        with self._lock:
            holders = list(self._due)
        for holder in holders:
            try:
                holder.acks.flush()
            except Exception as error:  # noqa: BLE001 - the thread must live on
                # They stay pending. Whoever uses the channel meets the same trouble, and leaves it to this thread in the end.
                logger.warning("acks could not be sent, trying again: %s", error)


_renewer = LeaseRenewer()


def renewer() -> LeaseRenewer:
    """This process's renewer."""
    return _renewer
