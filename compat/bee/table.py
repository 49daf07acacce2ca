"""Tables of accepted bee jobs: what ``reader.read`` makes of each, where bee itself would have written it in just this way.

Of such a job only the score in its queue need be remembered (passthrough.py). All others are read one by one.
tests/compat/bee/test_table.py holds the one against the other. Called by ``prefilter.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from attrs import frozen

from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.jobtable import JobTable, Members
from ...schema.columnar.tables_of_jobs import tables_of_cells
from ...schema.job import Job
from ...schema.memo import Memo
from ...schema.tagged_json import encode_tagged, is_encoded
from .. import lua_json
from ..numbers import int64_or_none, parse_int, score_to_int
from ..passthrough import plain_score
from .history import KNOWN, event_time
from .keys import EVENTS, OPTIONS_TTL, STATES_OF
from .passthrough import NAME
from .record import options_text, retries_made, tag_names
from .rules.record import NEEDED, USUAL

ENDINGS = {"completed": b"result", "failed": b"failedReason"}
"""The field that only a job with this status has."""

ATTRIBUTES = (
    *("id", "payload", "priority", "created_at", "updated_at", "due_at", "started_at", "finished_at", "attempts"),
    *("max_attempts", "result", "error", "worker", "tags", "unique_key", "ttl", "history", "extra", "position"),
)


def read_tables(
    ids: Sequence[bytes], records: Mapping[bytes, BinaryViews], queue: str, role: str, members: Members
) -> Iterator[JobTable]:
    """The jobs in a sorted set of a queue. ``members``: their entries there."""
    fields = {name: column.to_list() for name, column in records.items()}
    words = set(map(bytes.decode, fields[b"status"]))
    ending = ENDINGS.get(min(words)) if len(words) == 1 else None
    if fields.keys() - {b"jid", b"hash", ending, *NEEDED, *USUAL}:
        return iter(())
    absent = repeat(None)
    columns = (
        *(fields[name] for name in (b"status", b"data", b"options", b"retries", b"submitted", b"worker", b"tags", b"history")),
        *(fields.get(name, absent) for name in (b"hash", b"result", b"failedReason")),
    )
    cells = list(map(_cells, ids, repeat(role), members.scores.tolist(), members.ranks.tolist(), *columns))
    state = STATES_OF[min(words)][0]
    return tables_of_cells(Job("", queue, queue, state, rank=0), NAME, cells, ATTRIBUTES)


@frozen
class _Options:
    """What the options of a job say."""

    raw: bytes
    priority: int
    retries: int
    ttl: int | None
    is_usual: bool
    """They are those of a job without a delay, as bee writes them."""

    @classmethod
    def of(cls, raw: bytes) -> _Options | None:
        """None for options of which a table can't say all."""
        options = lua_json.as_object(raw) or {}
        priority, retries = lua_json.numeric(options.get("priority", 0)), lua_json.plain_number(options.get("retries"))
        timeout = lua_json.plain_number(options.get("timeout"))
        if type(priority) is not int or type(retries) is not int or retries < 0 or int64_or_none(retries + 1) is None:
            return None
        ttl = timeout if type(timeout) is int and timeout > 0 else None
        return cls(raw, priority, retries, ttl, options_text(priority, retries, None, None, ttl) == raw)

    def fit(self, delay: int | None) -> bool:
        """Whether bee writes these for a job with this delay."""
        if delay is None:
            return self.is_usual
        return options_text.__wrapped__(self.priority, self.retries, None, delay, self.ttl) == self.raw


def _tags(raw: bytes) -> tuple[bytes | None, bool]:
    """The tags as a table has them; and whether bee writes them like this."""
    tags = tag_names(raw)
    return encode_tagged(tags) if tags else None, (lua_json.dump_plain(list(tags)) or b"{}") == raw


_options_of, _tags_of = Memo(_Options.of), Memo(_tags)


def _cells(
    job_id: bytes,
    role: str,
    score: float,
    rank: int,
    status: bytes,
    payload: bytes,
    options_raw: bytes,
    retries: bytes,
    submitted: bytes,
    worker: bytes,
    tags_raw: bytes,
    history_raw: bytes,
    unique_key: bytes | None,
    result: bytes | None,
    error: bytes | None,
) -> tuple[Any, ...] | None:
    """The attributes of a job; None where a table can't say all of it."""
    word, created_at = status.decode(), parse_int(submitted)
    options, (tags, has_usual_tags) = _options_of[options_raw], _tags_of[tags_raw]
    history = lua_json.as_list(history_raw)
    if options is None or not history or not has_usual_tags or created_at is None or error == b"":
        return None
    encoded = history_raw
    if not is_encoded(history_raw, history):
        if lua_json.dump_plain(history) != history_raw:
            return None
        encoded = encode_tagged(history)
    updated_at = started_at = ended_at = None
    attempts = 0
    for event in history:
        name, updated_at = event["event"], event_time(event)
        if name == "popped":
            started_at = updated_at
            attempts += 1
        elif name in EVENTS:
            ended_at = updated_at
        if name not in KNOWN:
            return None
    extra = due_at = finished_at = position = delay = None
    if role == "queue":
        position = rank
        extra = encode_tagged({NAME: {"state": word, "scores": {role: plain_score(score)}}})
    elif role == "expires":
        finished_at = ended_at
        if finished_at is None or float(finished_at + OPTIONS_TTL) != score:
            return None
    else:
        due_at = score_to_int(score)
        if due_at is None or float(due_at) != score or (word == "retried") != (attempts > 0):
            return None
        if word == "new":
            delay = max(0, due_at - created_at)
    if (
        not options.fit(delay)
        or b"%d" % retries_made(attempts, word, options.retries) != retries
        or b"%d" % created_at != submitted
    ):
        return None
    return (
        *(job_id, payload, options.priority, created_at, updated_at, due_at, started_at, finished_at, attempts),
        *(options.retries + 1, result, error, worker or None, tags, unique_key, options.ttl, encoded, extra, position),
    )
