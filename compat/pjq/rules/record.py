"""The rules of pjq keyspaces about a job's hash and the payload in it. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.job import State
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, span, to_text
from ...overflow import FIELD, about_overflow
from ...rulebook import Rulebook, keys_of
from ...unreadable import about_unreadable
from ..passthrough import decoded
from ..payload import key_texts
from ..record import started_ms
from ..view import View, view_of

TO_RUN = frozenset({State.WAITING, State.ACTIVE})

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "PJQ-1",
    "Every key has the Redis type that the programs expect; a job whose key has another is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="rename the key; workers_idle as a sorted set of the JavaScript program may be removed",
    refuses=True,
)
def is_hash(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.stranger is not None and view.is_contained:
        detail = f"the key is a {view.stranger.redis_type}: dispatching it stops half way and kills the program"
        yield view.violation(detail, key=view.stranger.key)


def _lacks_payload(view: View) -> str:
    return "its hash has no payload" if view.record else "no hash of its name has a payload"


@book.about_jobs(
    "PJQ-2",
    "Every queued job has a payload; without one it is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="take the id out of the list: there is nothing to run",
    refuses=True,
)
def queued_has_payload(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    places = view.all_places(("queued", "js_queued"))
    if places and not view.has_json and view.stranger is None:
        detail = f"{_lacks_payload(view)}: each dispatch of it kills the program, again every 9 s"
        yield view.violation(detail, key=places[0].key, queue=places[0].queue)


@book.about_jobs(
    "PJQ-3",
    "The payload of a job is a JSON object in UTF-8; otherwise the job is not carried",
    Severity.ERROR,
    Harm.POISON,
    refuses=True,
)
def payload_can_be_run(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fault is not None and view.state in TO_RUN:
        yield view.violation(f"{_unreadable(view)}: each dispatch of it kills the program, again every 9 s")


@book.about_jobs(
    "PJQ-3",
    "The payload of a job is a JSON object in UTF-8; otherwise the job is not carried",
    Severity.WARNING,
    Harm.LEAK,
    refuses=True,
    assumes="without it, as completed",
)
def payload_can_be_read(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fault is not None and view.is_contained and view.state not in TO_RUN:
        yield view.violation(f"{_unreadable(view)}: how the job ended is lost")


def _unreadable(view: View) -> str:
    return f"payload {show(view.fields[b'json'], 40)!r}: {view.fault}"


@book.about_jobs(
    "PJQ-4",
    "Every job that was dispatched, accepted or finished has a payload; without one it is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="take the id out of its containers: there is nothing to run",
    refuses=True,
)
def dispatched_has_payload(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    places = view.all_places(("dispatched", "processing", "finished", "js_leased"))
    if places and not view.has_json and view.stranger is None:
        returns = any(fact.role == "dispatched" for fact in places)
        effect = "it comes back into the list and kills the program" if returns else "what it was is lost"
        yield view.violation(f"{_lacks_payload(view)}: {effect}", key=places[0].key, queue=places[0].queue)


@book.about_jobs(
    "PJQ-5",
    "The payload names the job's id and the queue of every container that holds it",
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="correct uuid and queue_name in the payload",
)
def payload_names_job(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.members is None:
        return
    if view.is_contained and view.job_id not in key_texts(view.members, "uuid"):
        yield view.violation("its uuid is not the id: its worker will accept and finish another job")
    elsewhere = [fact for fact in view.all_places() if fact.queue not in key_texts(view.members, "queue_name")]
    if elsewhere:
        named = show(str(view.members.get("queue_name")), 60)
        detail = f"its queue_name is {named!r}, but it stands in {keys_of(elsewhere)}: nobody will close it there"
        yield view.violation(detail, queue=elsewhere[0].queue)


@book.about_jobs(
    "PJQ-22",
    "No hash of a job and no container runs out",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the key (PERSIST)",
)
def does_not_expire(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is not None and view.record.ttl_ms is not None:
        yield view.violation(f"vanishes in {span(view.record.ttl_ms)}, and its id becomes poison")


about_overflow(book, "PJQ-27", lambda view: view.fields.get(FIELD), decoded)


def _unreadable_times(view: View) -> dict[str, bytes]:
    """Times of the hash that are neither dates nor seconds. What stands in the payload is its producer's own."""
    wrong = {}
    for name in (b"started_at", b"finished_at"):
        raw = view.fields.get(name)
        if raw is not None and started_ms(raw) is None:
            wrong[to_text(name)] = raw
    return wrong


about_unreadable(book, "PJQ-28", _unreadable_times)
