"""Tables of jobs in native keyspaces: what writer.py writes of each, and what reader.py makes of it, if they have nothing rare.

What ``record.standard``, ``Aside.of`` and ``writer.write`` say of a job, and ``aside.job_of`` of its hash, is said of a column
here. tests/schema/native/test_table.py holds the one against the other. Called by ``family.py`` and ``voucher.py``.
"""

from __future__ import annotations

import math
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from ..family import Command, Target
from ..job import State
from ..jobtable import JobTable
from ..packed import pack
from ..text import to_bytes, to_text
from ..totals import Totals
from ..voucher import Columns, Members, SoundJobs
from .aside import Aside, plain, plain_extra
from .keys import QueueKeys
from .place import IMPORTED, SEQUENCES, sequence_of
from .record import FAILED, NAME, PLACE_OF, STATES

MOMENTS = {State.WAITING: None, State.SCHEDULED: "due_at", State.COMPLETED: "finished_at", State.FAILED: "finished_at"}
"""The states of jobs in tables, with the attribute that is their score; that of waiting ones is their turn."""
NEEDED = frozenset({"name", "priority", "rank", "payload"})
RARE = frozenset({"lease_expires_at", "tags", "depends_on", "unique_key", "history"})
"""What jobs in tables don't have."""
NUMBERS = {b"published_at": "created_at", b"due_at": "due_at", b"delivered_at": "started_at", b"deliveries": "attempts"}
TEXTS = {b"consumer": "worker", b"error": "error"}
"""Fields with the attributes that stand in them, if the job has such."""
ALSO: Mapping[State, frozenset[bytes]] = {State.SCHEDULED: frozenset({b"due_at"}), State.FAILED: frozenset({b"reason"})}
"""The fields that only records of these jobs have, and all of them."""
REMEMBERING = frozenset({State.SCHEDULED, State.FAILED})
"""Jobs whose records may remember their turn."""
DIGITS = 18
"""A number of so few is one of 64 bits."""
EXACT = 2**53
"""Scores are doubles: up to here each whole number is one of its own."""

Column = Sequence[Any]


def takes(table: JobTable) -> bool:
    """Whether none of the jobs has an obstacle."""
    same, extras = table.like, table.columns.get("extra", [table.like.extra])
    return bool(same.queue) and same.state in MOMENTS and all(table.columns["id"]) and not any(NAME in extra for extra in extras)


def write_table(table: JobTable, target: Target, written: Totals) -> Sequence[Sequence[Command]] | None:
    """See KeyFamily.write_table."""
    state, queue, rows, told = table.like.state, table.like.queue, len(table), table.told()
    place, moment = PLACE_OF[state], MOMENTS[state]
    is_plain = told.keys() >= NEEDED and RARE.isdisjoint(told) and moment in (None, *told)
    if not (target.fresh and is_plain) or target.generated or ("finished_at" in told and moment != "finished_at"):
        return None
    if any(None in column for column in told.values()):
        return None
    texts = {name: list(map(to_bytes, told[name])) for name in ("name", "worker", "error") if name in told}
    is_exact = all(list(map(to_text, raw)) == told[name] for name, raw in texts.items())
    if not is_exact or not all(math.isfinite(sum(told[name])) for name in ("priority", "progress") if name in told):
        return None
    turns = _turns(told)
    scores: Column = turns if moment is None else told[moment]
    if max(map(abs, chain(turns, scores))) > EXACT:
        return None
    fields: list[Iterable[bytes]] = [repeat(b"payload"), told["payload"], repeat(b"name"), texts["name"]]
    for field, name in NUMBERS.items():
        if name in told:
            fields += repeat(field), map(b"%d".__mod__, told[name])
    if place in ("scheduled", "dead"):
        fields += repeat(b"score"), map(b"%d".__mod__, turns)
    for field, name in TEXTS.items():
        if name in texts:
            fields += repeat(field), texts[name]
    if place == "dead":
        fields += repeat(b"reason"), repeat(FAILED)
    fields += repeat(Aside.FIELD), _asides(told, place, scores)
    keys, ids = QueueKeys(target.prefix, queue), list(map(to_bytes, told["id"]))
    records = zip(repeat("HSET"), map(keys.job_prefix.__add__, ids), *fields, strict=False)
    places = {"waiting": keys.waiting, "scheduled": keys.scheduled, "dead": keys.dead, "done": keys.done}
    entries = zip(repeat("ZADD"), repeat(places[place]), map(str, scores), ids, strict=False)
    written.count("jobs", queue, rows)
    written.count(f"jobs:{state}", queue, rows)
    if place != "done":
        written.maximum("highest sequence", max(map(sequence_of, turns)), queue)
    return list(zip(records, entries, strict=True))


def _turns(told: Mapping[str, Column]) -> list[int]:
    """Their scores in waiting, as ``record.turn_of`` has it."""
    ranks: Iterable[int] = told["rank"]
    sequences = (min(position + 1, IMPORTED - 1) for position in told["position"]) if "position" in told else repeat(0)
    return [rank * SEQUENCES + sequence for rank, sequence in zip(ranks, sequences, strict=False)]


def _asides(told: Mapping[str, Column], place: str, scores: Column) -> Iterable[bytes]:
    """What ``Aside.pack`` gives for each job."""
    # In waiting, a rank is the priority that is read there; a job that is done has left it.
    ranks: Iterable[int | None] = repeat(None) if place == "done" else told["rank"]
    priorities = zip(told["priority"], ranks, strict=False)
    columns: list[Iterable[str]] = [["" if priority == rank else f'"priority":{priority!r}' for priority, rank in priorities]]
    for name in ("updated_at", "max_attempts", "progress"):
        if name in told:
            columns.append(map(f'"{name}":%r'.__mod__, told[name]))
    if "result" in told:
        columns.append(map('"result":%s'.__mod__, map(_base64, told["result"])))
    if "ttl" in told:
        columns.append(map('"ttl":%r'.__mod__, told["ttl"]))
    if "logs" in told:
        columns.append(f'"logs":[{",".join(map(_base64, lines))}]' if lines else "" for lines in told["logs"])
    extras = ("{}" if not extra else pack(extra).decode() for extra in told["extra"]) if "extra" in told else repeat("{}")
    lost = map(",".join, map(_present, zip(*columns, strict=True)))
    form = f'{{"fields":{{%s}},"extra":%s,"at":["{place}",%r],"native":false}}'
    return [text.encode() for text in map(form.__mod__, zip(lost, extras, map(float, scores), strict=False))]


def _present(texts: tuple[str, ...]) -> Iterable[str]:
    return filter(None, texts)


def _base64(raw: bytes) -> str:
    return f'{{"b64":"{b2a_base64(raw, newline=False).decode()}"}}'


# The way back


def read_table(ids: Sequence[str], jobs: SoundJobs, queue: str) -> JobTable | None:
    """The jobs of a queue of ascending order, if each stands as a migration has left it; None where one may not."""
    ((key, members),) = jobs.places.items()
    try:
        return _read(ids, jobs.records, queue, key.rpartition(b":")[2].decode(), members)
    except _Unlike:
        return None


def _read(ids: Sequence[str], fields: Columns, queue: str, place: str, members: Members) -> JobTable:
    """As above. Raises _Unlike where something of a job is not as it was left."""
    state = STATES[place]
    needed = {b"payload", b"name", b"published_at", Aside.FIELD} | ALSO.get(state, frozenset())
    remembered = fields.get(b"score") if state in REMEMBERING else None
    known = needed | NUMBERS.keys() | TEXTS.keys() | (set() if remembered is None else {b"score"})
    _expect(needed <= fields.keys() <= known)
    asides = list(map(plain, fields[Aside.FIELD]))
    _expect(None not in asides and all(map(float.is_integer, members.scores)))
    priority, updated_at, max_attempts, progress, result, ttl, logs, extra, places, moments = zip(
        *filter(None, asides), strict=True
    )
    scores = list(map(int, members.scores))
    _expect(set(places) == {place.encode()} and list(map(float, moments)) == scores and max(map(abs, scores)) <= EXACT)
    columns: dict[str, Column] = {"id": ids, "name": list(map(to_text, fields[b"name"])), "payload": fields[b"payload"]}
    columns |= {name: _exact(fields[field]) for field, name in NUMBERS.items() if field in fields}
    columns |= {name: list(map(to_text, fields[field])) for field, name in TEXTS.items() if field in fields}
    match state:
        case State.WAITING:
            columns["position"] = members.ranks
        case State.SCHEDULED:
            _expect(columns["due_at"] == scores)
        case State.FAILED:
            _expect(set(fields[b"reason"]) == {FAILED})
    if MOMENTS[state] == "finished_at":
        columns["finished_at"] = scores
    ranks: Column = [None] * len(ids)
    if state is State.WAITING:
        columns["rank"] = ranks = [turn // SEQUENCES for turn in scores]
    elif remembered is not None:
        turns = _exact(remembered)
        # A turn that no migration gives is kept with its job.
        _expect(max(turn % SEQUENCES for turn in turns) < IMPORTED and max(map(abs, turns)) <= EXACT)
        columns["rank"] = ranks = [turn // SEQUENCES for turn in turns]
    columns["priority"] = [rank if text is None else int(text) for rank, text in zip(ranks, priority, strict=True)]
    aside: dict[str, tuple[Sequence[bytes | None], Callable[[bytes], Any]]] = {
        "updated_at": (updated_at, int),
        "max_attempts": (max_attempts, int),
        "progress": (progress, float),
        "result": (result, a2b_base64),
        "ttl": (ttl, int),
        "logs": (logs, _lines),
        "extra": (extra, plain_extra),
    }
    for name, (texts, convert) in aside.items():
        if texts.count(None) < len(texts):
            nothing = () if name == "logs" else None
            columns[name] = [nothing if text is None else convert(text) for text in texts]
    return JobTable.of({"queue": queue, "state": state}, columns, queue)


class _Unlike(Exception):
    """A job is not as a migration has left it."""


def _expect(as_it_was_left: bool) -> None:
    if not as_it_was_left:
        raise _Unlike


def _exact(texts: Sequence[bytes]) -> list[int]:
    """Whole numbers that are written as they would be again. Raises _Unlike for others."""
    _expect(max(map(len, texts)) <= DIGITS)
    try:
        numbers = list(map(int, texts))
    except ValueError:
        raise _Unlike from None
    _expect(list(map(b"%d".__mod__, numbers)) == texts)
    return numbers


def _lines(packed: bytes) -> tuple[bytes, ...]:
    """The lines of a packed list of bytes."""
    return tuple(map(a2b_base64, packed.split(b'"')[3::4]))
