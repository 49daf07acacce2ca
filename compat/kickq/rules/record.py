"""The rules of kickq keyspaces about what a job's record says, alone and against the clock.

Where the state word is unknown (KICKQ-3) or the document can't be used (KICKQ-2), the rules that need it say nothing. Collected
by the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show, span, to_text
from ...numbers import number_text
from ...overflow import FIELD, about_overflow
from ...rulebook import Rulebook
from ...unreadable import about_unreadable
from ..keys import FINISHED, SCHEDULED_WORDS, as_sent
from ..passthrough import decoded, time_role
from ..record import RUN_STATES, as_integer, as_number, truthy
from ..view import View, view_of

SLACK_MS = 2000
"""What a run may take longer than its limit before its worker must be dead."""

RUNS = "The runs are a list, numbered from 1, and each has ended; without a list, the job is not carried"

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "KICKQ-1",
    "Every key under the namespace is one of kickq's, of the right Redis type, and stays",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the record (PERSIST)",
)
def does_not_expire(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.fact.ttl_ms is not None:
        yield view.violation(f"the record vanishes in {span(view.fact.ttl_ms)}")


@book.about_jobs(
    "KICKQ-2",
    "A job's document is whole; without it, the job is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
)
def has_document_to_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.state not in FINISHED and not view.readable:
        yield view.violation(f"{_what_is_wrong(view)}: nobody can run the job right")


@book.about_jobs(
    "KICKQ-2",
    "A job's document is whole; without it, the job is not carried",
    Severity.WARNING,
    Harm.LOST,
    refuses=True,
    assumes="as its state says, with what can be read of it",
)
def has_document(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.state in FINISHED and not view.readable:
        yield view.violation(_what_is_wrong(view))


def _what_is_wrong(view: View) -> str:
    item, text = view.stored.item, view.stored.text
    if not item:
        return f"itemData is no document: {show(text, 40)!r}" if text else "itemData is missing"
    if "id" not in item or item["id"].value != view.job_id:
        found = "no id" if "id" not in item else f"the id {show(item['id'].text, 40)}"
        return f"itemData has {found}"
    if "name" not in item and len(item) == 1:
        return "itemData was cut down to the id: payload and options are lost"
    return "itemData has no name" if "name" not in item else f"itemData has the name {show(item['name'].text, 40)}"


@book.about_jobs(
    "KICKQ-3",
    "The state is one of kickq's eight words; otherwise the job is not carried",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="write the state whose set has the job; where none has, let the job wait (--requeue)",
    refuses=True,
)
def has_known_state(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.state is State.UNKNOWN:
        yield view.violation(f"state {show(view.word, 40)!r} is not kickq's" if b"state" in view.stored.fields else "no state")


@book.about_jobs(
    "KICKQ-18",
    "A job in processing has a live worker (a suspicion: it may have waited long before it was taken)",
    Severity.WARNING,
    Harm.LOST,
    repair="if no worker has it, push the job to its queue (choose it with --older-than); its work may be done already",
)
def has_live_worker(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.state is not State.ACTIVE or not view.readable:
        return
    limit = as_number(view.stored.value("processTimeout"))
    known = [as_integer(view.stored.value(name)) for name in ("updateTime", "scheduledFor")]
    since = max((time for time in known if time is not None), default=None)
    if since is None:
        yield view.violation("processing for an unknown time; should its worker be dead, it stays so for ever")
    elif keyspace.now_ms - since > (limit or 0) + SLACK_MS:
        detail = f"processing, last written {ago(since, keyspace.now_ms)}, where a run may take {(limit or 0) / 1000:g} s"
        yield view.violation(f"{detail}; if its worker is dead, it stays so for ever")


@book.about_jobs(
    "KICKQ-19",
    "The state of the record and of the document fit",
    Severity.ERROR,
    Harm.LOST,
    repair="none is safe: what the last run said is lost",
)
def states_fit(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.known or not view.readable:
        return
    before = view.stored.value("state")
    fitting: tuple[str, ...] = (view.word,)
    if view.word == "queued":
        fitting = SCHEDULED_WORDS
    elif view.state is State.ACTIVE:
        fitting = ("new", *SCHEDULED_WORDS)
    if before not in fitting:
        found = show(view.stored.item["state"].text, 40) if "state" in view.stored.item else "none"
        yield view.violation(f"{view.word}, but the document was last saved in state {found}: the run's end is half written")


@book.about_jobs(
    "KICKQ-20",
    "Whether a job is complete fits its state and its last run",
    Severity.ERROR,
    Harm.COSMETIC,
    repair="none is safe: how the last run ended is lost",
)
def end_fits(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.known or not view.readable:
        return
    stored, runs = view.stored, view.stored.runs or []
    complete, ended_at = stored.value("complete") is True, as_number(stored.value("finishTime"))
    last = runs[-1].get("state") if runs and isinstance(runs[-1], dict) else None
    wrong = []
    if view.state in FINISHED:
        if not complete or ended_at is None:
            wrong.append("not marked as complete")
        if (stored.value("success") is True) != (view.state is State.COMPLETED):
            wrong.append("success says otherwise")
        if _meaning(last) is not view.state:
            wrong.append("its last run ended otherwise" if runs else "no run is recorded")
    else:
        if complete or stored.value("finishTime") is not None:
            wrong.append("marked as complete")
        expected = {"retry": "fail", "ghost": "ghost"}.get(str(stored.value("state")))
        if expected is not None and stored.value("state") == view.word and last != expected:
            wrong.append("its last run ended otherwise" if runs else "no run is recorded")
    if wrong:
        # kickq up to 0.0.14 leaves some jobs marked as complete that it will run again.
        severity = Severity.WARNING if wrong == ["marked as complete"] else None
        yield view.violation(f"{view.word}, but {', '.join(wrong)}", severity=severity)


def _meaning(run_state: Any) -> State | None:
    """The final state that a job has after this run was its last."""
    return RUN_STATES.get(run_state) if isinstance(run_state, str) else None


@book.about_jobs(
    "KICKQ-22",
    RUNS,
    Severity.ERROR,
    Harm.LOST,
    repair="replace null by an empty list",
    refuses=True,
    assumes="without its runs",
)
def has_runs(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.readable and view.stored.runs is None:
        found = show(view.stored.item["runs"].text, 40)
        yield view.violation(f"the runs are {found}: the worker that takes the job never calls its consumer")


@book.about_jobs("KICKQ-22", RUNS, Severity.WARNING, Harm.COSMETIC)
def has_valid_runs(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.readable:
        return
    for number, run in enumerate(view.stored.runs or (), 1):
        if not isinstance(run, dict) or _meaning(run.get("state")) is None or run.get("count") != number:
            yield view.violation(f"run {number} has another number, or did not end in success, fail or ghost")
            return


@book.about_jobs(
    "KICKQ-25",
    "The fields of the record repeat what the document says",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="write the document's values into the fields",
)
def fields_repeat_document(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fact is not None and view.readable:
        wrong = [name for name, text in mirrors(view).items() if view.stored.fields.get(name) != text]
        if wrong:
            yield view.violation(f"the document says otherwise than {', '.join(map(to_text, wrong))}")


def mirrors(view: View) -> dict[bytes, bytes]:
    """What the hash fields must say that repeat a member of the document."""
    said: dict[bytes, bytes] = {}
    for name in ("id", "name", "createTime", "updateTime"):
        value = view.stored.value(name)
        number = as_number(value)
        if isinstance(value, str):
            said[name.encode()] = as_sent(value).encode("utf-8")
        elif number is not None:
            said[name.encode()] = number_text(number)
    return said


@book.about_jobs(
    "KICKQ-26",
    "A job's time in the schedule is the one in its document",
    Severity.WARNING,
    Harm.LATE,
    repair="write the time of the schedule into the document",
)
def time_fits_schedule(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    role = time_role(view.state)
    if role is None or role not in view.times or not view.readable:
        return
    fact, said = view.times[role], as_number(view.stored.value("scheduledFor"))
    if said is None or fact.score != float(said):
        written = "none" if said is None else f"{said}"
        yield view.violation(f"the document has the time {written}, the schedule {fact.score:.17g}", key=fact.key)


@book.about_jobs(
    "KICKQ-27",
    "How often and how long a job may run are numbers; otherwise it is not carried",
    Severity.ERROR,
    Harm.LOST,
    refuses=True,
    record_only=True,
    assumes="without those limits",
)
def has_limits(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.readable:
        return
    item, value = view.stored.item, view.stored.value
    counts = [name for switch, name in (("retry", "retryTimes"), ("ghostRetry", "ghostTimes")) if truthy(value(switch))]
    wrong = [name for name in counts if as_integer(value(name)) is None]
    # To kickq, null is a limit of 1 ms.
    wrong += ["processTimeout"] if value("processTimeout") is not None and as_number(value("processTimeout")) is None else []
    if wrong:
        yield view.violation(f"no number: {', '.join(f'{name} {show(item[name].text, 40)}' for name in wrong)}")


about_overflow(book, "KICKQ-28", lambda view: view.stored.fields.get(FIELD), decoded)


def _unreadable_times(view: View) -> dict[str, bytes]:
    """Times of the document for which nothing else stands."""
    if not view.readable:
        return {}
    item, value, time = view.stored.item, view.stored.value, view.stored.time
    wrong = [name for name in ("createTime", "updateTime") if value(name) is not None and time(name) is None]
    wrong += ["finishTime"] if value("finishTime") is not None and as_integer(value("finishTime")) is None else []
    return {name: item[name].text for name in wrong}


about_unreadable(book, "KICKQ-29", _unreadable_times)
