"""Resume: what a migration has read of its source stays until the migration is finished, if the user named a folder for it.

A run that is interrupted leaves its snapshot in a folder of its own in that of ``--work``, and the folder's name in the journal.
The run that goes on finds it, so that it asks the source nothing, carries what was carried before, and need not care what has
become of the source since. Without it the source is read again. Called by the engine.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from uuid import uuid4

from ...schema.errors import UsageError
from . import storage
from .failures import explained, work_errors

PREFIX = "ferryman-"
SNAPSHOT = "source"
SUMMARIES = "summaries.json"
"""The file in a snapshot's folder with the summaries of those who have read it."""
COMPLETE = "complete"
"""The empty file beside it that is there when all has been read. It is written last."""
MARKER = "unfinished"
BEGUN = "begun"
"""The file in a folder of an object store by which executors know it: its content is the folder's name."""
PATTERN = set("*?[]{}\\")
"""Characters that make Spark take the name of a folder for a glob pattern."""


@contextlib.contextmanager
def work_folder(work: str | None, earlier: str | None = None) -> Iterator[str]:
    """A folder in ``work``, or among the temporary ones of this machine: ``earlier``, or a new one.

    It is gone after the block, unless an error ends the block of one for which ``keep_on_error`` was called. Among the temporary
    ones it goes while the process goes on: that takes seconds for gigabytes that the system has begun to write to its disk, and
    nobody looks there. Raises UsageError where none can be made, or Spark could not find it.
    """
    path = earlier or _make_folder(work)
    try:
        yield path
    except BaseException:
        if not _is_kept(path):
            storage.delete_leftovers(path)
        raise
    removal = Thread(target=storage.delete_leftovers, args=(path,), name=f"removing {path}")
    removal.start()  # the process ends after it
    if work is not None:
        removal.join()


def _make_folder(work: str | None) -> str:
    if work is not None and storage.is_url(work):
        return _make_remote_folder(work)
    base = Path(work or tempfile.gettempdir()).absolute()
    if PATTERN & set(str(base)):
        raise UsageError(f"{base}: Spark would take this name for a pattern; let --work name a folder without any of *?[]{{}}\\")
    try:
        return tempfile.mkdtemp(prefix=PREFIX, dir=base)
    except OSError as error:
        raise UsageError(
            f"{base}: no folder can be made there ({error.strerror}); let --work name one that exists and may be written to"
        ) from None


def _make_remote_folder(work: str) -> str:
    storage.check_url(work)
    path = storage.join(work, f"{PREFIX}{uuid4().hex}")
    begun = storage.join(path, BEGUN)
    try:
        storage.write(begun, storage.base_name(path).encode())
        storage.read(begun)
    except OSError as error:
        reason, remedy = explained(error)
        raise UsageError(f"{work}: no folder can be made there ({reason}); {remedy}") from None
    return path


def _is_kept(path: str) -> bool:
    try:
        return storage.exists(storage.join(path, MARKER))
    except OSError:
        return True  # nobody can tell, or delete it


def keep_on_error(path: str) -> None:
    """Lets a folder outlive errors."""
    with work_errors(path):
        storage.write(storage.join(path, MARKER), b"")


def find_snapshot(work: str | None, name: str | None) -> str | None:
    """The folder of this name in ``work``, if it holds a whole snapshot. The name comes from a server: it is no path."""
    if work is None or name is None or not re.fullmatch(rf"{PREFIX}\w+", name):
        return None
    path = storage.join(work, name)
    with work_errors(path):
        return path if storage.exists(storage.join(path, SNAPSHOT, COMPLETE)) else None
