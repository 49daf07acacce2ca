"""Repairs: the commands that mend one finding, for the rules where that can't lose a job or run one twice.

Each does what the program itself would do, or removes what means nothing. Nothing is repaired where only a person can know: the
queue that a payload should name (PJQ-5), whether a job that stands nowhere has run (PJQ-17), which id was meant (PJQ-19).
Unreadable payloads (PJQ-3) may be saved by hand. What has a cause elsewhere goes with that: PJQ-18, PJQ-21, PJQ-23, PJQ-24.

When a job goes back into its list, the worker that was to have it stays among the busy ones until the program forgets it, so
PJQ-21 may speak of it, for information. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Fact, Subject
from ...schema.family import Command, Keyspace
from ...schema.rule import Finding
from ...schema.text import to_bytes
from ..numbers import number_text, parse_number
from .keys import EARLIEST, LATEST, LEASE_MS, layout
from .record import finished_ms
from .rules.placement import EXACT
from .rules.workers import from_the_future, nowhere, out_of_range, unknown_to_purge
from .view import View, view_of
from .workers import Workers, is_busy, last_seen

JobRepair = Callable[[View, Keyspace], list[Command]]
QueueRepair = Callable[[str, Workers, Keyspace], list[Command]]


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> list[Command]:
    """The commands for one finding; none where nothing is safe. Raises Unrepairable with the reason."""
    if subject is not None:
        if finding.rule in CHOOSABLE:
            return _requeued(view_of(subject), keyspace, choices)
        mend = _OF_JOBS.get(finding.rule)
        return [] if mend is None else mend(view_of(subject), keyspace)
    key = to_bytes(finding.key)
    match finding.rule:
        case "PJQ-1":
            return _typed(key, keyspace)
        case "PJQ-22":
            return [("PERSIST", key)]
    mend_queue = _OF_QUEUES.get(finding.rule)
    queue = finding.queue or ""
    return [] if mend_queue is None else mend_queue(queue, Workers.of(queue, keyspace.totals), keyspace)


def _out_of(fact: Fact) -> Command:
    """Takes an id out of a container."""
    member = fact.member or b""
    return ("LREM", fact.key, 0, member) if fact.redis_type == "list" else ("ZREM", fact.key, member)


def _out_of_all(facts: list[Fact]) -> list[Command]:
    return list(dict.fromkeys(_out_of(fact) for fact in facts))


# Jobs


def _without_payload(view: View, _keyspace: Keyspace) -> list[Command]:
    """There is nothing to run, so it goes everywhere, with the hash if that holds no more than the time of a dispatch.

    One that a worker has accepted can't come back, and shows what that worker is busy with.
    """
    if view.has_json or view.stranger is not None or "processing" in view.places:
        return []
    commands = _out_of_all(view.all_places())
    if view.record is not None and view.fields.keys() == {b"dispatched_at"}:
        commands.append(("DEL", view.record.key))
    return commands


def _queued_once(view: View, _keyspace: Keyspace) -> list[Command]:
    """The entry that runs first stays: it is the last one in the list."""
    queued = view.places.get("queued", [])
    numbers = {fact.key: sum(other.key == fact.key for other in queued) for fact in queued}
    return [("LREM", key, times - 1, to_bytes(view.job_id)) for key, times in numbers.items() if times > 1]


def _in_one_place(view: View, keyspace: Keyspace) -> list[Command]:
    """A job that ended, or is at work, need not run again, unless it was added again since: its payload tells."""
    members, worker = view.members or {}, view.text(b"worker_uuid") or ""
    processing, to_run = view.places.get("processing", []), view.all_places(("queued", "dispatched"))
    at_work = any(is_busy(worker, fact.queue or "", keyspace.totals) for fact in processing)
    if "finished" in view.places:
        over = "finished_at" in members or not (to_run or at_work)
        return _out_of_all(view.all_places(("queued", "dispatched", "processing", "progress"))) if over else []
    return _out_of_all(to_run) if at_work and len(processing) == 1 and "started_at" in members else []


def _with_progress(running: str, progress: str) -> JobRepair:
    def mend(view: View, keyspace: Keyspace) -> list[Command]:
        at_work = {fact.queue: fact for fact in view.places.get(running, ())}
        progressing = {fact.queue: fact for fact in view.places.get(progress, ())}
        names, member = layout(keyspace.prefix), to_bytes(view.job_id)
        missing = [("ZADD", names.key(progress, queue=queue or ""), 0, member) for queue in at_work if queue not in progressing]
        return [*missing, *(_out_of(fact) for queue, fact in progressing.items() if queue not in at_work)]

    return mend


def _as_fraction(view: View, _keyspace: Keyspace) -> list[Command]:
    wrong = [fact for fact in view.places.get("progress", ()) if not 0 <= (fact.score or 0) <= 1]
    return [("ZADD", fact.key, 0, fact.member or b"") for fact in wrong]


def _readmitted(view: View, keyspace: Keyspace) -> list[Command]:
    """What the program does at the next message, in the same order of commands; not for a job at which it would die."""
    dispatched = view.all_places(("dispatched", "queued", "processing", "finished"))
    if len(dispatched) != 1 or view.members is None or b"finished_at" in view.fields:
        return []
    since = keyspace.now_ms / 1000 - (dispatched[0].score or 0)
    if dispatched[0].role != "dispatched" or since <= LEASE_MS / 1000:
        return []
    queue = layout(keyspace.prefix).key("queued", queue=dispatched[0].queue or "")
    return [_out_of(dispatched[0]), ("RPUSH", queue, dispatched[0].member or b"")]


def _requeued(view: View, keyspace: Keyspace, choices: Choices) -> list[Command]:
    """From a worker that is gone to where the program puts a job that none accepted: it runs next."""
    places = view.all_places(("dispatched", "queued", "processing", "finished"))
    if len(places) != 1 or b"finished_at" in view.fields:
        raise Unrepairable("it stands in several places, or is finished: --repair PJQ-7 or PJQ-12 first")
    if view.members is None:
        raise Unrepairable("its payload can't be read: each dispatch of it would kill the program")
    [processing], worker = places, view.text(b"worker_uuid")
    queue = processing.queue or ""
    seen = None if worker is None else last_seen(worker, queue, keyspace.totals)
    choices.check(keyspace.now_ms, max(processing.score or 0, seen or 0) * 1000, worker)
    key = layout(keyspace.prefix).key("queued", queue=queue)
    return [*_out_of_all([processing, *view.all_places(("progress",))]), ("RPUSH", key, processing.member or b"")]


def _listed_as_finished(view: View, keyspace: Keyspace) -> list[Command]:
    """The end as a number in both places, which is what the program had tried."""
    ended = finished_ms(view.stored(keyspace.totals))
    if ended is None or view.record is None or view.members is None or view.is_contained:
        return []
    named = isinstance(view.members.get("queue_name"), str)
    if not named or b"dispatched_at" not in view.fields or b"worker_uuid" not in view.fields:
        return []
    raw = view.fields[b"finished_at"]
    seconds = raw if parse_number(raw) is not None else number_text(ended / 1000)
    finished = layout(keyspace.prefix).key("finished", queue=view.queue)
    written: list[Command] = [] if seconds == raw else [("HSET", view.record.key, "finished_at", seconds)]
    return [*written, ("ZADD", finished, seconds, to_bytes(view.job_id))]


def _in_seconds(view: View, keyspace: Keyspace) -> list[Command]:
    commands: list[Command] = []
    for fact in view.all_places(("dispatched", "processing")):
        seconds = (fact.score or 0) / 1000
        if (fact.score or 0) > LATEST and EARLIEST <= seconds <= keyspace.now_ms / 1000 + LEASE_MS / 1000:
            commands.append(("ZADD", fact.key, repr(seconds), fact.member or b""))
    finished_at = parse_number(view.fields.get(b"finished_at"))
    for fact in view.places.get("finished", ()):
        if finished_at is not None and abs(finished_at - (fact.score or 0)) > EXACT:
            commands.append(("ZADD", fact.key, view.fields[b"finished_at"], fact.member or b""))
    return commands


def _lasting(view: View, _keyspace: Keyspace) -> list[Command]:
    return [] if view.record is None else [("PERSIST", view.record.key)]


_OF_JOBS: dict[str, JobRepair] = {
    "PJQ-2": _without_payload,
    "PJQ-4": _without_payload,
    "PJQ-6": _queued_once,
    "PJQ-7": _in_one_place,
    "PJQ-8": _with_progress("processing", "progress"),
    "PJQ-9": _as_fraction,
    "PJQ-10": _readmitted,
    "PJQ-12": _listed_as_finished,
    "PJQ-20": _in_seconds,
    "PJQ-22": _lasting,
    "PJQ-26": _with_progress("js_leased", "js_progress"),
}


# Workers


def _typed(key: bytes, keyspace: Keyspace) -> list[Command]:
    """Idle workers announce themselves every 3 s, so those of the JavaScript program may go. Any other content is unknown."""
    match = next(layout(keyspace.prefix).matches(key))
    return [("DEL", key)] if match.role == "idle" else []


def _seen_now(queue: str, workers: set[str], keyspace: Keyspace) -> list[Command]:
    """Lets the program forget them after 9 s, unless they are there."""
    seen = layout(keyspace.prefix).key("seen", queue=queue)
    now = number_text(keyspace.now_ms / 1000)
    pairs = chain.from_iterable((now, to_bytes(worker)) for worker in sorted(workers))
    return [("ZADD", seen, *pairs)] if workers else []


def _not_idle(queue: str, workers: Workers, keyspace: Keyspace) -> list[Command]:
    both = sorted(workers.idle & workers.busy)
    return [("SREM", layout(keyspace.prefix).key("idle", queue=queue), *map(to_bytes, both))] if both else []


def _forgotten(queue: str, workers: Workers, keyspace: Keyspace) -> list[Command]:
    gone = sorted(nowhere(workers))
    return [("ZREM", layout(keyspace.prefix).key("seen", queue=queue), *map(to_bytes, gone))] if gone else []


_OF_QUEUES: dict[str, QueueRepair] = {
    "PJQ-13": _not_idle,
    "PJQ-14": lambda queue, workers, keyspace: _seen_now(queue, unknown_to_purge(workers), keyspace),
    "PJQ-15": _forgotten,
    "PJQ-16": lambda queue, workers, keyspace: _seen_now(queue, from_the_future(workers, keyspace.now_ms), keyspace),
    "PJQ-20": lambda queue, workers, keyspace: _seen_now(queue, out_of_range(workers), keyspace),
}

CHOOSABLE = frozenset({"PJQ-11", "PJQ-25"})
"""Rules whose repair asks what the user chooses: whether a silent worker is dead, keys can't tell."""

REPAIRABLE = frozenset({"PJQ-1", *_OF_JOBS, *CHOOSABLE, *_OF_QUEUES})
"""Rules that can be mended in some of their forms at least."""
