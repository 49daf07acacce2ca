"""BeeClient: jobs of bee in Python, without Celery, beside bee's own clients and workers.

    bee = BeeClient("ferryman://localhost/0")
    bee.put("resize", ["cat.png", {"width": 200}])
    for job in bee.take("resize"):
        name, options = json.loads(job.payload)
        bee.complete(job, {"bytes": 1234})

The thin layer of ``compat/client.py`` over ``live.py``, and what bee has beyond: loading, finding and cancelling jobs. Public.
"""

from __future__ import annotations

from collections.abc import Iterable

import redis

from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.results import Removed
from ..client import LEASE, ForeignClient
from .job import BeeJob, job_of
from .live import BeeLive, new_hive


class BeeClient(ForeignClient[BeeLive]):
    """A client and a worker of bee. What it has taken it must renew with ``heartbeat`` every 30 s, as bees do.

    A job's payload is the list of its arguments; its id is a UUID of version 1. ``hashes``: see ``BeeLive``.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        *,
        prefix: str = "bee",
        side_prefix: str = DEFAULT_PREFIX,
        consumer: str | None = None,
        lease_ms: int = LEASE,
        hashes: bool = True,
    ) -> None:
        hive = consumer or new_hive()
        super().__init__(BeeLive(prefix, side_prefix, hashes, hive), server, consumer=hive, lease_ms=lease_ms)

    def get(self, job_id: str, *, now: int | None = None) -> BeeJob | None:
        """A job as bee's own clients load it; None: there is none.

        >>> bee.get(bee.put("mail", ["ann"])).status
        'queued'
        """
        found = self.send(self.live.get([job_id], now=now))[0]
        return None if found is None else job_of(found)

    def peek(self, queue: str, n: int = 1, *, now: int | None = None) -> tuple[BeeJob, ...]:
        """The jobs of a queue that run next, left where they are."""
        found = self.send(self.live.peek(queue, n, now=now))
        return tuple(job_of(each) for each in found if each is not None)

    def tagged(self, *tags: str | float, now: int | None = None) -> tuple[str, ...]:
        """The ids of the jobs that have all of these tags, sorted."""
        return self.send(self.live.tagged(tags))

    def cancel_any(self, job_id: str, *, now: int | None = None) -> Removed | None:
        """Cancels a job of any queue, and its children, in any state, as bee does: whoever runs it is not heard any more."""
        return self.send(self.live.cancel(job_id, now=now))

    def set_tags(self, job_id: str, tags: Iterable[str | float], *, now: int | None = None) -> bool:
        """Gives a job these tags and no others. False: there is no such job.

        bee's own ``setTags`` leaves the job in the sets of its earlier tags; here it is taken from them.
        """
        return self.send(self.live.set_tags(job_id, tuple(tags), now=now))
