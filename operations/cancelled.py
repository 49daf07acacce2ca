"""Cancelled tasks: who waits for the result of a task learns that it was cancelled, where its app is known.

Collects what ``operations/steering.py`` has removed, and hands it on in batches. Knows nothing of Celery: the command line and
the web page say whom to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field

from ..schema.errors import MalformedValue
from ..schema.native import codec
from ..schema.native.scripts.results import Task

BATCH = 100
"""Tasks that are told of at once."""
BATCH_BYTES = 1024 * 1024
"""Bytes of messages after which those that have come are told of."""

Tell = Callable[[Sequence[Task]], None]
"""Tells of some tasks that are gone. It never fails: they are gone already."""


@define
class CancelledTasks:
    """Tasks that were cancelled and are still to be told of. Use as a context manager: its end tells of the last ones."""

    tell: Tell
    _tasks: list[Task] = field(factory=list)
    _bytes: int = 0

    def __enter__(self) -> CancelledTasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, job_id: str, message: bytes) -> None:
        """A job is gone. Nobody waits for one that is no task. One without a message has come from another system, and its id is
        its task's."""
        task_id = _task_of(message) if message else job_id
        if task_id is None:
            return
        self._tasks.append(Task(job_id, task_id, message))
        self._bytes += len(message)
        if len(self._tasks) >= BATCH or self._bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Tells of those that have come."""
        tasks, self._tasks, self._bytes = self._tasks, [], 0
        if tasks:
            self.tell(tasks)


def _task_of(message: bytes) -> str | None:
    try:
        head, _ = codec.decode(message)
    except MalformedValue:
        return None
    match head.get("headers"):
        case {"task": str(), "id": str(task_id)}:
            return task_id
    return None
