"""The rules of bee keyspaces about what a record says, alone. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.memo import remember_last
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ... import lua_json
from ...numbers import parse_int
from ...overflow import FIELD, about_overflow
from ...rulebook import Rulebook
from ...unreadable import ASSUMED, about_unreadable
from ..history import fitting
from ..keys import STATES_OF
from ..record import is_readable
from ..view import View, view_of

NEEDED = {b"queue": "queue", b"data": "data", b"options": "options", b"status": "status"}
"""Without these bee can't do anything with a job."""

USUAL = {b"worker": "worker", b"submitted": "submitted", b"retries": "retries", b"history": "history", b"tags": "tags"}
"""Fields that bee always writes, and does without."""

SHAPES = (b"options", b"tags", b"history", b"result", b"dependants")
"""Fields that bee's scripts decode, beside the payload."""

COPIED = frozenset({b"data", b"result"})
"""Fields that are carried byte for byte, whatever they hold."""

READABLE = "What a record holds as JSON can be read; otherwise the job is not carried, unless it is only its result"
COMPLETE = "Every record names itself and has all fields; without one that bee needs, a job that has yet to run is not carried"
OPTIONS = "The options are numbers where bee counts with them; where one that other systems have is none, the job is not carried"
RETRIES = "A job was not tried more often than it may be; one that does not say how often is not carried to run"
ONCE = "A job ends once, in the hands of a worker; one that was completed and would run again is not carried"
KEYS_MAKE_SENSE = "Every key under the prefix is one of bee's, and has the right Redis type"

book: Rulebook[View] = Rulebook(view_of)


def is_junk(view: View) -> bool:
    """A record that bee 0.0.4 and 0.0.5 wrote under the name of a key instead of a job (BEE-30)."""
    return view.record is not None and not view.is_job and ":h:jobs:" in view.job_id


def _missing(view: View, names: Mapping[bytes, str]) -> list[str]:
    """Those of some fields that a record lacks; none in nearly all."""
    return [] if names.keys() <= view.fields.keys() else [text for name, text in names.items() if name not in view.fields]


@book.about_jobs("BEE-1", COMPLETE, Severity.ERROR, Harm.LOST, refuses=True, assumes="without those")
def is_complete_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    missing = _missing(view, NEEDED)
    if view.is_unfinished and missing:
        yield view.violation(f"no {', '.join(missing)}: bee can't run the job")


@book.about_jobs(
    "BEE-1",
    COMPLETE,
    Severity.ERROR,
    Harm.LOST,
    repair="add the missing fields with their usual values, where nothing of the job itself is missing",
)
def is_complete(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None or is_junk(view):
        return
    if not view.is_job:
        found = ", ".join(sorted(map(show, view.fields)))
        if b"data" in view.fields:
            yield view.violation(f"no jid, which its key tells: bee can't run the job ({found})")
        else:
            yield view.violation(f"a ghost: bee handed out a job whose record was gone, and its payload is lost ({found})")
        return
    if to_text(view.fields[b"jid"]) != view.job_id:
        yield view.violation(f"the record says that it is job {show(view.fields[b'jid'], 60)!r}")
    missing = _missing(view, NEEDED)
    if missing and not view.is_unfinished:
        yield view.violation(f"no {', '.join(missing)}: bee can't run the job")
    unusual = _missing(view, USUAL)
    if unusual and not missing:
        cause = ": its creation was cut short, or others wrote it" if "history" in unusual else ", as others write jobs"
        yield view.violation(f"no {', '.join(unusual)}{cause}", severity=Severity.WARNING)


@book.about_jobs(
    "BEE-2",
    READABLE,
    Severity.ERROR,
    Harm.POISON,
    refuses=True,
)
def has_payload_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"data")
    if view.is_unfinished and raw is not None and not lua_json.is_json(raw):
        yield view.violation(f"payload {show(raw, 40)!r} is not JSON: the pop that takes the job aborts")


@book.about_jobs("BEE-2", READABLE, Severity.ERROR, Harm.POISON, refuses=True, assumes=ASSUMED)
def has_readable_fields(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wrong = [name for name in unreadable(view) if name not in COPIED]
    if wrong:
        yield view.violation(_undecodable(view, wrong))


@book.about_jobs("BEE-2", READABLE, Severity.ERROR, Harm.POISON, repair="remove a result that can't be read")
def is_decodable(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wrong = [name for name in unreadable(view) if name in COPIED]
    if wrong:
        yield view.violation(_undecodable(view, wrong))


def _undecodable(view: View, wrong: list[bytes]) -> str:
    shown = ", ".join(f"{to_text(name)} {show(view.fields[name], 40)!r}" for name in wrong)
    return f"not what bee writes there: {shown}: every script that meets the job aborts"


@remember_last
def unreadable(view: View) -> list[bytes]:
    """The fields that bee's scripts can't decode; of a job that has yet to end, without its payload."""
    if not view.is_job:
        return []
    names = SHAPES if view.is_unfinished else (b"data", *SHAPES)
    return [name for name in names if not is_readable(name, view.fields.get(name))]


@book.about_jobs(
    "BEE-3",
    OPTIONS,
    Severity.ERROR,
    Harm.POISON,
    repair="set the options at fault to what bee takes where nobody says otherwise",
    refuses=True,
    assumes="without those",
)
def options_are_numbers_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and _decides(view):
        yield from _no_numbers(view)


@book.about_jobs(
    "BEE-3",
    OPTIONS,
    Severity.ERROR,
    Harm.POISON,
    repair="set the options at fault to what bee takes where nobody says otherwise",
)
def options_are_numbers(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and not _decides(view):
        yield from _no_numbers(view)


def _decides(view: View) -> bool:
    """Whether an option is wrong that a job has in other systems too: how often, how long and in which order it runs.

    One that a finished job lacks decides nothing any more.
    """
    wrong = _DECIDING.intersection(_wrong(view))
    return not wrong.isdisjoint(wrong if view.is_unfinished else view.options or ())


_DECIDING = frozenset({"retries", "priority", "timeout"})


@remember_last
def _wrong(view: View) -> list[str]:
    return [] if view.options is None else wrong_options(view.options, blocked=view.state is State.BLOCKED)


def _no_numbers(view: View) -> Iterator[Violation]:
    wrong = _wrong(view)
    if wrong:
        shown = ", ".join(f"{name} {show(str((view.options or {}).get(name, 'is missing')), 40)}" for name in wrong)
        yield view.violation(f"options: {shown}: the script that needs it aborts half way")


def wrong_options(options: Mapping[str, Any], *, blocked: bool) -> list[str]:
    """The options with which a script of bee would abort."""
    wrong = []
    ttl = lua_json.numeric(options.get("ttl"))
    if ttl is None or ttl != int(ttl):
        wrong.append("ttl")
    if lua_json.plain_number(options.get("retries")) is None:
        wrong.append("retries")
    if lua_json.numeric(options.get("retryDelay")) is None:
        wrong.append("retryDelay")
    if lua_json.plain_number(options.get("delay", None if blocked else 0)) is None:
        wrong.append("delay")
    if lua_json.numeric(options.get("priority", 0)) is None:
        wrong.append("priority")
    if lua_json.plain_number(options.get("timeout", 0)) is None:
        wrong.append("timeout")
    dependencies = options.get("dependencies", [])
    if not isinstance(dependencies, list) and dependencies != {}:
        wrong.append("dependencies")
    return wrong


@book.about_jobs(
    "BEE-4",
    "The status is one of bee's nine words; otherwise the job is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
)
def has_known_status(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and b"status" in view.fields and view.status not in STATES_OF:
        yield view.violation(f"status {show(view.status)!r} is none of bee's")


@book.about_jobs("BEE-30", KEYS_MAKE_SENSE, Severity.WARNING, Harm.LEAK)
def is_no_junk(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if is_junk(view):
        owner = view.job_id.rpartition(":h:jobs:")[2]
        yield view.violation(f"bee 0.0.4 and 0.0.5 put a history entry of job {show(owner, 60)} here; it never goes away")


@book.about_jobs("BEE-32", RETRIES, Severity.WARNING, Harm.COSMETIC, refuses=True, assumes="without a number of attempts")
def retries_are_told(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"retries")
    if view.is_unfinished and not view.history and raw is not None and parse_int(raw) is None:
        yield view.violation(f"retries {show(raw, 40)!r} is no count, and no history tells")


@book.about_jobs("BEE-32", RETRIES, Severity.INFO, Harm.COSMETIC)
def retries_are_allowed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"retries")
    if not view.is_job or raw is None:
        return
    made, allowed = parse_int(raw), lua_json.plain_number((view.options or {}).get("retries"))
    if made is None and view.is_unfinished and not view.history:
        return
    if made is None or made < 0:
        yield view.violation(f"retries {show(raw, 40)!r} is no count")
    elif allowed is not None and made > allowed:
        yield view.violation(f"{made} retries of {allowed}")


@book.about_jobs("BEE-33", "The last event of the history fits the status", Severity.WARNING, Harm.COSMETIC)
def history_fits(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wanted = fitting(view.status, view.state)
    # Of a job that is lost other rules speak; one without a history was written by others.
    if not wanted or not view.events or view.is_lost:
        return
    last = view.events[-1]
    if last not in wanted:
        yield view.violation(f"status {view.status}, but the history ends with {show(last, 40)!r}: its last step was cut short")
    elif "canceled" in view.events and view.status != "canceled":
        yield view.violation(f"status {view.status}, but it was canceled: it was brought back")


@book.about_jobs(
    "BEE-34",
    ONCE,
    Severity.ERROR,
    Harm.DUPLICATE,
    refuses=True,
)
def is_not_done(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_unfinished and "completed" in view.events:
        yield view.violation("it was completed, and then brought back: it will run a second time")


@book.about_jobs("BEE-34", ONCE, Severity.ERROR, Harm.DUPLICATE)
def ended_once(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.is_job or view.is_unfinished:
        return
    events = view.events
    if events.count("completed") > 1:
        yield view.violation("it was completed more than once: it has run twice")
    elif "completed" in events and view.status not in ("completed", "expired", "canceled"):
        yield view.violation(f"it was completed, but its status is {show(view.status, 40)!r}: it has run again")
    elif any(before == "queued" and after in ("completed", "failed") for before, after in pairwise(events)):
        yield view.violation(
            "it ended while it waited: a worker that had lost its lock finished it, and others may have run it too"
        )


about_overflow(book, "BEE-36", lambda view: view.fields.get(FIELD))


def _unreadable_time(view: View) -> dict[str, bytes]:
    raw = view.fields.get(b"submitted")
    return {"submitted": raw} if view.is_job and raw is not None and parse_int(raw) is None else {}


about_unreadable(book, "BEE-37", _unreadable_time)
