"""Sound kue jobs as a table: what reader.py makes of each, for many whose records have the same fields, type and state.

What ``record.canonical``, ``record.standard`` and ``Passthrough.of_difference`` say of a value is said of a column here, as far
as it concerns jobs that ``prefilter.py`` has accepted, and whose numbers are written as kue writes them: others are in no table.
tests/compat/kue/columnar/test_table.py holds the one against the other. Called by ``batch_prefilter.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....schema.columnar.binary_views import BinaryViews
from ....schema.columnar.build import Datum, base64_encode, concat_rows, masked
from ....schema.columnar.jobtable import AcceptedJobs, Column, JobTable, Members
from ....schema.job import Job, State, rank_of
from ....schema.tagged_json import MARKS
from ...numbers import number_text, parse_number
from ...overflow import FIELD
from ..keys import LARGEST_ID, WORDS
from ..passthrough import NAME
from ..prefilter import LATEST
from ..record import SHORTEST_LEASE, progress_of

ALWAYS_GIVEN_BACK = frozenset({b"type", b"data", b"state", b"workerId", b"result", b"error"})
"""Fields whose texts ``standard`` writes as they were, whatever they are."""
NUMBERS = {
    b"created_at": "created_at",
    b"updated_at": "updated_at",
    b"started_at": "started_at",
    b"attempts": "attempts",
    b"max_attempts": "max_attempts",
    b"ttl": "ttl",
}
"""Fields that hold whole numbers, with the attributes of Job that these are."""
TEXTS = {b"data": "payload", b"result": "result", b"error": "error", b"workerId": "worker"}
TIMES = frozenset({b"promote_at", b"delay", b"failed_at", b"duration"})
"""Fields that hold times, of which the state tells what they mean."""
OTHERS = TIMES | {b"priority", b"progress"}
"""Fields with a meaning, beside those above."""


def read_table(ids: BinaryViews, jobs: AcceptedJobs, queue: str, state: State, indexes: Mapping[str, Members]) -> JobTable | None:
    """The jobs of which columns can say all; None where there are none. ``indexes``: by their roles."""
    others = sorted(jobs.records.keys() - ALWAYS_GIVEN_BACK - NUMBERS.keys() - OTHERS)
    if FIELD in jobs.records or not all(map(_is_plain_name, others)):
        return None
    reading = _Reading(ids, jobs.records, state)
    for name in others:
        reading.keep(name)
    if state is State.WAITING:
        reading.columns["position"] = indexes["by_type"].ranks
        # The index decides when a job runs, whatever its hash says of its priority (KUE-12).
        reading.columns["rank"] = _ranks(indexes["by_type"].scores)
    if state is State.ACTIVE:
        reading.read_lease(indexes["by_state"].scores)
    if len(jobs.owned_lists.keys):
        reading.columns["logs"] = jobs.owned_lists.lines()
    return reading.table(queue)


class _Reading:
    """The columns of some jobs in one state, as far as their records tell them."""

    def __init__(self, ids: BinaryViews, fields: Mapping[bytes, BinaryViews], state: State) -> None:
        self._fields = fields
        self._state = state
        self._differing: dict[bytes, tuple[Any, BinaryViews | None]] = {}
        """By field: which jobs have it other than kue itself would have written it, and its texts, None if it is not there."""
        self._exact = {name: fields[name].parse_canonical_ints() for name in {*NUMBERS, *TIMES} & fields.keys()}
        self.rows = ids.parse_ints() <= LARGEST_ID
        """Of which jobs columns can say all (bool)."""
        self.columns: dict[str, Column] = {"id": ids}
        self.columns |= {attribute: fields[name] for name, attribute in TEXTS.items() if name in fields}
        for name, attribute in NUMBERS.items():
            if name in fields:
                self.columns[attribute] = self._number(name)
        if b"ttl" in fields:
            self.rows &= self.columns["ttl"] > 0
        if b"attempts" in fields:
            self.keep(b"attempts", self.columns["attempts"] == 0)
        self._read_priority()
        self._read_progress()
        self._read_due_time()
        self._read_end()

    def keep(self, name: bytes, unlike: Any = None) -> None:
        """Keeps a field of some jobs (bool), or of all of them, if it is there."""
        if unlike is not None:
            self._differing[name] = unlike, self._fields.get(name)
        elif name in self._fields:
            self._differing[name] = np.ones(len(self.rows), bool), self._fields[name]

    def read_lease(self, scores: Any) -> None:
        """Takes the moments at which leases of active jobs end from their scores in the index of that state."""
        if b"ttl" not in self._fields:  # there is none, and the score is one for which ``standard`` gives a reason
            self.rows &= scores == -np.abs(self.columns["priority"])
            return
        self.rows &= (scores >= SHORTEST_LEASE) & (scores <= LATEST) & (scores == np.floor(scores))
        self.columns["lease_expires_at"] = np.where(self.rows, scores, 0).astype(np.int64)

    def table(self, queue: str) -> JobTable | None:
        """The jobs; None where columns can say all of none."""
        common: dict[str, Any] = {"attempts": 0, "progress": 0.0}
        differing = {name: those for name, those in sorted(self._differing.items()) if those[0].any()}
        lasting = None
        if differing or self._state is State.ACTIVE:
            rows, fields, has_fields = len(self.rows), *_fields(differing, len(self.rows))
            lasting = concat_rows(rows, [masked(has_fields, b'{"fields":'), fields, masked(has_fields, b"}")])
            self.columns["extra"] = _extra(fields, has_fields, WORDS[self._state] if self._state is State.ACTIVE else None)
        job = Job("", queue, queue, self._state, **{name: value for name, value in common.items() if name not in self.columns})
        families = frozenset({NAME} if "extra" in self.columns else ())
        return JobTable.of(self.rows, job, self.columns, families, lasting=lasting if self._state is State.ACTIVE else None)

    def _number(self, name: bytes) -> Any:
        """A column of numbers, which must be written as kue does."""
        numbers, are_canonical = self._exact[name]
        self.rows &= are_canonical & (numbers >= 0)
        return numbers

    def _read_priority(self) -> None:
        codes, texts = self._fields[b"priority"].dictionary_encode()
        priority = _whole_priorities(texts)[codes]
        self.rows &= priority != _NOT_WHOLE
        self.columns["priority"] = priority
        self.columns["rank"] = _ranks(priority.astype(np.float64))

    def _read_progress(self) -> None:
        if b"progress" not in self._fields:
            return
        codes, texts = self._fields[b"progress"].dictionary_encode()
        found = list(map(progress_of, texts))
        percents = (b"%d" % round(value * 100) if value else None for value in found)
        unlike = [text != percent for text, percent in zip(texts, percents, strict=True)]
        self.rows &= np.array([value is not None for value in found], bool)[codes]
        self.columns["progress"] = np.array([0.0 if value is None else value for value in found], np.float64)[codes]
        self.keep(b"progress", np.array(unlike, bool)[codes])

    def _read_due_time(self) -> None:
        due_at = self._number(b"promote_at")
        wait = due_at - self.columns["created_at"]
        if self._state is not State.SCHEDULED:
            self.keep(b"promote_at", wait != 0)
            self.keep(b"delay")
            return
        self.columns["due_at"] = due_at
        if b"delay" not in self._fields:
            self.keep(b"delay", wait > 0)
            return
        delay, are_canonical = self._exact[b"delay"]
        self.keep(b"delay", ~are_canonical | (delay != wait) | (wait <= 0))

    def _read_end(self) -> None:
        started_at = self.columns.get("started_at")
        if self._state is State.FAILED:
            self.columns["finished_at"] = self._number(b"failed_at")
        else:
            self.keep(b"failed_at")
        if self._state is not State.COMPLETED or started_at is None:
            self.keep(b"duration")
        if self._state is State.COMPLETED:
            # Before 0.9 the start is unknown; the last touch of a completed job is the best upper bound of its end.
            self.columns["finished_at"] = self.columns["updated_at"]
            if started_at is not None and b"duration" in self._fields:
                self.columns["finished_at"] = started_at + self._number(b"duration")
            elif started_at is not None:
                self.keep(b"duration", np.ones(len(self.rows), bool))
            self.rows &= self.columns["finished_at"] <= LATEST


_NOT_WHOLE = -(2**63)


def _is_plain_name(name: bytes) -> bool:
    """Whether the name of a field stands in JSON as in Redis."""
    return name.isascii() and name.decode() not in MARKS


def _whole_priorities(texts: list[bytes]) -> Any:
    """The number behind each text, if it is whole and written as kue does; _NOT_WHOLE for others."""
    found = map(parse_number, texts)
    return np.array(
        [
            value if isinstance(value, int) and abs(value) <= LATEST and number_text(value) == text else _NOT_WHOLE
            for text, value in zip(texts, found, strict=True)
        ],
        np.int64,
    )


def _ranks(scores: Any) -> Any:
    """``rank_of`` of each."""
    different, which = np.unique(scores, return_inverse=True)
    return np.array(list(map(rank_of, different.tolist())), np.int64)[which]


def _fields(differing: Mapping[bytes, tuple[Any, BinaryViews | None]], jobs: int) -> tuple[BinaryViews, Any]:
    """The ``fields`` of each job's Passthrough, encoded; and which jobs (bool) have some. Else there is nothing."""
    parts: list[Datum] = []
    has_fields = np.zeros(jobs, bool)
    for name, (unlike, texts) in differing.items():
        parts.append(masked(has_fields & unlike, b","))
        head = f"{json.dumps(name.decode())}:".encode()
        if texts is None:
            parts.append(masked(unlike, head + b"null"))
        else:
            parts += masked(unlike, head + b'{"b64":"'), masked(unlike, base64_encode(texts)), masked(unlike, b'"}')
        has_fields = has_fields | unlike
    return concat_rows(jobs, [masked(has_fields, b"{"), *parts, masked(has_fields, b"}")]), has_fields


def _extra(fields: BinaryViews, has_fields: Any, word: str | None) -> BinaryViews:
    """What ``Passthrough.to_extra`` gives for each job, encoded. ``word``: the state that is kept, if it is."""
    if word is None:
        before = masked(has_fields, f'{{"{NAME}":{{"fields":'.encode())
        return concat_rows(len(has_fields), [before, fields, masked(has_fields, b"}}"), masked(~has_fields, b"{}")])
    head = f'{{"{NAME}":{{"state":"{word}"'.encode()
    return concat_rows(len(has_fields), [head, masked(has_fields, b',"fields":'), fields, b"}}"])
