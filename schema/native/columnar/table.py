"""Tables of jobs in native keyspaces: what the writer writes of each, and what the reader makes of it, if they have nothing rare.

What ``record.standard``, ``Overflow.of`` and ``writer.write`` say of a job, and ``overflow.job_of`` of its hash, is said of a
column here. tests/schema/native/columnar/test_table.py holds the one against the other. Called by ``family.py`` and
``batch_prefilter.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...columnar.binary_views import BinaryViews
from ...columnar.build import Datum, base64_encode, concat_rows, format_ints, map_distinct, masked, merge_runs, resp_bulk
from ...columnar.jobtable import AcceptedJobs, Column, CommandTable, JobTable
from ...family import Target
from ...job import Job, State
from ...tagged_json import encode_tagged
from ...text import to_bytes, to_text
from ...totals import Totals
from ..keys import QueueKeys
from ..overflow import Overflow
from ..prefilter import EXACT
from ..record import CANCELLED, FAILED, NAME, ROLE_OF, STATES
from ..scripts.waiting_score import IMPORTED, RANK_STEP

SCORES = {
    State.WAITING: None,
    State.SCHEDULED: "due_at",
    **dict.fromkeys((State.COMPLETED, State.FAILED, State.CANCELLED), "finished_at"),
}
"""The states of jobs in tables, with the attribute that is their score; waiting ones have one of their own."""
RARE = ("lease_expires_at", "depends_on")
"""What jobs in tables don't have."""
NOTHING = (None, ())
NUMBERS = {b"published_at": "created_at", b"due_at": "due_at", b"delivered_at": "started_at", b"deliveries": "attempts"}
TEXTS = {b"consumer": "worker", b"error": "error", b"unique": "unique_key"}
"""Fields with the attributes that they hold, if the job has such."""
ALSO: Mapping[State, frozenset[bytes]] = {State.SCHEDULED: frozenset({b"due_at"}), State.FAILED: frozenset({b"reason"})}
"""The fields that only records of these jobs have, and all of them."""
REMEMBERING = frozenset({State.SCHEDULED, State.FAILED, State.CANCELLED})
"""Jobs whose records may remember their score in waiting."""


def can_write_table(table: JobTable) -> bool:
    """Whether a native queue can express all of the jobs."""
    common = table.common
    families = table.families if "extra" in table.columns else common.extra.keys()
    return bool(common.queue) and common.state in SCORES and bool(table.ids.sizes.all()) and NAME not in families


def write_table(table: JobTable, target: Target, written: Totals) -> CommandTable | None:
    """See KeyFamily.write_table."""
    common, rows = table.common, len(table)
    role, attribute = ROLE_OF[common.state], SCORES[common.state]
    if (
        not target.fresh
        or target.generated
        or any(name in table.columns or getattr(common, name) not in NOTHING for name in RARE)
    ):
        return None
    numbers = {name: _numbers(table, name) for name in _ATTRIBUTES}
    texts = {name: _text(table, name) for name in ("name", "payload", "result", "error", "worker", "unique_key")}
    values = numbers | texts
    if values["payload"] is None or (attribute is not None and values[attribute] is None):
        return None
    if any(value is _UNWRITABLE for value in values.values()) or (
        values["finished_at"] is not None and attribute != "finished_at"
    ):
        return None
    if values["unique_key"] is not None and attribute != "finished_at":  # a job that has not ended holds its key
        return None
    waiting_scores = _waiting_scores(numbers["rank"], numbers["position"], rows, common.state)
    scores = waiting_scores if attribute is None else numbers[attribute]
    if any(int(np.abs(each).max()) > EXACT for each in (waiting_scores, scores) if each is not None):
        return None
    words: list[bytes | BinaryViews] = [b"payload", texts["payload"], b"name", texts["name"]]
    for field, name in NUMBERS.items():
        if numbers[name] is not None:
            words += field, format_ints(numbers[name])
    is_remembered = common.state in REMEMBERING and waiting_scores is not None
    if is_remembered:
        words += b"score", format_ints(waiting_scores)
    for field, name in TEXTS.items():
        if texts[name] is not None:
            words += field, texts[name]
    if role == "dead":
        words += b"reason", CANCELLED if common.state is State.CANCELLED else FAILED
    # In waiting, a rank is the priority that is read there; a job that has no score there says nothing of one.
    read_priority = None
    if common.state is State.WAITING or is_remembered:
        read_priority = waiting_scores // RANK_STEP
    overflow = _overflow(table, numbers, texts["result"], read_priority, role, scores)
    if overflow is None:
        return None
    words += Overflow.FIELD, overflow
    keys, ids = QueueKeys(target.prefix, common.queue), table.ids
    zsets = {"waiting": keys.waiting, "scheduled": keys.scheduled, "dead": keys.dead, "done": keys.done}
    zset = zsets[role]
    record = concat_rows(rows, [keys.job_prefix, ids])
    commands = concat_rows(rows, [b"*%d\r\n" % (2 + len(words)), resp_bulk(b"HSET"), resp_bulk(record), *map(resp_bulk, words)])
    members = concat_rows(rows, [resp_bulk(format_ints(scores)), resp_bulk(ids)])
    written.count("jobs", common.queue, rows)
    written.count(f"jobs:{common.state}", common.queue, rows)
    if read_priority is not None:
        written.maximum("highest sequence", int((waiting_scores % RANK_STEP).max()), common.queue)
    return CommandTable(commands, 1, zset, members)


_ATTRIBUTES = (
    *("priority", "rank", "position", "created_at", "updated_at", "due_at", "started_at", "finished_at"),
    *("attempts", "max_attempts", "ttl"),
)
_UNWRITABLE = "unwritable"
"""Stands for values that a column can't write."""


def _waiting_scores(rank: Any, position: Any, rows: int, state: State) -> Any:
    """The score in waiting of each job (int64); None where they never had one."""
    if rank is None:
        if state is not State.WAITING:
            return None
        rank = np.zeros(rows, np.int64)
    return rank * RANK_STEP + (0 if position is None else np.minimum(position + 1, IMPORTED - 1))


def _numbers(table: JobTable, name: str) -> Any:
    """The values of an attribute that is a whole number (int64); None where there are none."""
    if name in table.columns:
        return table.columns[name]
    value = getattr(table.common, name)
    if value is None:
        return None
    return np.full(len(table), value) if type(value) is int and abs(value) < 2**63 else _UNWRITABLE


def _text(table: JobTable, name: str) -> bytes | BinaryViews | Any:
    """The values of an attribute that is a text, or bytes; None where there are none."""
    if name in table.columns:
        return table.columns[name]
    value = getattr(table.common, name)
    if not isinstance(value, str):
        return value
    raw = to_bytes(value)
    return raw if to_text(raw) == value else _UNWRITABLE


def _overflow(
    table: JobTable,
    numbers: Mapping[str, Any],
    result: bytes | BinaryViews | None,
    read_priority: Any,
    role: str,
    scores: Any,
) -> BinaryViews | None:
    """What ``Overflow.encode`` gives for each job; None where a column can't say. ``read_priority``: what a score would say."""
    rows, common, columns = len(table), table.common, table.columns
    priority = numbers["priority"]
    parts: list[Datum] = []
    if priority is not None:
        unlike = np.ones(rows, bool) if read_priority is None else priority != read_priority
        parts += masked(unlike, b',"priority":'), masked(unlike, format_ints(priority))
    elif read_priority is not None:
        parts.append(b',"priority":null')
    for name in ("updated_at", "max_attempts"):
        if numbers[name] is not None:
            parts += f',"{name}":'.encode(), format_ints(numbers[name])
    progress = columns.get("progress", common.progress)
    if isinstance(progress, np.ndarray):
        if not np.isfinite(progress).all():
            return None
        parts += b',"progress":', map_distinct(progress, _representation)
    elif progress is not None:
        if not np.isfinite(progress):
            return None
        parts.append(b',"progress":' + _representation(progress))
    if result is not None:
        parts.append(b',"result":')
        parts += _base64(result)
    parts += _encoded(table, "tags")
    if numbers["ttl"] is not None:
        parts += b',"ttl":', format_ints(numbers["ttl"])
    logs = columns.get("logs")
    if logs is not None:
        lines = merge_runs(concat_rows(len(logs.items), [b",", *_base64(logs.items)]), logs.counts)
        has_logs = logs.counts > 0
        parts += masked(has_logs, b',"logs":['), _without_comma(lines), masked(has_logs, b"]")
    elif common.logs:
        parts.append(b',"logs":[%b]' % b",".join(b"".join(_base64(line)) for line in common.logs))
    parts += _encoded(table, "history")
    extra = columns.get("extra", encode_tagged(common.extra) if common.extra else b"{}")
    return concat_rows(
        rows,
        [
            *(b'{"fields":{', _without_comma(concat_rows(rows, parts)), b'},"extra":', extra),
            *(f',"at":["{role}",'.encode(), format_ints(scores), b'.0],"native":false}'),
        ],
    )


def _encoded(table: JobTable, name: str) -> Iterator[Datum]:
    """A field that is encoded already in a column, if it is there."""
    common = getattr(table.common, name)
    if name in table.columns or common:
        yield f',"{name}":'.encode()
        yield table.columns[name] if name in table.columns else encode_tagged(common)


def _without_comma(texts: BinaryViews) -> BinaryViews:
    """Values without their first byte, if they have one."""
    return BinaryViews(texts.data, texts.starts + (texts.sizes > 0), np.maximum(texts.sizes - 1, 0))


def _representation(value: float) -> bytes:
    return repr(value).encode()


def _base64(value: bytes | BinaryViews) -> Any:
    """Bytes as ``encode_tagged`` writes them."""
    if isinstance(value, BinaryViews):
        return b'{"b64":"', base64_encode(value), b'"}'
    return b'{"b64":"', base64_encode(BinaryViews.of([value]))[0], b'"}'


# The way back


def read_tables(ids: BinaryViews, jobs: AcceptedJobs, queue: str) -> Iterator[JobTable]:
    """The jobs of a queue of ascending order that are as a migration has left them."""
    ((key, members),) = jobs.indexes.items()
    role, fields = key.rpartition(b":")[2], jobs.records
    state = STATES[role.decode()]
    needed = {b"payload", b"name", b"published_at", Overflow.FIELD} | ALSO.get(state, frozenset())
    known = needed | NUMBERS.keys() | TEXTS.keys() | ({b"score"} if state in REMEMBERING else set())
    if not needed <= fields.keys() <= known:
        return
    from .overflow import OverflowColumns  # whose kernels only who reads needs

    overflow = OverflowColumns.of(fields[Overflow.FIELD])
    scores = np.where(np.abs(members.scores) <= EXACT, members.scores, 0.5)
    are_migrated = overflow.are_plain & (np.floor(scores) == scores) & overflow.roles.equals(role)
    scores = scores.astype(np.int64)
    columns, are_unchanged = _field_columns(fields, state, scores)
    columns["id"] = ids
    if state is State.WAITING:
        columns["position"] = members.ranks
    columns["extra"], families = overflow.extra()
    columns["logs"], are_lines = overflow.lines("logs")
    result, are_results = overflow.raw("result")
    are_migrated &= (overflow.scores == scores) & are_unchanged & are_lines & are_results
    # What overflows of some jobs and not of others makes tables of their own.
    has_priority, priority, is_null = overflow.has("priority"), overflow.whole("priority"), overflow.are_null("priority")
    if "rank" in columns:
        priority, has_priority = np.where(has_priority, priority, columns["rank"]), np.ones(len(jobs), bool)
    some: dict[str, tuple[Any, Column]] = {
        "priority": (has_priority & ~is_null, priority),
        **{name: (overflow.has(name), overflow.whole(name)) for name in ("updated_at", "max_attempts", "ttl")},
        "progress": (overflow.has("progress"), overflow.fractions("progress")),
        "result": (overflow.has("result"), result),
        **{name: (overflow.has(name), overflow.encoded(name)) for name in ("tags", "history")},
    }
    which = sum(has << bit for bit, (has, _) in enumerate(some.values()))
    for code in np.unique(which[are_migrated]).tolist():
        present = {name: column for bit, (name, (_, column)) in enumerate(some.items()) if code >> bit & 1}
        table = JobTable.of(are_migrated & (which == code), Job("", queue, "", state), columns | present, families, queue)
        if table is not None:
            yield table


def _field_columns(fields: Mapping[bytes, BinaryViews], state: State, scores: Any) -> tuple[dict[str, Column], Any]:
    """What the fields of records say, and of which jobs (bool) they are as a migration has left them."""
    columns: dict[str, Column] = {"name": fields[b"name"], "payload": fields[b"payload"]}
    columns |= {name: fields[field] for field, name in TEXTS.items() if field in fields}
    are_migrated = np.ones(len(scores), bool)
    for field, name in NUMBERS.items():
        if field in fields:
            columns[name], are_canonical = fields[field].parse_canonical_ints()
            are_migrated &= are_canonical
    match state:
        case State.WAITING:
            columns["rank"] = scores // RANK_STEP
        case State.SCHEDULED:
            are_migrated &= columns["due_at"] == scores
        case State.COMPLETED:
            columns["finished_at"] = scores
        case State.FAILED:
            columns["finished_at"] = scores
            are_migrated &= fields[b"reason"].equals(FAILED)
    if b"score" in fields:
        waiting_scores, are_canonical = fields[b"score"].parse_canonical_ints()
        # A score that no migration gives stays with its job, which no table holds.
        are_migrated &= are_canonical & (waiting_scores % RANK_STEP < IMPORTED) & (np.abs(waiting_scores) <= EXACT)
        columns["rank"] = waiting_scores // RANK_STEP
    return columns, are_migrated
