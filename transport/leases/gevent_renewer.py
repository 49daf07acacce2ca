"""GeventLeaseRenewer: renews leases while the ordinary renewer does not get round to it. Only under gevent.

gevent puts greenlets in the place of threads, the renewer's too, and a task that blocks its whole process blocks them all.
This one is a real thread beside them. gevent's locks and sockets can't be shared between real threads: who waits for one may
never be woken. So this thread takes no lock that others take, opens its own connections, and logs nothing, because handlers of
log records have locks; channels come to it through a queue that gevent has not replaced. What it could not renew, or what had
lapsed, the renewer will find out and report.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
import weakref
from functools import partial

from ..connection.factory import LinkCache
from .leaseholder import Leaseholder

LATE_AFTER = 1.5
"""Renewal intervals without a renewal after which this one sees to it: half a lease, so there is as much left for it."""

RETRY_AFTER = 1.0
"""Seconds between attempts while the server can't be reached; the renewer's too."""

IDLE = 60.0
"""Seconds between checks when there is nothing to renew; the renewer's too."""


class GeventLeaseRenewer:
    """Use ``gevent_renewer()``."""

    def __init__(self) -> None:
        from gevent.monkey import get_original

        self._requests = get_original("queue", "SimpleQueue")()
        self._holders: weakref.WeakSet[Leaseholder] = weakref.WeakSet()
        self._links = LinkCache()
        get_original("_thread", "start_new_thread")(self._run, ())

    def add(self, holder: Leaseholder) -> None:
        """Renews this channel's leases when they are late, from now on."""
        self._requests.put(partial(self._holders.add, holder))

    def remove(self, holder: Leaseholder) -> None:
        """Leaves this channel's leases alone from now on."""
        self._requests.put(partial(self._holders.discard, holder))

    def _run(self) -> None:
        wait = IDLE
        while True:
            with contextlib.suppress(queue.Empty):
                self._requests.get(timeout=wait)()  # in one breath, to keep no channel in memory while it waits
            wait = min((self._renew_if_late(holder) for holder in list(self._holders)), default=IDLE)

    def _renew_if_late(self, holder: Leaseholder) -> float:
        """Renews what is late. Seconds until the next check."""
        interval = holder.renewal_interval
        now = time.monotonic()
        late_in = holder.renewed_at + LATE_AFTER * interval - now
        if late_in > 0:
            return min(late_in, IDLE)
        try:
            calls = holder.urgent_renewals()
            if calls:
                self._links.get(holder.settings.links, holder.settings.renewal_timeout).run_all(calls)
        except Exception:  # noqa: BLE001 - the thread must live on, and the renewer meets the same trouble
            return min(RETRY_AFTER, interval / 2)
        holder.renewed_at = now
        return interval


def gevent_renewer() -> GeventLeaseRenewer | None:
    """A renewer where gevent has put greenlets in the place of threads; None elsewhere. eventlet allows no real thread at all."""
    if "gevent" not in sys.modules:
        return None
    from gevent.monkey import is_module_patched

    return GeventLeaseRenewer() if is_module_patched("threading") else None
