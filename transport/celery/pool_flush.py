"""What a pool of processes forgets when its worker has lost the connection: what it has given to no process, and nothing else.

Celery's pool then forgets every task that no process has said it has begun, because the broker will deliver it again. Among them
are those whose processes have been sent them a moment ago, and will run them all the same. Forgotten by the pool, such a message
is in nobody's hands, is given back, and runs twice. So ``install``, called for each new transport, has the pool go on knowing
what has been sent to a process that lives, if it is a message of ours: it ends as any other task does, and is settled then.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

from ..message import Message

MODULE = "celery.concurrency.asynpool"


def install() -> None:
    """Has the pools of this process remember so, if Celery's pool of processes is loaded and it is not installed yet."""
    pool_class: Any = getattr(sys.modules.get(MODULE), "AsynPool", None)
    if pool_class is None or hasattr(pool_class.flush, "knows_ferryman"):
        return
    known = pool_class.flush

    @wraps(known)
    def flush(self: Any) -> Any:
        sent = [] if self.synack else [job for job in tuple(self._cache.values()) if _is_sent(job)]
        for job in sent:
            job.discard = _stay
        try:
            return known(self)
        finally:
            for job in sent:
                del job.discard

    flush.knows_ferryman = True  # type: ignore[attr-defined]
    pool_class.flush = flush


def _is_sent(job: Any) -> bool:
    """Whether a pool's job is a message of ours that was sent, in part at least, to a process that is there to run it.

    With ``synack`` the pool tells the process not to run it.
    """
    request = getattr(getattr(job, "_callback", None), "__self__", None)
    process = getattr(job, "_write_to", None)
    return process is not None and process._is_alive() and isinstance(getattr(request, "message", None), Message)


def _stay() -> None:
    """In the place of ``discard``."""
