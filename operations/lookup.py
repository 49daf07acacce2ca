"""Lookup: a few jobs by their ids or by the ids of their Celery tasks, each with all that its keys say of it.

Ids lead to keys, so other jobs cost nothing. Where an id leads to no key (that of a kombu message
which waits, of a pjq job whose record does not tell its queue, of a task), a bounded part of queues is looked through, and
the answer says whether that was all. Only reads. Called by ``ferryman jobs --id``.

    found = lookup(address, ["42"])
    for each in found.jobs:
        print(each.job.state, [fact.key for fact in each.facts])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from ..migrations.counting import SERVERS, count, is_countable
from ..migrations.lookup import MOST_IDS, read_by_id
from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.errors import MalformedValue, UsageError
from ..schema.fact import Fact
from ..schema.job import Job, State
from ..schema.live import LiveFamily
from ..schema.native.keys import DEFAULT_PREFIX
from ..schema.native.scripts.queue_scripts import QueueScripts
from ..schema.text import load_json
from . import pages

if TYPE_CHECKING:
    from ..transport.connection.link import ServerLink

MOST_LOOKED_AT = 20_000
"""Jobs of each queue among which a task's id is looked for."""
ROLES: tuple[Literal["waiting", "scheduled"], ...] = ("waiting", "scheduled")
OTHERS = (State.ACTIVE, State.FAILED, State.BLOCKED, State.COMPLETED)
"""Where else a task of ferryman's own queues may be; cancelled ones stand among the failed."""


@frozen
class FoundJob:
    """A job with its whole story."""

    job: Job
    facts: tuple[Fact, ...]
    """What each key says of it: its record, where it stands, logs, history, who holds it."""
    task_id: str | None = None
    """The id of its Celery task, if it was found by that."""

    @property
    def reason(self) -> str | None:
        """The word for why it died, where the system has one."""
        for fact in self.facts:
            if fact.role in ("job", "record") and b"reason" in fact.fields:
                return fact.fields[b"reason"].decode("utf-8", "replace")
        return None


@frozen
class Found:
    """What a lookup has found."""

    jobs: tuple[FoundJob, ...]
    """In the order of the ids; an id that several queues have comes with all of them."""
    missing: tuple[str, ...]
    """Ids that were not found."""
    must_scan: bool
    """Whether a missing one may be there all the same: only who reads every job knows."""


def lookup(
    address: Address, ids: Collection[str], queues: Collection[str] | None = None, *, now_ms: int | None = None
) -> Found | None:
    """The jobs with these ids, or of these tasks; None for clusters and snapshots, where all jobs must be read.

    ``queues``: only jobs of these. ``now_ms``: the server's clock if none is given. Raises UsageError for more than MOST_IDS ids,
    ServerError naming the address.
    """
    if len(ids) > MOST_IDS:
        raise UsageError(f"{len(ids)} ids are too many at once; give at most {MOST_IDS}")
    if address.kind not in SERVERS:
        return None
    found: dict[str, list[FoundJob]] = {}
    wanted = list(dict.fromkeys(ids))
    for each in _by_id(address, wanted, queues, now_ms):
        found.setdefault(each.job.id, []).append(each)
    rest = [job_id for job_id in wanted if job_id not in found]
    must_scan = False
    if rest:
        tasks, must_scan = _by_task(address, rest, queues, now_ms)
        found |= tasks
    missing = tuple(job_id for job_id in wanted if job_id not in found)
    jobs = tuple(each for job_id in wanted for each in found.get(job_id, ()))
    return Found(jobs, missing, bool(missing) and must_scan)


def _by_id(address: Address, ids: Sequence[str], queues: Collection[str] | None, now_ms: int | None) -> list[FoundJob]:
    read = read_by_id(address, ids, queues, now_ms=now_ms, scan=False)
    jobs = ((subject, read.keyspace.family.read(subject, read.keyspace)) for subject in read.subjects)
    return [FoundJob(job, subject.facts) for subject, job in jobs if job is not None and (queues is None or job.queue in queues)]


# By the ids of tasks


def _by_task(
    address: Address, ids: Sequence[str], queues: Collection[str] | None, now_ms: int | None
) -> tuple[dict[str, list[FoundJob]], bool]:
    """The jobs of tasks by these, and whether there may be more of them than was looked at."""
    from .broker import open_link  # it loads kombu, which takes a while, and ids lead to most jobs without it

    is_native = address.family == DEFAULT_FAMILY
    live = QueueScripts(address.prefix) if is_native else address.key_family.live(address.prefix, DEFAULT_PREFIX)
    found: dict[str, list[FoundJob]] = {}
    # What the system itself has made is known to Celery by its prefix and its id.
    start = f"{address.prefix}:"
    own = {job_id.removeprefix(start): job_id for job_id in ids if address.prefix and not is_native and job_id.startswith(start)}
    for each in _by_id(address, list(own), queues, now_ms) if own else ():
        found.setdefault(own[each.job.id], []).append(each)
    rest = [job_id for job_id in ids if job_id not in found]
    if queues is None and is_countable(address):
        counted = count(address)
        queues = [] if counted is None else [status.queue for status in counted[1]]
    if not rest or live is None or queues is None:
        return found, bool(rest)
    is_cut = not is_native  # what runs or has ended is not found by its task
    with open_link(address) as link:
        for queue in queues:
            names, was_cut = _found_in(link, live, queue, rest)
            is_cut |= was_cut
            for each in _by_id(address, list(names), [queue], now_ms) if names else ():
                task_id = names[each.job.id]
                found.setdefault(task_id, []).append(FoundJob(each.job, each.facts, task_id))
    rest = [task_id for task_id in rest if task_id not in found]
    for queue in queues if is_native and rest else ():
        for state in OTHERS:
            jobs, was_cut = _first(address, queue, state, now_ms)
            is_cut |= was_cut
            told = ((job.id, task_id_of(job)) for job in jobs)
            names = {job_id: task_id for job_id, task_id in told if task_id is not None and task_id in rest}
            for each in _by_id(address, list(names), [queue], now_ms) if names else ():
                found.setdefault(names[each.job.id], []).append(FoundJob(each.job, each.facts, names[each.job.id]))
    return found, is_cut


def _found_in(link: ServerLink, live: LiveFamily, queue: str, task_ids: Iterable[str]) -> tuple[dict[str, str], bool]:
    """Job id -> task id of what waits or is scheduled in a queue, and whether there was more of it than was looked at."""
    found: dict[str, str] = {}
    is_cut, wanted = False, set(task_ids)
    for role in ROLES:
        seen, more = 0, True
        while more and seen < MOST_LOOKED_AT:
            chunk = link.run(live.find(queue, wanted, role, seen=seen))
            found |= {task.id: task.task for task in chunk.jobs}
            if chunk.unread and isinstance(live, QueueScripts):
                tasks = (link.run(live.wanted_task(queue, each, wanted)) for each in chunk.unread)
                found |= {task.id: task.task for task in tasks if task is not None}
            seen, more = seen + chunk.scanned, chunk.more
        is_cut |= more
    return found, is_cut


def _first(address: Address, queue: str, state: State, now_ms: int | None) -> tuple[Sequence[Job], bool]:
    """The newest jobs of a state, and whether there are more."""
    page = pages.page(address, queue, state, MOST_LOOKED_AT // 10, newest=True, now_ms=now_ms)
    return ((), True) if page is None else (page.jobs, page.next is not None)


def task_id_of(job: Job) -> str | None:
    """The id of the Celery task that a message of ferryman's own queues is for."""
    for own in _mappings(job):
        head = own.get("head")
        try:
            message = load_json(head) if isinstance(head, bytes) else None
        except (MalformedValue, RecursionError):
            continue
        headers = message.get("headers") if isinstance(message, dict) else None
        if isinstance(headers, dict) and isinstance(headers.get("id"), str):
            return str(headers["id"])
    return None


def _mappings(job: Job) -> Iterator[dict[str, object]]:
    return (own for own in job.extra.values() if isinstance(own, dict))
