"""Sound kue jobs at a glance: those for which no rule in this folder can find anything, and what they look like.

Careful in one direction only: what is unusual here (an active job, an old member form, a number in an odd notation) is left
to the rules, and may well be sound. tests/compat/kue/test_voucher.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import State
from ...schema.text import is_json, to_text
from ...schema.totals import Totals
from ...schema.voucher import Home, Member, Place, Sound, Standing, Voucher
from ..numbers import number
from .keys import BORROWED, EARLIEST_TIME, WORDS, Form, is_borrowed, layout
from .record import INDEXES, state_of
from .record_rules import LATE_MS

CALM = frozenset({State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED})
"""Of an active job keys alone never tell whether all is well."""

MOST_HOMES = 100_000
ID_DIGITS = 16
MOST_DIGITS = 18
"""Of a time or a counter."""
LATEST = 2**53
"""Numbers up to here are the same in Python, JavaScript, a 64-bit column and a double."""


class KueVoucher(Voucher):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms)."""

    def __init__(self, prefix: str, now_ms: int) -> None:
        self._layout = layout(prefix)
        self._head = self._layout.key("record", id="")
        self._late = now_ms - LATE_MS
        self._homes: dict[tuple[bytes | None, bytes | None], Home | None] = {}
        self._indexes: dict[bytes, tuple[str, str | None, str | None]] = {}

    def record(self, key: bytes) -> int | None:
        digits = key[len(self._head) :]
        if not key.startswith(self._head) or not digits.isdigit() or len(digits) > ID_DIGITS:
            return None
        return None if digits[:1] == b"0" else int(digits)

    def number(self, job_id: str, scope: str) -> int:
        return int(job_id)

    def vouch(self, fields: Mapping[bytes, bytes]) -> Sound | None:
        get = fields.get
        home = self._home(get(b"type"), get(b"state"))
        score = _priority(get(b"priority", b""))
        if home is None or score is None or b"data" not in fields:
            return None
        for name in _JSON:
            text = get(name)
            if text is not None and not is_json(text):
                return None
        numbers = [get(name, b"") for name in _TIMES]
        numbers += get(b"max_attempts", b""), get(b"attempts", b"0")
        if not b"".join(numbers).isdigit() or not all(numbers) or max(map(len, numbers)) > MOST_DIGITS:
            return None
        created_at, updated_at, due_at, allowed, made = map(int, numbers)
        if not created_at <= updated_at <= LATEST or not created_at <= due_at <= LATEST or not made <= allowed or allowed < 1:
            return None
        by_state = score
        match home.state:
            case State.SCHEDULED:
                by_state = float(due_at)
                if due_at < self._late:
                    return None
            case State.COMPLETED:
                if made < 1 or get(b"removeOnComplete") or get(b"progress") != b"100":
                    return None
            case State.FAILED:
                if made != allowed or b"failed_at" not in fields or b"error" not in fields:
                    return None
        return Sound(home, (score, by_state, score), created_at)

    def standing(self, entry: Entry) -> Standing | None:
        if entry.redis_type != "zset" or entry.ttl_ms is not None:
            return None
        match = self._layout.parse(entry.key, entry.redis_type)
        if match is None or match.role not in INDEXES:
            return None
        return Standing(Place(entry.key), [_padded_number(member) for member, _ in entry.value])

    def attached(self, entry: Entry) -> int | None:
        if entry.redis_type != "list" or entry.ttl_ms is not None or not entry.key.startswith(self._head):
            return None
        match = self._layout.parse(entry.key, entry.redis_type)
        return int(match.fields["id"]) if match is not None and match.role == "log" else None

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], attached: Iterable[Entry]) -> Subject:
        job_id = key[len(self._head) :].decode()
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            role, queue, word = self._index(index)
            facts.append(Fact(FactKind.PLACE, role, index, "zset", job_id, "", queue, word, member, score, rank))
        for entry in attached:
            facts.append(Fact(FactKind.NOTE, "log", entry.key, "list", job_id, values=tuple(entry.value), index=entry.offset))
        return Subject(job_id, "", tuple(facts))

    def tally_vouched(self, keys: Sequence[bytes], totals: Totals) -> None:
        numbers = (int(key[len(self._head) :]) for key in keys)
        own = [each for each in numbers if each < BORROWED or not is_borrowed(str(each))]
        if own:
            totals.maximum("highest id", max(own))
        totals.count("trace", "0.9", len(keys))

    def tally_standing(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        told = self._layout.parse(entry.key, entry.redis_type)
        if not scores or told is None:
            return
        totals.count("members", Form.PADDED, len(scores))
        match told.role, told.fields.get("state"):
            case "by_type", "inactive":
                totals.count("waiting", told.fields["queue"], len(scores))
            case "by_state", "delayed":
                times = sum(score > EARLIEST_TIME for score in scores)
                if times:
                    totals.count("trace", "0.9", times)

    def is_settled(self, queue: str, totals: Totals) -> bool:
        return queue in totals.names.get("types", ())

    def _index(self, key: bytes) -> tuple[str, str | None, str | None]:
        """The role of an index, and the type and state of which its key speaks."""
        told = self._indexes.get(key)
        if told is None:
            match = self._layout.parse(key, "zset")
            if match is None:
                raise ValueError(f"{key!r} is no index")
            if len(self._indexes) >= MOST_HOMES:
                self._indexes.clear()
            told = self._indexes[key] = (match.role, match.fields.get("queue"), match.fields.get("state"))
        return told

    def _home(self, queue: bytes | None, word: bytes | None) -> Home | None:
        """The home of all jobs of a type in a state; None where a rule must look."""
        known = self._homes
        if (queue, word) not in known:
            if len(known) >= MOST_HOMES:
                known.clear()
            known[queue, word] = self._new_home(queue, word)
        return known[queue, word]

    def _new_home(self, queue: bytes | None, word: bytes | None) -> Home | None:
        state = state_of({name: value for name, value in ((b"type", queue), (b"state", word)) if value is not None})
        if state not in CALM or not queue:
            return None
        name = to_text(queue)
        keys = (self._layout.key(role, queue=name, state=WORDS[state]) for role in INDEXES)
        return Home(name, state, tuple(map(Place, keys)))


_JSON = (b"data", b"result", b"progress_data", b"backoff")
_TIMES = (b"created_at", b"updated_at", b"promote_at")


@lru_cache(maxsize=1024)
def _priority(raw: bytes) -> float | None:
    value = number(raw)
    return None if value is None else float(value)


def _padded_number(member: bytes) -> int | None:
    """The job that a member in today's form names."""
    digits = member[3:]
    if not digits.isdigit() or len(digits) > ID_DIGITS:
        return None
    found = int(digits)
    return found if member == b"%02d|%d" % (len(digits), found) else None
