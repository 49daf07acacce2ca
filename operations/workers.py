"""Workers: who has taken jobs of a keyspace of late, what they hold, and when they were last heard of. Only reads.

For systems that keep a list of their workers (``KeyFamily.workers``); the consumers of ferryman's own queues have leases instead.
Called by the web page.

    found = workers(address)
    for worker in found.page.workers:
        print(worker.name, worker.held, worker.first_lock_ends_ms)
"""

from __future__ import annotations

from attrs import frozen

from ..migrations.counting import SERVERS, answer
from ..migrations.probes import clock_ms
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import open_pipeline
from ..schema.workers import WorkerPage

MOST = 200
"""Workers on one page."""


@frozen
class FoundWorkers:
    """What was found, and at which moment of the server, Unix ms."""

    page: WorkerPage
    now_ms: int


def workers(address: Address, first: int = 0, limit: int = MOST) -> FoundWorkers | None:
    """Up to ``limit`` workers after the first ones; None where no key tells who works.

    That is so for systems without such a list, for clusters and for snapshot files. Raises ServerError naming the address.
    """
    query = address.key_family.workers(address.prefix, first, limit)
    if query is None or address.kind not in SERVERS:
        return None
    with open_client(address) as client, open_pipeline(client) as pipe:
        return FoundWorkers(answer(pipe, query), clock_ms(client))
