"""Records: where the actions of all visitors are noted. Read by the page ``/log``."""

from __future__ import annotations

import threading
from collections import deque

import click
from attrs import define, field

from ...operations.actions import ActionRecord, JsonLines, Sink
from ...schema.errors import FerrymanError

MOST_REMEMBERED = 200


class NotRecorded(FerrymanError):
    """An action has happened, and the audit log does not have it."""


@define(eq=False)
class ActionLog:
    """Where actions are noted: a file if one was given, else stderr; and the last ones in memory, for a page."""

    file: JsonLines | None = None
    _recent: deque[ActionRecord] = field(factory=lambda: deque(maxlen=MOST_REMEMBERED))
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """What keeps a record."""
        return (self._remember, _to_stderr if self.file is None else self._to_file)

    def last(self) -> list[ActionRecord]:
        """The last actions, the latest first."""
        if self.file is not None:
            return self.file.last(MOST_REMEMBERED)
        with self._lock:
            return list(reversed(self._recent))

    def _to_file(self, record: ActionRecord) -> None:
        assert self.file is not None
        try:
            self.file(record)
        except OSError as error:
            raise NotRecorded(
                f"{record.action} had the outcome {record.outcome!r}, but the audit log can't be written "
                f"({error.strerror or error}): make room, and act no more until it can"
            ) from error

    def _remember(self, record: ActionRecord) -> None:
        with self._lock:
            self._recent.append(record)


def _to_stderr(record: ActionRecord) -> None:
    click.echo(f"ferryman: {record.to_json()}", err=True)
