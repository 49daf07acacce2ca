"""Celery's table of requests, of which Celery before 5.6 forgets to remove those that a lost connection has ended.

A channel of a lost connection gives back the messages that nobody has any more. That table would keep them for ever, unrun.
Called by ``Leases.release_unstarted``, from the renewer's thread.
"""

from __future__ import annotations

import sys

from kombu.transport.base import StdChannel

MODULE = "celery.worker.state"


def drop_unstarted(channel: StdChannel) -> None:
    """Takes out of Celery's table the requests of this channel that are neither reserved nor running. Only a worker has one."""
    state = sys.modules.get(MODULE)
    if state is None:
        return
    for request_id, request in list(state.requests.items()):
        is_ours = getattr(getattr(request, "message", None), "channel", None) is channel
        if is_ours and request not in state.reserved_requests and request not in state.active_requests:
            state.requests.pop(request_id, None)
