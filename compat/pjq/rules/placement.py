"""The rules of pjq keyspaces about the containers that hold a job, and since when. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show, span, to_text
from ...numbers import parse_number
from ...rulebook import Rulebook, keys_of
from ..keys import EARLIEST, LATEST, LEASE_MS
from ..view import View, view_of
from ..workers import is_busy, is_misfit, last_seen

EXACT = 1e-6
"""Redis gives scores back with up to 17 digits: what differs by less is the same."""

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "PJQ-6",
    "A job is queued once",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="keep the entry that runs first",
)
def is_queued_once(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    queued = view.places.get("queued", [])
    repeated = [fact for fact in queued if sum(other.key == fact.key for other in queued) > 1]
    if repeated:
        detail = f"{len(repeated)} times in {keys_of(repeated)}: added again, and will run as often with the last payload"
        yield view.violation(detail, key=repeated[0].key, queue=repeated[0].queue)


@book.about_jobs(
    "PJQ-7",
    "A job is queued, dispatched, processing or finished, and in one queue only",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="keep the place to which it came furthest, if its worker is there",
)
def is_in_one_place(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    places = view.all_places(("queued", "dispatched", "processing", "finished"))
    if len({fact.key for fact in places}) > 1:
        runs = any(fact.role in ("queued", "dispatched") for fact in places)
        effect = "it will run again" if runs else "shown as running for ever"
        yield view.violation(f"in {keys_of(places)}: {effect}", severity=None if runs else Severity.WARNING)


@book.about_jobs(
    "PJQ-8",
    "A job has a progress while it is processing",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="set the missing progress to 0; remove the progress of a job that is not processing",
)
def has_progress(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    yield from _differing(view, "processing", "progress")


@book.about_jobs(
    "PJQ-26",
    "A job has a progress while it is leased (js-1)",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="set the missing progress to 0; remove the progress of a job that is not leased",
)
def has_js_progress(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    yield from _differing(view, "js_leased", "js_progress")


def _differing(view: View, role: str, progress_role: str) -> Iterator[Violation]:
    running, progress = ({fact.queue: fact for fact in view.places.get(each, ())} for each in (role, progress_role))
    for queue in sorted(running.keys() ^ progress.keys(), key=str):
        if queue in running:
            yield view.violation(f"in {show(running[queue].key)} without a progress", key=running[queue].key, queue=queue)
        else:
            detail = f"a progress in {show(progress[queue].key)}, but it is not at work there"
            yield view.violation(detail, key=progress[queue].key, queue=queue)


@book.about_jobs(
    "PJQ-9", "A progress is from 0 to 1", Severity.WARNING, Harm.COSMETIC, repair="set it to 0: its worker will tell another"
)
def progress_is_fraction(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places.get("progress", ()):
        if not 0 <= (fact.score or 0) <= 1:
            yield view.violation(f"a progress of {fact.score:g}", key=fact.key, queue=fact.queue)


@book.about_jobs(
    "PJQ-17",
    "Every job that is not finished stands in a container; otherwise nothing tells whether it has run, and it is not carried",
    Severity.ERROR,
    Harm.LOST,
    repair="add the job again, if it has not run",
    refuses=True,
)
def is_in_a_container(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_contained or b"finished_at" in view.fields:
        return
    names = keyspace.totals.names
    # Completed jobs of the JavaScript programs stand nowhere either.
    completes = b"leased_at" in view.fields or (bool(names.get("js-1 keys")) and not names.get("current keys"))
    if view.has_json:
        said = "completed by the first JavaScript program, or lost" if completes else "lost, or completed by a JavaScript program"
        yield view.violation(f"in no list and no set: {said}", severity=Severity.WARNING if completes else None)
    elif view.fields.keys() == {b"dispatched_at"}:
        yield view.violation("nothing is left of it but the time of its dispatch")


@book.about_jobs(
    "PJQ-12",
    "A finished job is listed as finished",
    Severity.ERROR,
    Harm.LEAK,
    repair="list it, with the end as a number",
)
def finished_is_listed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if b"finished_at" in view.fields and "finished" not in view.places:
        finished_at = show(view.fields[b"finished_at"], 40)
        yield view.violation(f"finished at {finished_at!r}, but not in the set of its queue: the program died over the date")


@book.about_jobs(
    "PJQ-18",
    "The hash says what the container says",
    Severity.WARNING,
    Harm.DUPLICATE,
)
def hash_fits_container(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not view.has_json:
        return
    needed = {"dispatched": (b"dispatched_at",), "processing": (b"started_at", b"worker_uuid")}
    needed["finished"] = (b"finished_at", b"worker_uuid")
    wrong = [
        f"{_word(role)} without {' and '.join(to_text(name) for name in names if name not in view.fields)}"
        for role, names in needed.items()
        if role in view.places and any(name not in view.fields for name in names)
    ]
    again = [role for role in ("queued", "dispatched") if role in view.places and b"finished_at" in view.fields]
    wrong += (f"{_word(role)} although it is finished" for role in again)
    if wrong:
        detail = "; ".join(wrong) + (": it will run again" if again else "")
        yield view.violation(detail, severity=Severity.ERROR if again else None)


def _word(role: str) -> str:
    return role.removeprefix("js_")


@book.about_jobs(
    "PJQ-19",
    "A job that was accepted had been dispatched",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="see under which id it was dispatched: that one runs again",
)
def was_dispatched(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    accepted = [role for role in ("processing", "finished") if role in view.places]
    if accepted and view.has_json and b"dispatched_at" not in view.fields:
        yield view.violation(f"{_word(accepted[0])}, and never dispatched: accepted under a wrong id")


@book.about_jobs(
    "PJQ-20",
    "Times in sorted sets are seconds",
    Severity.ERROR,
    Harm.LOST,
    repair="divide a time in milliseconds by 1000; set the end of a job to what its hash says",
)
def scores_are_seconds(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.all_places(("dispatched", "processing")):
        if not EARLIEST <= (fact.score or 0) <= LATEST:
            lasts = fact.role == "dispatched" and (fact.score or 0) > LATEST
            effect = ": its lease never ends" if lasts else ""
            detail = f"{fact.score:.16g} in {show(fact.key)} is no time in seconds{effect}"
            yield view.violation(detail, key=fact.key, queue=fact.queue, severity=None if lasts else Severity.WARNING)
    finished_at = parse_number(view.fields.get(b"finished_at"))
    for fact in view.places.get("finished", ()):
        if b"finished_at" in view.fields and (finished_at is None or abs(finished_at - (fact.score or 0)) > EXACT):
            found = show(view.fields[b"finished_at"], 40)
            detail = f"finished at {found!r}, but the score is {fact.score!r}"
            yield view.violation(detail, key=fact.key, queue=fact.queue, severity=Severity.WARNING)


@book.about_jobs(
    "PJQ-10",
    "No dispatched job waits longer than its lease for a worker that accepts it",
    Severity.WARNING,
    Harm.LATE,
    repair="put it back into the list, as the program does at the next message for this queue",
)
def lease_is_not_over(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places.get("dispatched", ()):
        since = keyspace.now_ms / 1000 - (fact.score or 0)
        if since > LEASE_MS / 1000:
            when = ago((fact.score or 0) * 1000, keyspace.now_ms)
            detail = f"dispatched {when}, and never accepted: it runs again at the next message for the queue"
            yield view.violation(detail, key=fact.key, queue=fact.queue)


@book.about_jobs(
    "PJQ-11",
    "The worker of a processing job is busy in its queue",
    Severity.ERROR,
    Harm.LOST,
    repair="if the worker is gone, put the job back into the list (--older-than or --worker): the program never does",
)
def worker_is_busy(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    worker = view.text(b"worker_uuid")
    for fact in view.places.get("processing", ()):
        queue = fact.queue or ""
        if worker is not None and not is_busy(worker, queue, keyspace.totals) and not is_misfit("busy", queue, keyspace):
            detail = f"worker {show(worker, 60)} is not busy there: gone, or silent for 9 s; the program never takes the job back"
            yield view.violation(detail, key=fact.key, queue=fact.queue)


@book.about_jobs(
    "PJQ-25",
    "A processing job or its worker has given a sign within 9 s (a suspicion: the released program hears no such signs)",
    Severity.WARNING,
    Harm.LOST,
    repair="finish it if it is done; if its worker is gone, put it back into the list (--older-than or --worker)",
)
def work_goes_on(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    worker = view.text(b"worker_uuid")
    for fact in view.places.get("processing", ()):
        queue = fact.queue or ""
        if not view.has_json or (worker is not None and not is_busy(worker, queue, keyspace.totals)):
            continue
        seen = None if worker is None else last_seen(worker, queue, keyspace.totals)
        silent = keyspace.now_ms / 1000 - max(fact.score or 0, seen or 0)
        if silent > LEASE_MS / 1000:
            detail = f"no sign for {span(silent * 1000)}: done, still at work, or its worker is gone"
            yield view.violation(detail, key=fact.key, queue=queue)


@book.about_jobs("PJQ-24", "No job waits while a worker is idle (cured by the next message)", Severity.INFO, Harm.LATE)
def no_worker_is_idle(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    names = keyspace.totals.names
    for fact in view.places.get("queued", ()):
        # Said once for a queue, at the head of its list; of workers that are busy as well another rule speaks.
        idle = set(names.get(f"idle:{fact.queue}", ())) - names.get(f"busy:{fact.queue}", set()) if fact.index == 0 else ()
        if idle:
            yield view.violation(f"{len(idle)} workers are idle in its queue", key=fact.key, queue=fact.queue)
