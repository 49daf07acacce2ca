"""Action records: who has done what to which queue or job, when, and what came of it. Appended to, never changed.

Made by ``operations/steering.py`` for each action, failed ones too; a sink keeps them, such as a file of JSON lines. The web
page shows the last ones of such a file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from ..schema.errors import UsageError
from ..schema.steering import Value
from ..schema.text import dump_json, show

TAIL_BYTES = 256 * 1024
"""Bytes at the end of a file in which its last records are looked for."""


@frozen
class ActionRecord:
    """One action. ``at_ms``: Unix ms of the machine that acted. ``keyspace``: the address without its password.

    ``job_id`` None: the queue itself, or with ``state`` all jobs in it that ``chosen`` fits. ``value``: the new priority or the
    queue moved to; of a payload only its size and checksum. ``outcome``: a word such as ``done`` or ``held``, or the error.
    ``done`` and ``left``: how many jobs a bulk action has reached, and not.
    """

    at_ms: int
    by: str
    keyspace: str
    action: str
    queue: str
    job_id: str | None = None
    value: str | None = None
    state: str | None = None
    chosen: Mapping[str, Any] | None = None
    outcome: str = ""
    done: int | None = None
    left: int | None = None

    def to_json(self) -> str:
        """One line, without what is None."""
        return dump_json({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, line: str | bytes) -> ActionRecord:
        """The record behind ``to_json``. Raises ValueError or TypeError for a line that is none."""
        return cls(**json.loads(line))


Sink = Callable[[ActionRecord], None]
"""What keeps records. It may raise OSError: the action has happened then, and whoever acts learns that it is not recorded."""


@frozen
class JsonLines:
    """A file with one record a line, that several processes may append to."""

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> JsonLines:
        """The file, which is made if it is missing. Raises UsageError for one that can't be appended to."""
        sink = cls(Path(path))
        try:
            sink._append(b"")
        except OSError as error:
            raise UsageError(f"the audit log {show(str(path))} can't be written: {error.strerror or error}") from error
        return sink

    def __call__(self, record: ActionRecord) -> None:
        self._append(record.to_json().encode() + b"\n")

    def _append(self, line: bytes) -> None:
        # One write at the end of the file: lines of several processes don't mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def last(self, limit: int = 100) -> list[ActionRecord]:
        """The last records, the latest first; none where there is no file. Lines that are none are left out."""
        return list(self._last(limit))

    def _last(self, limit: int) -> Iterator[ActionRecord]:
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in reversed(lines):
            try:
                record = ActionRecord.from_json(line)
            except (TypeError, ValueError):
                continue
            yield record
            limit -= 1
            if limit <= 0:
                return


def shown(value: Value) -> str | None:
    """A value for a record: a payload may hold what logs must not."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
    return None if value is None else show(str(value))
