"""The rules of qless keyspaces about what a job's hash and history say.

Collected by the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ... import lua_json
from ...numbers import parse_int, parse_number
from ...overflow import FIELD, about_overflow
from ...rulebook import Rulebook
from ...unreadable import ASSUMED
from .. import history
from ..passthrough import decoded
from ..record import RUNNING, milliseconds
from ..view import View, view_of

NEEDED = (b"klass", b"data", b"priority", b"tags", b"state", b"queue", b"retries", b"remaining")
NEEDED_AT_FIRST = (b"data", b"priority", b"tags", b"state", b"queue")
"""What the hash of every job holds, beside its id; of the first weeks."""

RECORD = "Every job hash has an id, a known state and all fields; otherwise a job that has yet to run is not carried"
NUMBERS = "Priority, retries and times are numbers; otherwise the job is not carried"
READABLE = "Data, tags, failure, throttles and history are JSON of the right form; otherwise the job is not carried"

TO_RUN = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED, State.ACTIVE})

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "QLESS-2",
    RECORD,
    Severity.ERROR,
    Harm.LOST,
    repair="write the jid or the state that other keys tell; delete the stub of an evicted job, and take it out of the queues",
    refuses=True,
)
def has_id_and_state(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None:
        return
    if not view.is_job:
        found = ", ".join(sorted(map(show, list(view.fields)[:10])))
        yield view.violation(f"a hash without jid, as is left of a job that was evicted while scheduled ({found})")
    elif view.state is State.UNKNOWN:
        yield view.violation(f"state {show(view.word, 40)!r} is none of qless's")


@book.about_jobs("QLESS-2", RECORD, Severity.ERROR, Harm.POISON, refuses=True, assumes="without those")
def has_fields_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state in TO_RUN:
        yield from _lacking(view)


@book.about_jobs("QLESS-2", RECORD, Severity.ERROR, Harm.POISON)
def has_fields(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state not in TO_RUN:
        yield from _lacking(view)


def _lacking(view: View) -> Iterator[Violation]:
    lacking = [name for name in (NEEDED_AT_FIRST if view.is_early else NEEDED) if name not in view.fields]
    if lacking:
        yield view.violation(f"the hash lacks {to_text(b', '.join(lacking))}: whoever pops the job fails")


@book.about_jobs(
    "QLESS-15",
    "A job and its history exist together, and the history can be read",
    Severity.WARNING,
    Harm.LEAK,
    repair="delete a history without a job",
)
def has_history(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None and view.history_facts:
        yield view.violation("a history of a job that does not exist", key=view.history_facts[0].key)
    elif view.is_job and not view.history_facts and b"history" not in view.fields:
        yield view.violation("a job without a history")
    elif view.stored.history is not None:
        malformed = sum(event is None for event in history.read_list(view.stored.history))
        if malformed:
            yield view.violation(f"{malformed} entries of the history are no events", key=view.history_facts[0].key)


@book.about_jobs(
    "QLESS-24",
    NUMBERS,
    Severity.ERROR,
    Harm.POISON,
    repair="write the next whole number; priority 0 for one that is none",
    refuses=True,
    assumes="without those",
)
def has_numbers_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and view.state in TO_RUN:
        yield from _no_numbers(view, _counts(view))


@book.about_jobs(
    "QLESS-24",
    NUMBERS,
    Severity.ERROR,
    Harm.POISON,
    repair="write the next whole number; priority 0 for one that is none",
    refuses=True,
    assumes=ASSUMED,
)
def has_numbers(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job:
        wrong = [] if view.state in TO_RUN else _counts(view)
        wrong += [name for name in (b"expires", b"time") if view.fields.get(name) and parse_number(view.fields.get(name)) is None]
        yield from _no_numbers(view, wrong)


def _counts(view: View) -> list[bytes]:
    """The fields that decide when and how often the job runs, and are no numbers."""
    parsers: dict[bytes, Callable[[bytes], float | None]] = {b"retries": parse_int, b"remaining": parse_int}
    parsers[b"priority"] = parse_number
    if view.word == "depends":
        parsers[b"scheduled"] = parse_number
    return [name for name, parse in parsers.items() if name in view.fields and parse(view.fields[name]) is None]


def _no_numbers(view: View, wrong: list[bytes]) -> Iterator[Violation]:
    if wrong:
        texts = ", ".join(f"{to_text(name)} {show(view.fields[name], 40)!r}" for name in wrong)
        yield view.violation(f"{texts}: the scripts fail on it when they next count or sort the job")


@book.about_jobs(
    "QLESS-25",
    READABLE,
    Severity.ERROR,
    Harm.POISON,
    refuses=True,
)
def has_data(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"data")
    if view.is_job and view.state in TO_RUN and raw is not None and not lua_json.is_json(raw, loose=True):
        yield view.violation(f"data {show(raw, 40)!r} is not JSON: the worker that pops the job fails")


@book.about_jobs("QLESS-25", READABLE, Severity.ERROR, Harm.POISON)
def had_data(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"data")
    if view.is_job and view.state not in TO_RUN and raw is not None and not lua_json.is_json(raw, loose=True):
        yield view.violation(f"data {show(raw, 40)!r} is not JSON")


@book.about_jobs(
    "QLESS-25",
    READABLE,
    Severity.ERROR,
    Harm.POISON,
    repair="write an empty list for tags, and remove a failure that can't be read",
    refuses=True,
    assumes=ASSUMED,
)
def has_readable_fields(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job:
        return
    stored = view.stored
    failed_at = (stored.failure or {}).get("when", 0)
    failure = stored.failure if milliseconds(failed_at) is not None else None
    read = {b"tags": stored.tags, b"failure": failure, b"throttles": stored.throttles}
    wrong = [name for name, value in read.items() if value is None]
    if b"history" in view.fields and not history.read_field(view.fields[b"history"])[1]:
        wrong.append(b"history")
    if wrong:
        texts = ", ".join(f"{to_text(name)} {show(view.fields[name], 40)!r}" for name in wrong)
        yield view.violation(f"not JSON of the right form: {texts}")


@book.about_jobs(
    "QLESS-31",
    "Marks of an earlier state are gone with it",
    Severity.WARNING,
    Harm.DUPLICATE,
    repair="remove the field",
)
def has_no_leftovers(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job:
        return
    if b"grace" in view.fields and view.word not in RUNNING:
        yield view.violation(f"grace on a {show(view.word, 40)} job: its next lost lock is handed on without warning")
    if b"scheduled" in view.fields and view.word != "depends":
        yield view.violation(f"scheduled on a {show(view.word, 40)} job: a later release goes to an old due time")


about_overflow(book, "QLESS-38", lambda view: view.fields.get(FIELD), decoded)
