"""Calls that a worker's loop is to make soon, because another thread or greenlet asks for them: they end the loop's wait.

A Celery worker acks by such calls, and sends its events by them. Before kombu 5.7 a call from another thread does not wake the
event loop. A worker without an event loop (gevent, eventlet) makes the calls when ``drain_events`` returns, and before Celery 5.7
its acks are among them. In both cases finished tasks would keep their places until something else ends the wait, for a second or
two. Called by the poller and by the transport.
"""

from __future__ import annotations

import sys
import threading
from functools import wraps
from typing import Any

from .waker import Waker

MODULE = "celery.worker.consumer.consumer"


def add(loop: Any, waker: Waker) -> None:
    """Have the calls that other threads ask of this event loop wake it, unless kombu does that. Called by the loop's thread."""
    if hasattr(loop, "_wake_pending"):  # kombu 5.7
        return
    if not hasattr(loop, "ferryman_wakers"):
        known, thread = loop.call_soon, threading.get_ident()

        @wraps(known)
        def call_soon(*args: Any) -> Any:
            promise = known(*args)
            if threading.get_ident() != thread:
                for each in loop.ferryman_wakers:
                    each.wake()
            return promise

        loop.call_soon, loop.ferryman_wakers = call_soon, ()
    loop.ferryman_wakers = (*loop.ferryman_wakers, waker)


def remove(loop: Any, waker: Waker) -> None:
    """The waker is about to be closed."""
    loop.ferryman_wakers = tuple(each for each in getattr(loop, "ferryman_wakers", ()) if each is not waker)


def install() -> None:
    """Have the calls that are asked of a worker without an event loop end ``drain_events``, if Celery's worker is loaded."""
    consumer_class: Any = getattr(sys.modules.get(MODULE), "Consumer", None)
    if consumer_class is None or hasattr(consumer_class.call_soon, "knows_ferryman"):
        return
    known = consumer_class.call_soon

    @wraps(known)
    def call_soon(self: Any, *args: Any, **kwargs: Any) -> Any:
        promise = known(self, *args, **kwargs)
        if not self.hub:
            # Not the property, which makes a transport where there is none any more.
            interrupt = getattr(getattr(self.connection, "_transport", None), "interrupt", None)
            if interrupt is not None:
                interrupt()
        return promise

    call_soon.knows_ferryman = True  # type: ignore[attr-defined]
    consumer_class.call_soon = call_soon
