"""Publishing of jobs: a canonical job as a message for a queue in use, the one that it was or one made of its name and payload.

Pure. Called by the Spark data source, whose users mend dead letters and publish them.
"""

from __future__ import annotations

from ..errors import MalformedValue
from ..job import Job, State
from . import codec
from .record import Passthrough
from .scripts.publication import Publication
from .scripts.waiting_score import HIGHEST_PRIORITY, LOWEST_PRIORITY
from .task_message import JSON_HEAD, task_message

PUBLISHABLE = frozenset({State.WAITING, State.SCHEDULED, State.FAILED, State.CANCELLED})
"""Jobs in other states are done, or running, or not known to be either."""


def publication_of(job: Job) -> Publication:
    """The message of a job: with the head of its own if it had one, and its payload as body; else a Celery task.

    A scheduled job has its due time. Raises MalformedValue for a job in a state that is not PUBLISHABLE, a payload that can't be
    a task's argument, and an extra that no reader has made.
    """
    if job.state not in PUBLISHABLE:
        raise MalformedValue(f"it is {job.state}; only {', '.join(sorted(PUBLISHABLE))} jobs are published")
    passthrough, payload = Passthrough.of(job), job.payload or b""
    if passthrough.head is not None:
        message = passthrough.head + b"\n" + payload
    else:
        headers, properties, payload = task_message(job.id, job.queue, job.name, payload)
        message = codec.encode({**JSON_HEAD, "headers": headers, "properties": properties}, payload)
    priority = max(LOWEST_PRIORITY, min(round(job.priority or 0), HIGHEST_PRIORITY))
    due_ms = job.due_at if job.state is State.SCHEDULED else None
    return Publication(job.id, message, priority, due_ms, unique=job.unique_key)
