"""Resume: what a migration has read of its source stays until the migration is finished, if the user named a folder for it.

A run that is interrupted leaves its snapshot in a folder of its own in that of ``--work``, and the folder's name in the journal.
The run that goes on finds it, so that it asks the source nothing, carries what was carried before, and need not care what has
become of the source since. Without it the source is read again. Called by the engine.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from ...schema.errors import UsageError
from .failures import work_errors

PREFIX = "ferryman-"
SNAPSHOT = "source"
COMPLETE = "summaries.json"
"""The file in a snapshot's folder that is there when all has been read: the summaries of those who did."""
MARKER = "unfinished"
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
        if not (Path(path) / MARKER).exists():
            shutil.rmtree(path, ignore_errors=True)
        raise
    removal = Thread(target=shutil.rmtree, args=(path,), kwargs={"ignore_errors": True}, name=f"removing {path}")
    removal.start()  # the process ends after it
    if work is not None:
        removal.join()


def _make_folder(work: str | None) -> str:
    base = Path(work or tempfile.gettempdir()).absolute()
    if PATTERN & set(str(base)):
        raise UsageError(f"{base}: Spark would take this name for a pattern; let --work name a folder without any of *?[]{{}}\\")
    try:
        return tempfile.mkdtemp(prefix=PREFIX, dir=base)
    except OSError as error:
        raise UsageError(
            f"{base}: no folder can be made there ({error.strerror}); let --work name one that exists and may be written to"
        ) from None


def keep_on_error(path: str) -> None:
    """Lets a folder outlive errors."""
    with work_errors(path):
        (Path(path) / MARKER).touch()


def find_snapshot(work: str | None, name: str | None) -> str | None:
    """The folder of this name in ``work``, if it holds a whole snapshot. The name comes from a server: it is no path."""
    if work is None or name is None or not re.fullmatch(rf"{PREFIX}\w+", name):
        return None
    path = Path(work) / name
    return str(path) if (path / SNAPSHOT / COMPLETE).is_file() else None
