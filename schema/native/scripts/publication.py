"""Publications: jobs to publish, and the arguments that the publishing scripts get for each.

Pure. Called by ``queue_scripts.py``; the transport makes the publications.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ...connection.call import Argument
from ...errors import UsageError
from ...text import to_bytes
from .waiting_score import check_priority

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Publication(NamedTuple):
    """One job to publish.

    ``id``: text without control characters; ``<producer>-<n>`` with growing n, if a repeated publish is to be recognised after
    the job is done. ``priority``: -256 to 255. ``due_ms``: when it may be taken, None or past for at once. ``ttl_ms``: how
    long it may wait (from its due time) before it expires, None for ever. ``delay_ms``: in how long it may be taken, by the
    server's clock. ``unique``: a dedup key; while another job of the queue holds it, this one is not stored. A job holds its key
    until it ends (acked, dead, removed, expired), or for ``unique_ttl_ms``, whatever becomes of it.
    """

    id: str
    message: bytes
    priority: int = 0
    due_ms: int | None = None
    ttl_ms: int | None = None
    delay_ms: int | None = None
    unique: str | None = None
    unique_ttl_ms: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it may be taken at once, for ever, whatever else is stored."""
        return self.due_ms is None and self.delay_ms is None and self.ttl_ms is None and self.unique is None

    def arguments(self, number: int | None, has_keys: bool) -> list[Argument]:
        """What ``publish.lua`` gets for the job. ``number``: of its id; ``has_keys``: one of the jobs has a dedup key.

        Raises UsageError for an id, priority, due time or ttl that can't be.
        """
        arguments: list[Argument] = [
            to_bytes(check_name(self.id, "id")),
            optional(number),
            check_priority(self.priority),
            _milliseconds(self.due_ms, "due_ms") if self.delay_ms is None else _delay(self.delay_ms),
            _milliseconds(self.ttl_ms, "ttl_ms"),
            self.message,
        ]
        if has_keys:
            arguments += _unique(self)
        return arguments


def number_of(producer: str, job_id: str) -> int | None:
    """The n of an id ``<producer>-<n>``, None for ids of another form."""
    digits = job_id.removeprefix(f"{producer}-")
    if digits != job_id and digits.isascii() and digits.isdecimal() and len(digits) < 16:
        return int(digits)
    return None


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text for the publisher's memory: ``1-40,42-50``, ascending."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in found)


def check_name(name: str, what: str) -> str:
    """The name itself, if scripts and people can read it. Raises UsageError."""
    if not name or _CONTROL.search(name):
        raise UsageError(f"{what} {name!r} must be text without control characters, and not empty")
    return name


def optional(value: int | None) -> Argument:
    """A value as scripts get it: "" for None."""
    return "" if value is None else value


def _milliseconds(value: int | None, what: str) -> Argument:
    if value is None:
        return ""
    if not isinstance(value, int) or abs(value) > 2**53:
        raise UsageError(f"{what} {value!r} is not a whole number of milliseconds")
    return value


def _delay(delay_ms: int) -> Argument:
    _milliseconds(delay_ms, "delay_ms")
    return f"+{max(delay_ms, 0)}"


def _unique(message: Publication) -> tuple[Argument, Argument]:
    if message.unique is None:
        return "", ""
    life = _milliseconds(message.unique_ttl_ms, "unique_ttl_ms")
    if life != "" and int(life) < 1:
        raise UsageError(f"unique_ttl_ms {life!r} must be above 0")
    return to_bytes(check_name(message.unique, "unique key")), life
