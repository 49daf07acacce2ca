"""What a Celery worker still has of tasks that a lost connection has ended, though they never ran.

A channel of a lost connection gives back the messages that are no longer referenced. Celery keeps references to some tasks that
it never starts, so their messages would be held for as long as the worker lives. Called by ``Leases.release_unstarted``, from
the renewer's thread.
"""

from __future__ import annotations

import sys
from typing import Any

from kombu.transport.base import StdChannel

from .consuming_worker import ConsumingWorker

MODULE = "celery.worker.state"


def drop_unstarted(channel: StdChannel, worker: ConsumingWorker | None) -> None:
    """Remove Celery's references to the tasks of this channel that do not start any more. ``worker``: the one that got them."""
    if worker is not None:
        _drop_canceled(channel, worker.consumer)
    state = sys.modules.get(MODULE)
    if state is None:
        return
    for request_id, request in list(state.requests.items()):
        if _is_of(channel, request) and request not in state.reserved_requests and request not in state.active_requests:
            state.requests.pop(request_id, None)  # Celery before 5.6 leaves them in its table


def _drop_canceled(channel: StdChannel, consumer: Any) -> None:
    """Have canceled entries of the worker's timer forget their tasks.

    Celery 5.7 cancels the entries of tasks with an ETA when it loses the connection. They stay in the timer until the ETA, and in
    a set that the worker makes when it connects again until the connection after that.
    """
    entries: list[Any] = [getattr(scheduled, "entry", None) for scheduled in list(getattr(consumer.timer, "queue", ()))]
    entries += getattr(consumer, "timer_entries_before_start", None) or ()
    for entry in entries:
        if getattr(entry, "canceled", False) and entry.args and _is_of(channel, entry.args[0]):
            entry.args = ()


def _is_of(channel: StdChannel, request: Any) -> bool:
    """Whether a request's message came through this channel."""
    return getattr(getattr(request, "message", None), "channel", None) is channel
