"""Scheduled tasks: what a worker says to ``celery inspect scheduled``: also the tasks that wait for their time in the broker.

On other transports a task with an ETA is delivered at once and waits in a worker, which is what Celery's command lists. Here it
stays in Redis until it is due, so that list would always be empty. ``install``, called for each new transport, puts a command in
its place that adds the next ones of the queues that the worker consumes, another system's delayed jobs among them. A worker of
another broker answers as before.
"""

from __future__ import annotations

import datetime
import heapq
import logging
import sys
from collections.abc import Iterator, Sequence
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...schema.connection.call import Call, Command
from ...schema.errors import MalformedValue
from ..errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from ..message import Content, content
from ..session import Session

if TYPE_CHECKING:
    from ...schema.live import Upcoming

T = TypeVar("T")

logger = logging.getLogger("ferryman.transport")

MODULE = "celery.worker.control"
COMMANDS = ("scheduled", "dump_schedule")
"""The command, and its old name."""
LIMIT = 100
"""Tasks that are listed unless ``limit`` says otherwise."""
MAX_TASKS = 1000
"""Tasks that are listed at most."""
MAX_BYTES = 4_000_000
"""Size of the messages that are read at most, but for the first: they come whole, though only their heads are wanted."""
PRIORITY = 6
"""What Celery gives each ETA in its timer; nothing to do with the task's own."""


class Due(NamedTuple):
    """A scheduled job, ordered by its time."""

    at_ms: int
    queue: str
    job_id: str


def install() -> None:
    """Has this process's workers list what waits in the broker, if Celery's commands are loaded and it is not installed yet."""
    commands: dict[str, Any] = getattr(getattr(sys.modules.get(MODULE), "Panel", None), "data", {})
    known = commands.get(COMMANDS[0])
    if known is None or hasattr(known, "knows_ferryman"):
        return

    @wraps(known)
    def scheduled(state: Any, limit: int = LIMIT, **arguments: Any) -> Any:
        return [*known(state, **arguments), *_in_broker(state, limit)]

    scheduled.knows_ferryman = True  # type: ignore[attr-defined]
    for name in COMMANDS:
        commands[name] = scheduled


def _in_broker(state: Any, limit: int) -> list[dict[str, Any]]:
    """What waits in the queues of the worker that was asked; nothing if it has another broker or none at the moment."""
    consumer = state.consumer
    transport = getattr(getattr(consumer, "connection", None), "transport", None)
    task_consumer = getattr(consumer, "task_consumer", None)
    session = getattr(transport, "session", None)
    if not isinstance(session, Session) or task_consumer is None:
        return []
    try:
        queues = sorted({queue.name for queue in task_consumer.queues})
        return list(upcoming(session, queues, min(max(int(limit), 0), MAX_TASKS), state.hostname))
    except (*CONNECTION_ERRORS, *CHANNEL_ERRORS) as error:
        logger.warning("the tasks that wait in the broker can't be listed: %s", error)
        return []


def upcoming(session: Session, queues: Sequence[str], limit: int, hostname: str) -> Iterator[dict[str, Any]]:
    """The next tasks that are scheduled in some queues, the next one first, in Celery's form. Three round trips, and one more for
    the jobs of another system.

    What is damaged is left out. Raises connection errors.
    """
    if not limit:
        return
    found = heapq.merge(_own(session, queues, limit), _foreign(session, queues, limit), key=lambda each: each[0])
    for due, message in islice(found, limit):
        entry = _entry(due, message, hostname)
        if entry is not None:
            yield entry


def _own(session: Session, queues: Sequence[str], limit: int) -> Iterator[tuple[Due, Content]]:
    """The next ones of ferryman's own queues."""
    scripts = session.scripts
    listed = _successful(session, [(queue, scripts.upcoming(queue, limit)) for queue in queues])
    next_ones = heapq.nsmallest(limit, (Due(at, queue, job_id) for queue, jobs in listed for job_id, at in jobs))
    sizes = _successful(session, [(due, scripts.message_size(due.queue, due.job_id)) for due in next_ones])
    for due, fields in _successful(session, [(due, scripts.message(due.queue, due.job_id)) for due in _fitting(sizes)]):
        try:
            yield due, content(due.job_id, due.queue, fields)
        except MalformedValue:
            continue  # or it has gone meanwhile


def _foreign(session: Session, queues: Sequence[str], limit: int) -> list[tuple[Due, Content]]:
    """The next ones of another system's queues, if one carries the tasks."""
    foreign = session.foreign
    if foreign is None:
        return []
    calls: list[tuple[str, Call[tuple[Upcoming, ...]]]] = []
    for queue in queues:
        call = foreign.family.upcoming(queue, limit, fetch_bytes=MAX_BYTES) if foreign.is_lasting(queue) else None
        if call is not None:
            calls.append((queue, call))
    found: list[tuple[Due, Content]] = []
    for queue, jobs in _successful(session, calls):
        for upcoming_job in jobs:
            job = upcoming_job.job
            try:
                found.append((Due(upcoming_job.due_ms, queue, job.id), foreign.content(queue, job, "", None)))
            except MalformedValue:
                continue
    return sorted(found, key=lambda each: each[0])


def _successful(session: Session, calls: Sequence[tuple[T, Command[Any] | Call[Any]]]) -> list[tuple[T, Any]]:
    """What each call is about, with its result; without those that failed."""
    outcomes = session.link.outcomes([call for _, call in calls])
    replies = [(about, reply) for (about, _), reply in zip(calls, outcomes, strict=True)]
    for about, error in replies:
        if isinstance(error, Exception):
            logger.warning("what is scheduled can't be listed in full: %s: %s", about, error)
    return [(about, reply) for about, reply in replies if not isinstance(reply, Exception)]


def _fitting(sizes: Sequence[tuple[Due, int]]) -> list[Due]:
    """As many of the first as are no larger together than BYTES, but one at least."""
    fitting: list[Due] = []
    total = 0
    for due, size in sizes:
        total += size
        if fitting and total > MAX_BYTES:
            break
        fitting.append(due)
    return fitting


def _entry(due: Due, found: Content, hostname: str) -> dict[str, Any] | None:
    """None for a message that is for no Celery task."""
    headers, properties = found.headers, found.properties
    if not headers.get("task"):
        return None
    info = properties.get("delivery_info") or {}
    eta = headers.get("eta") or datetime.datetime.fromtimestamp(due.at_ms / 1000, datetime.UTC)
    return {
        "eta": eta.isoformat() if isinstance(eta, datetime.datetime) else str(eta),
        "priority": PRIORITY,
        "waiting_in_broker": True,
        "request": {
            "id": headers.get("id"),
            "name": headers.get("shadow") or headers["task"],
            "args": headers.get("argsrepr", ""),
            "kwargs": headers.get("kwargsrepr", ""),
            "type": headers["task"],
            "hostname": hostname,
            "time_start": None,
            "acknowledged": False,
            "delivery_info": {
                "exchange": info.get("exchange", ""),
                "routing_key": info.get("routing_key", due.queue),
                "priority": properties.get("priority"),
                "redelivered": False,
            },
            "worker_pid": None,
        },
    }
