"""Sound kue jobs as a table: what reader.py makes of each, for many whose records have the same fields, type and state.

What ``record.canonical``, ``record.standard`` and ``Kept.of_difference`` say of a value is said of a column here, as far as it
concerns jobs for which ``voucher.py`` has vouched. tests/compat/kue/test_table.py holds the one against the other. Called by
``voucher.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...schema.job import State, rank_of
from ...schema.jobtable import JobTable
from ...schema.memo import Memo
from ...schema.text import to_text
from ...schema.voucher import Columns, Members, SoundJobs
from ..aside import FIELD
from ..numbers import bounded, number, number_text, wholes
from .kept import NAME
from .keys import LARGEST_ID
from .record import progress_of

ALWAYS_GIVEN_BACK = frozenset({b"type", b"data", b"state", b"workerId", b"result", b"error"})
"""Fields whose texts ``standard`` writes as they were, whatever they are."""

Column = Sequence[Any]


def read_table(ids: Sequence[str], jobs: SoundJobs, queue: str, state: State, by_type: Members) -> JobTable | None:
    """The jobs; None where something may be put aside in their records. ``by_type``: their places in the index of that role."""
    fields = jobs.records
    if FIELD in fields or max(map(int, ids)) > LARGEST_ID:
        return None
    nothing: Column = [None] * len(ids)

    def whole(name: bytes) -> Column:
        return wholes(fields[name]) if name in fields else nothing

    def each(convert: Callable[[bytes | None], Any], name: bytes) -> Column:
        return _each(convert, fields[name]) if name in fields else nothing

    priority, updated_at, started_at = each(number, b"priority"), whole(b"updated_at"), whole(b"started_at")
    finished_at = nothing
    if state is State.COMPLETED:
        finished_at = list(map(_end, started_at, whole(b"duration"), updated_at))
    elif state is State.FAILED:
        finished_at = whole(b"failed_at")
    columns = {
        "priority": priority,
        "payload": fields[b"data"],
        "created_at": whole(b"created_at"),
        "updated_at": updated_at,
        "due_at": whole(b"promote_at") if state is State.SCHEDULED else nothing,
        "started_at": started_at,
        "finished_at": finished_at,
        "attempts": whole(b"attempts"),
        "max_attempts": whole(b"max_attempts"),
        "progress": each(progress_of, b"progress"),
        "result": fields.get(b"result", nothing),
        "error": each(_text, b"error"),
        "worker": each(_text, b"workerId"),
        "ttl": whole(b"ttl"),
        "rank": _each(rank_of, by_type.scores if state is State.WAITING else priority),
    }
    kept = _kept(fields, _standard(columns, state), nothing)
    columns = {"id": ids} | {name: column for name, column in columns.items() if column is not nothing}
    if state is State.WAITING:
        columns["position"] = by_type.ranks
    if any(jobs.attached):
        columns["logs"] = [tuple(line for entry in entries for line in entry.value) for entries in jobs.attached]
    if kept:
        columns["extra"] = [{NAME: {"fields": kept[row]}} if row in kept else {} for row in range(len(ids))]
    same: dict[str, Any] = {"queue": queue, "name": queue, "state": state}
    same |= {name: value for name, value in (("attempts", 0), ("progress", 0.0)) if name not in columns}
    return JobTable.of(same, columns)


def _end(started_at: int | None, duration: int | None, updated_at: int | None) -> int | None:
    """When a completed job has ended."""
    return updated_at if started_at is None or duration is None else bounded(started_at + duration)


def _standard(job: dict[str, Column], state: State) -> dict[bytes, Iterable[bytes | None]]:
    """The fields that kue itself would have written, but for those that are always given back; None where it has none."""
    created_at, due_at, started_at, finished_at = (job[name] for name in ("created_at", "due_at", "started_at", "finished_at"))
    fields: dict[bytes, Iterable[bytes | None]] = {
        b"priority": _each(number_text, job["priority"]),
        b"max_attempts": (_decimal(max(1, most or 1)) for most in job["max_attempts"]),
        b"created_at": map(_decimal, created_at),
        b"promote_at": map(_decimal, due_at if state is State.SCHEDULED else created_at),
        b"updated_at": map(_decimal, job["updated_at"]),
        b"ttl": (_decimal(longest) if longest and longest > 0 else None for longest in job["ttl"]),
        b"attempts": (_decimal(made) if made else None for made in job["attempts"]),
        b"progress": _each(_percent, job["progress"]),
        b"started_at": map(_decimal, started_at),
    }
    match state:
        case State.SCHEDULED:
            fields[b"delay"] = (
                _decimal(due - made) if due > made else None for due, made in zip(due_at, created_at, strict=True)
            )
        case State.FAILED:
            fields[b"failed_at"] = map(_decimal, finished_at)
        case State.COMPLETED:
            fields[b"duration"] = map(_duration, started_at, finished_at)
    return fields


def _decimal(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def _percent(progress: float | None) -> bytes | None:
    return b"%d" % round(progress * 100) if progress else None


def _duration(started_at: int | None, finished_at: int | None) -> bytes | None:
    return None if started_at is None or finished_at is None else b"%d" % (finished_at - started_at)


def _kept(fields: Columns, standard: dict[bytes, Iterable[bytes | None]], nothing: Column) -> dict[int, dict[str, bytes | None]]:
    """The fields that are not as kue itself would have written them, by row: see ``Kept.to_extra``."""
    kept: defaultdict[int, dict[str, bytes | None]] = defaultdict(dict)
    for name in sorted((fields.keys() | standard.keys()) - ALWAYS_GIVEN_BACK):
        there, expected = fields.get(name, nothing), list(standard.get(name, nothing))
        if there != expected:
            for row, (raw, text) in enumerate(zip(there, expected, strict=True)):
                if raw != text:
                    kept[row][to_text(name)] = raw
    return kept


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else to_text(raw)


def _each(function: Callable[[Any], Any], column: Column) -> Column:
    """What a function says of each value in a column in which many are the same."""
    return list(map(Memo(function).__getitem__, column))
