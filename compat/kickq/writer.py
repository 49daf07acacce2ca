"""Writing kickq: a Job to the Redis commands that store it as kickq 1.x would, in the order that closes kickq's own windows.

The writer replaces whatever the target holds of a job's id, and leaves it in exactly one state, so commands may be sent again,
for the same job or for a newer version of it. A list knows no place but its two ends, and jobs come in any order: those that wait
are staged, by queue, and ``finish`` puts them into the lists, to run before whatever stands there. So workers see a queue when it
is complete. Never writes a document that no worker could read, nor a time that no scheduler would look at. Called by
``family.py``, and by ``faults.py`` for the record of a written job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain

from attrs import evolve, frozen

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import error, warning
from ...schema.job import Job, State, replaced
from ...schema.rule import Finding
from ...schema.text import show, to_bytes
from ...schema.totals import Totals
from ..generated import GeneratedJob
from ..members import split
from ..scripts import script
from ..waiting_place import waiting_place
from .keys import LARGEST_ID, WORDS, as_sent, counted, layout
from .passthrough import Passthrough, postponed, with_overflow
from .record import Record, data_member

_script = partial(script, __package__)

UNFINISHED = frozenset({State.WAITING, State.SCHEDULED, State.ACTIVE})
CANONICAL = frozenset(WORDS.values())


# What kickq can't express


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that kickq could not hold or run; warnings for what kickq would keep in the record but not act on."""
    number = int(job.id) if job.id.isascii() and job.id.isdigit() and not job.id.startswith("0") else 0
    if not job.id or not _is_unicode(job.id) or number > LARGEST_ID:
        detail = f"a kickq id is any text, but as a number it ends at {LARGEST_ID}; this one is {show(job.id, 60)!r}"
        yield error(job, "KICKQ-W1", detail)
    if not _is_unicode(job.queue):
        yield error(job, "KICKQ-W2", f"kickq can't have a queue named {show(job.queue, 60)!r}: it is not Unicode")
    if job.state not in CANONICAL:
        yield error(job, "KICKQ-W3", f"kickq has no state for {job.state} jobs")
    if job.state in UNFINISHED and job.payload is not None and data_member(job.payload) is None:
        yield error(job, "KICKQ-W4", "the payload is not JSON, and no kickq worker could be given it")
    if job.state is State.SCHEDULED and job.due_at is None:
        yield warning(job, "KICKQ-W5", "a scheduled job without a due time: it is queued within minutes")
    idle = [name for name in ("priority", "tags", "depends_on", "unique_key") if getattr(job, name)]
    if job.name != job.queue:
        idle.insert(0, "name")
    if idle:
        yield warning(job, "KICKQ-W6", f"kept in the record, but without effect in kickq: {', '.join(idle)}")
    try:
        passthrough = Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "KICKQ-W7", str(reason))
        return
    if passthrough.text is not None and not _is_document(passthrough.text):
        yield warning(job, "KICKQ-W8", f"left out, since no kickq worker can read it: {show(passthrough.text, 60)!r}")
    if _written_state(job, passthrough) is not job.state:
        yield warning(job, "KICKQ-W9", "no kickq worker holds this active job: it is written as waiting")


def _is_unicode(text: str) -> bool:
    """Whether Node.js could send the text as it is; names that are other bytes stand here with lone surrogates."""
    return as_sent(text) == text


def _is_document(text: bytes) -> bool:
    try:
        return bool(split(text))
    except MalformedValue:
        return False


# What is stored


@frozen
class Written:
    """A job as the writer stores it."""

    state: State
    record: Record


def record_for(job: Job, now_ms: int) -> Written:
    """The record of a job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    passthrough = Passthrough.of(job)
    state = _written_state(job, passthrough)
    record, missing = passthrough.record(job if state is job.state else replaced(job, state=state))
    later, moved = postponed(record, now_ms)
    later = with_overflow(job, later, missing, moved)
    # kickq always knows when a job was created; without the time, the job is as old as its record.
    return Written(state, evolve(later, scores={"time_index": float(now_ms), **later.scores}))


def _written_state(job: Job, passthrough: Passthrough) -> State:
    """An active job whose worker is not kickq's would stay active for ever, so it waits."""
    return State.WAITING if job.state is State.ACTIVE and not passthrough.held else job.state


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    stored = Written(job.state, job.record) if isinstance(job, GeneratedJob) else record_for(job, target.now_ms)
    state, record = stored.state, stored.record
    names, member = layout(target.prefix), to_bytes(job.id)
    key, staged = names.key("record", id=job.id), names.key("staged", queue=job.queue)
    hashed: Command = ("HSET", key, *chain.from_iterable(record.hash.items()))
    all_sets = _sets(target.prefix)
    commands: list[Command] = []
    if target.generated:
        commands.append(hashed)
    else:
        if counted(job.id) is not None:
            commands.append(_raise_id(target, member))
        commands += [("DEL", key), hashed]
        sets = [other for word, other in all_sets.items() if word != record.word]
        zsets = [names.key(role) for role in ("scheduled", "purge") if role not in record.scores]
        lists = []
        if state is not State.WAITING:
            zsets.append(staged)
            lists.append(names.key("queue", queue=job.queue))
        keys = (*sets, *zsets, *lists)
        commands.append(("EVAL", _script("leave"), len(keys), *keys, member, len(sets), len(zsets)))
    commands.append(("SADD", all_sets[record.word], member))
    commands.extend(("ZADD", names.key(role), score, member) for role, score in record.scores.items())
    if state is State.WAITING:
        commands.append(("ZADD", staged, waiting_place(job), member))
    return commands


def _raise_id(target: Target, job_id: bytes | int) -> Command:
    return ("EVAL", _script("raise_id"), 1, layout(target.prefix).key("ids"), job_id)


@lru_cache(maxsize=64)
def _sets(prefix: str) -> Mapping[str, bytes]:
    """The state sets by their words."""
    return {word: layout(prefix).key("state", state=word) for word in WORDS}


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs beside the number of jobs by queue."""
    KeyFamily.tally_written(job, totals)
    number = counted(job.id)
    if number is not None:
        totals.maximum("highest id", number)


def finish(target: Target, written: Totals) -> list[Command]:
    """Raises the id counter over every written id, and puts what was staged into the lists of the queues."""
    names = layout(target.prefix)
    highest = written.maxima.get(("highest id", ""))
    commands: list[Command] = [] if highest is None else [_raise_id(target, highest)]
    for queue in written.labels("jobs"):
        keys = tuple(names.key(role, queue=queue) for role in ("staged", "queue", "staged_list"))
        commands.append(("EVAL", _script("queue_ids"), len(keys), *keys, "head"))
    return commands
