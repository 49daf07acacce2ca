"""Lookup: a few jobs of a live keyspace by their ids, for what they cost, however many jobs there are beside.

The keys that speak of a job follow from its id, in some families from its queue as well: there each queue is asked, and for an id
that none of them knows the names of all keys are scanned, since temporary queues are in no list. Only reads. Called by the Spark
data source and ``operations/lookup.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import redis
from attrs import evolve

from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.fact import Entry, FactKind, Subject
from ..schema.family import Keyspace
from ..schema.job import Job
from ..schema.keys import glob_escape
from ..schema.totals import Totals
from .atomic_read import open_reader
from .counting import SERVERS, count
from .probes import clock_ms
from .related_jobs import RelatedJobs, RelatedReader
from .scan import EVERYTHING, SCAN_COUNT, scan_range
from .throttle import UNTHROTTLED, Throttle

MOST_IDS = 10_000
"""For more jobs than this, all are read."""
MOST_GLOBS = 20
"""Names are not compared with more patterns than this."""


def jobs_by_id(
    address: Address,
    ids: Collection[str],
    queues: Collection[str] | None = None,
    *,
    now_ms: int | None = None,
    throttle: Throttle = UNTHROTTLED,
) -> list[Job] | None:
    """The jobs with these ids, in the order of the ids; None where all jobs must be read for that.

    That is so for clusters, snapshots, families that name no keys by ids, more than MOST_IDS, and a job that stands in a list too
    long to be searched. ``queues``: only jobs of these are asked for; others may come where that costs nothing. ``now_ms``: by
    default the server's clock. Raises ServerError naming the address.
    """
    family = address.key_family
    if address.kind not in SERVERS or not family.finds_by_id or len(ids) > MOST_IDS:
        return None
    read = read_by_id(address, ids, queues, now_ms=now_ms, throttle=throttle)
    if read.unread:
        return None
    jobs = (family.read(subject, read.keyspace) for subject in read.subjects)
    return [job for job in jobs if job is not None]


def read_by_id(
    address: Address,
    ids: Collection[str],
    queues: Collection[str] | None = None,
    *,
    now_ms: int | None = None,
    throttle: Throttle = UNTHROTTLED,
    scan: bool = True,
) -> RelatedJobs:
    """All that the keys say of the jobs with these ids, in the order of the ids, in any family, of one server.

    A job that no key of its id leads to is not among them, in a family that ``finds_by_id`` no more than in others. ``scan``:
    whether names of all keys are scanned for an id that no listed queue knows. The rest is as in ``jobs_by_id``.
    """
    family = address.key_family
    with open_client(address) as client, open_reader(address, throttle) as reader:
        keyspace = Keyspace(family, address.prefix, clock_ms(client) if now_ms is None else now_ms, Totals())
        related = RelatedReader(reader, keyspace, with_ranks=True)
        wanted = [Subject(job_id, scope, ()) for job_id in dict.fromkeys(ids) for scope in _scopes(address, queues)]
        read = related.read(wanted)
        if scan and family.scopes_by_queue and queues is None:
            missing = frozenset(ids) - {subject.job_id for subject in read.subjects if subject.record is not None}
            read = related.read([*read.subjects, *_scanned(client, keyspace, missing, throttle)]) if missing else read
    order = {job_id: index for index, job_id in enumerate(ids)}
    found = sorted(read.subjects, key=lambda subject: (order[subject.job_id], subject.scope))
    return evolve(read, subjects=tuple(found))


def _scopes(address: Address, queues: Collection[str] | None) -> list[str]:
    """The scopes in which a job may be, as far as they are listed."""
    if not address.key_family.scopes_by_queue:
        return [""]
    if queues is not None:
        return list(queues)
    counted = count(address)
    return [] if counted is None else [status.queue for status in counted[1]]


def _scanned(client: redis.Redis, keyspace: Keyspace, ids: Collection[str], throttle: Throttle) -> Iterator[Subject]:
    """The jobs with these ids by the names of their records, which end with them."""
    endings = tuple("*" + glob_escape(job_id) for job_id in ids)
    globs = endings if len(endings) <= MOST_GLOBS else keyspace.family.globs(keyspace.prefix)
    for page in scan_range(client, EVERYTHING, globs, throttle.page(SCAN_COUNT)):
        for key in page:
            for fact in keyspace.family.facts(Entry(key, "hash", {}), keyspace.prefix):
                if fact.kind is FactKind.RECORD and fact.job_id in ids:
                    yield Subject(fact.job_id or "", fact.scope, ())
