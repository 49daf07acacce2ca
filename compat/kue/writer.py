"""Writing kue: a Job to the Redis commands that store it as kue 0.10.3 and later would.

The writer replaces whatever the target holds of a job's id, and leaves it in exactly one state, so commands may be sent
again, for the same job or for a newer version of it. Wake-up tokens come last and for all jobs at once (``finish``): a
token that arrives before its job is spent on nothing. A job's commands belong in one transaction where workers are live.
Never writes what a kue worker could not read. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import error, warning
from ...schema.job import Job, State, replaced
from ...schema.rule import Finding
from ...schema.text import is_json, show, to_bytes, to_text
from ...schema.totals import Totals
from ..overflow import FIELD, without_displaced_trace
from ..scripts import script
from .keys import WORDS, keeps_id, layout, number_for, padded, valid_id
from .passthrough import NAME, Passthrough, with_overflow
from .record import Record, is_readable, lost, readable

_script = partial(script, __package__)

UNFINISHED = frozenset({State.WAITING, State.SCHEDULED, State.ACTIVE})


# What kue can't express


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that kue could not hold or run; warnings for what kue would keep in the record but not act on."""
    if not keeps_id(job, State.WAITING if job.state is State.ACTIVE else job.state):
        why = "kue runs jobs in the order of their numbers" if valid_id(job.id) else "kue's ids are numbers"
        yield warning(job, "KUE-W1", f"{why}: the job gets one, and keeps its own aside ({show(job.id, 60)})")
    if not job.queue or to_text(to_bytes(job.queue)) != job.queue:
        yield error(job, "KUE-W2", f"a kue job needs a queue whose name has UTF-8 bytes; this one is {show(job.queue, 60)!r}")
    if job.state not in WORDS:
        yield error(job, "KUE-W3", f"kue has no state for {job.state} jobs")
    if job.state in UNFINISHED and not is_json(job.payload):
        yield error(job, "KUE-W4", "the payload is not JSON: a kue worker would take the job and drop it")
    if job.state is State.SCHEDULED and job.due_at is None:
        yield warning(job, "KUE-W5", "a scheduled job without a due time: kue promotes it at once")
    idle = [name for name in ("tags", "depends_on", "unique_key", "history") if getattr(job, name)]
    if job.name != job.queue:
        idle.insert(0, "name")
    if idle:
        yield warning(job, "KUE-W6", f"kept in the record, but without effect in kue: {', '.join(idle)}")
    try:
        passthrough = Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "KUE-W7", str(reason))
        return
    unreadable = [show(name) for name, raw in passthrough.fields.items() if raw is not None and not is_readable(name, raw)]
    if unreadable:
        yield warning(job, "KUE-W8", f"left out, since a kue worker can't read it: {', '.join(unreadable)}")
    if _written_state(job, passthrough) is not job.state:
        yield warning(job, "KUE-W9", "no kue worker holds this active job: it is written as waiting")


def expressed(job: Job) -> Job:
    """The job without what the hash leaves out: fields that kue's workers can't read, and a trace that an application's field
    displaces."""
    job = without_displaced_trace(job, NAME, _own_field)
    if NAME not in job.extra or all(is_readable(name, raw) for name, raw in Passthrough.of(job).fields.items()):
        return job
    passthrough = Passthrough.of(job)
    fields = {name: raw for name, raw in passthrough.fields.items() if is_readable(name, raw)}
    own = evolve(passthrough, fields=fields).to_extra()
    others = {name: each for name, each in job.extra.items() if name != NAME}
    return replaced(job, extra={**others, NAME: own} if own else others)


def _own_field(job: Job) -> tuple[bytes | None, bytes | None]:
    passthrough = Passthrough.of(job)
    record = record_for(job, _written_state(job, passthrough), passthrough)
    return passthrough.fields.get(FIELD), record.fields.get(FIELD)


# What is stored


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    passthrough = Passthrough.of(job)
    state = _written_state(job, passthrough)
    record = passthrough.exact(job) if target.generated else record_for(job, state, passthrough)
    names = layout(target.prefix)
    number = number_for(job, state)
    key = names.key("record", id=number)
    member, other = (number, padded(number)) if passthrough.plain else (padded(number), number)
    own, elsewhere = _indexes(job.queue, state, target.prefix)
    commands: list[Command] = [("SADD", names.key("types"), to_bytes(job.queue))] if job.queue else []
    if not target.generated:
        commands.append(("DEL", key, names.key("log", id=number)))
        indexes = (*own.values(), *elsewhere)
        commands.append(("EVAL", _script("leave"), len(indexes), *indexes, len(own), member, other))
    commands.append(("HSET", key, *chain.from_iterable(record.fields.items())))
    if job.logs:
        commands.append(("RPUSH", names.key("log", id=number), *job.logs))
    for role, index in own.items():
        commands.append(("ZADD", index, record.scores[role], member))
    for code, count in passthrough.search.items():
        commands.append(_search_entry(names.key("search_object", id=number), to_bytes(code), count))
    for code, count in passthrough.search_words.items():
        commands.append(_search_entry(names.key("search_word", code=code), number.encode(), count))
    return commands


def record_for(job: Job, state: State, passthrough: Passthrough) -> Record:
    """The hash and the scores that the job gets."""
    written = job if state is job.state else replaced(job, state=state)
    record = readable(passthrough.record(written))
    as_of = record.fields.get(b"updated_at")
    return with_overflow(job, record, lost(job, record), as_of, has_own_id=keeps_id(job, state))


def _written_state(job: Job, passthrough: Passthrough) -> State:
    """An active job whose worker is not kue's would stay active for ever, so it waits."""
    held_elsewhere = job.state is State.ACTIVE and passthrough.state != WORDS[State.ACTIVE]
    return State.WAITING if held_elsewhere else job.state


@lru_cache(maxsize=1024)
def _indexes(queue: str, state: State, prefix: str) -> tuple[dict[str, bytes], tuple[bytes, ...]]:
    """The indexes of a job of this queue and state, by role; and all others in which it could stand."""
    names = layout(prefix)
    own: dict[str, bytes] = {"all": names.key("all")}
    elsewhere: list[bytes] = []
    for state_there, word in WORDS.items():
        there = {"by_state": names.key("by_state", state=word), "by_type": names.key("by_type", queue=queue, state=word)}
        if state_there is state:
            own |= there
        else:
            elsewhere += there.values()
    return own, tuple(elsewhere)


def _search_entry(key: bytes, member: bytes, count: float | None) -> Command:
    return ("SADD", key, member) if count is None else ("ZADD", key, count, member)


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs beside the number of jobs by queue."""
    KeyFamily.tally_written(job, totals)
    if valid_id(job.id):
        totals.maximum("highest id", int(job.id))


def finish(target: Target, written: Totals) -> list[Command]:
    """Raises the id counter over every written id, and gives each type as many wake-up tokens as jobs wait."""
    names = layout(target.prefix)
    commands: list[Command] = []
    highest = written.maxima.get(("highest id", ""))
    if highest is not None:
        commands.append(("EVAL", _script("raise_id"), 1, names.key("ids"), highest))
    for queue in written.labels("jobs"):
        if queue:
            waiting = names.key("by_type", queue=queue, state=WORDS[State.WAITING])
            commands.append(("EVAL", _script("match_tokens"), 2, waiting, names.key("tokens", queue=queue)))
    return commands
