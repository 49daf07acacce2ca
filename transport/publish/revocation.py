"""Revocation: taking tasks that nobody has begun out of their queues, by task id, whether or not any worker runs.

Celery's own ``app.control.revoke`` tells the workers that listen, and only they remember it. A connection that sees that
broadcast go out also removes the tasks (option ``remove_revoked``), for a bounded time; ``revoke`` here does the same and nothing
else, for as long as it takes. What runs is left to Celery (``terminate=True``). What the app and its monitors learn of a removed
task stands in ``revoked_tasks.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from kombu import Connection
from kombu.serialization import loads
from kombu.transport import base

from ...schema.errors import UsageError
from ...schema.native import keys
from ...schema.native.scripts.queue_scripts import QueueScripts
from ...schema.native.scripts.results import Task
from ...schema.text import to_text
from ..celery.revoked_tasks import report_revoked, revoking_app
from ..connection.link import ServerLink
from ..errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from ..live.foreign_queue import ForeignQueue
from ..session import Session

if TYPE_CHECKING:
    from ...schema.live import LiveFamily

logger = logging.getLogger("ferryman.transport")

PIDBOX = ".pidbox"
"""Ends the names of the exchanges of Celery's remote control."""
ROLES: tuple[Literal["scheduled", "waiting"], ...] = ("scheduled", "waiting")
TIMEOUT = 2.0
"""Seconds for which a broadcast ``revoke`` may look through queues."""


def revoke(where: Any, task_ids: str | Iterable[str], queues: Iterable[str] | None = None) -> int:
    """Removes tasks that wait or are scheduled, and gives how many there were. What a worker has taken is left alone.

    ``where``: a Celery app, or a kombu ``Connection`` to a ``ferryman://`` broker. ``queues``: where to look; all durable ones
    by default. The app's result backend and monitors learn of them. Raises UsageError for another broker, and connection errors.
    """
    wanted = {task_ids} if isinstance(task_ids, str) else set(task_ids)
    if isinstance(where, Connection):
        return len(list(_revoke(_session(where), wanted, queues)))
    with where.connection_for_write() as connection:
        session = _session(connection)
        removed: list[Task] = []
        try:
            for task in _revoke(session, wanted, queues):
                removed.append(task)  # what is gone when an error comes must be reported too
        finally:
            report_revoked(where, removed, connection.transport)
    return len(removed)


def _session(connection: Connection) -> Session:
    connection.ensure_connection(max_retries=1)
    session = getattr(connection.transport, "session", None)
    if not isinstance(session, Session):
        raise UsageError(f"tasks can be removed from a ferryman:// broker, not from {connection.as_uri()}")
    return session


def _revoke(
    session: Session, task_ids: Collection[str], queues: Iterable[str] | None, seconds: float | None = None
) -> Iterator[Task]:
    link, scripts = session.link, session.scripts
    queues = durable_queues(link, scripts) if queues is None else queues
    if session.foreign is not None:
        queues = list(queues)
        others = [ForeignQueue(queue) for queue in queues if session.foreign.is_lasting(queue)]
        for _, task in removals(link, session.foreign.family, task_ids, others, seconds):
            yield task
    for _, task in removals(link, scripts, task_ids, queues, seconds):
        yield task


def durable_queues(link: ServerLink, scripts: QueueScripts) -> list[str]:
    """The queues that are not temporary."""
    return sorted(map(to_text, link.command("SMEMBERS", keys.queues(scripts.prefix))))


def removals(
    link: ServerLink, family: LiveFamily, task_ids: Collection[str], queues: Iterable[str], seconds: float | None = None
) -> Iterator[tuple[str, Task]]:
    """Removes the jobs of tasks that nobody has taken, and gives each with its queue as it is gone.

    Stops after so many seconds, and says so in the log. Raises connection errors.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    if not task_ids:
        return
    for queue in queues:
        # A job that becomes due moves from the one to the other, so this order meets it at least once.
        for role in ROLES:
            seen, more = 0, True
            while more:
                if deadline is not None and time.monotonic() > deadline:
                    logger.warning("a revoked task may still stand in a queue: there was no time to look through all of them")
                    return
                found = link.run(family.find(queue, task_ids, role, seen=seen))
                jobs = list(found.jobs)
                if found.unread and isinstance(family, QueueScripts):
                    jobs += filter(None, (link.run(family.wanted_task(queue, each, task_ids)) for each in found.unread))
                gone = link.run_all([family.remove(queue, job.id) for job in jobs]) if jobs else []
                for job, was_in in zip(jobs, gone, strict=True):
                    if was_in in ("waiting", "scheduled"):
                        seen -= 1
                        yield queue, job
                seen, more = seen + found.scanned, found.more


def on_broadcast(session: Session, message: Mapping[str, Any], transport: base.Transport) -> None:
    """A message was broadcast to workers: if it revokes tasks, those that still stand in queues are removed as well.

    A revoke for certain workers only is theirs alone. Never fails: the broadcast is out, and workers act on it. ``transport``:
    the session's own, for ``report_revoked``.
    """
    app = revoking_app()
    task_ids = revoked_ids(message, is_own=app is not None)
    if not task_ids:
        return
    removed: list[Task] = []
    try:
        for task in _revoke(session, task_ids, None, TIMEOUT):
            removed.append(task)  # what is gone when an error comes must be reported too
    except (*CONNECTION_ERRORS, *CHANNEL_ERRORS) as error:
        logger.warning("revoked tasks could not be removed from their queues, workers will discard them: %s", error)
    if app is not None:
        report_revoked(app, removed, transport)


def revoked_ids(message: Mapping[str, Any], *, is_own: bool = False) -> set[str]:
    """The ids of the tasks that a remote control message revokes everywhere; none for all others.

    ``is_own``: it was made by a Celery app of this process, so that it may be read whatever its type, be it pickle.
    """
    content_type = message.get("content-type")
    accept = {content_type} if is_own else {"application/json"}
    try:
        command = loads(message["body"], content_type, message.get("content-encoding"), accept=accept)
    except Exception:  # noqa: BLE001 - decoders raise what they like, and what can't be read revokes nothing
        return set()
    match command:
        case {"method": "revoke", "arguments": {"task_id": task_id}, **rest} if not any(
            map(rest.get, ("destination", "pattern"))
        ):
            given = task_id if isinstance(task_id, list) else [task_id]
            return {each for each in given if isinstance(each, str) and each}
        case _:
            return set()
