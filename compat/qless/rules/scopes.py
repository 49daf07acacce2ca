"""The rules of qless keyspaces about what is no job: failure groups, tags, workers, recurring jobs, throttles, statistics.

Each of them is a subject of its own. Collected by the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ....schema.fact import Fact, Subject
from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ...numbers import parse_int, parse_number
from ...rulebook import Rulebook
from ..keys import Scope, layout

CELL = re.compile(rb"[smhd]-?[0-9]{1,9}")
"""A cell of a histogram: seconds, minutes, hours or days."""

book: Rulebook[Subject] = Rulebook(lambda subject: subject)

Check = Callable[[Subject, Keyspace], Iterator[Violation]]


def about(scope: Scope, *arguments: object, **options: object) -> Callable[[Check], Check]:
    """Registers a check of the subjects of one scope. The other arguments are those of Rule."""

    def register(check: Check) -> Check:
        def checked(subject: Subject, keyspace: Keyspace) -> Iterator[Violation]:
            return check(subject, keyspace) if subject.scope == scope else iter(())

        book.about_jobs(*arguments, **options)(checked)  # type: ignore[arg-type]
        return check

    return register


def first(subject: Subject, role: str) -> Fact | None:
    """The fact of one role with the smallest key."""
    return min(subject.in_role(role), key=lambda fact: fact.key, default=None)


def size(subject: Subject, role: str) -> int:
    """How many members a key has, whose entry may have come in parts."""
    return sum(fact.index or 0 for fact in subject.in_role(role))


@about(
    Scope.GROUP,
    "QLESS-16",
    "A failure group is registered as long as jobs are listed in it",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="register the group, or take it off the register",
)
def group_is_registered(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    listed, named = first(subject, "group_list"), first(subject, "groups")
    if listed is not None and named is None:
        yield Violation("jobs are listed in the group, but no listing of groups shows it", listed.key)
    elif named is not None and listed is None:
        yield Violation("the group is registered, but no job is listed in it", named.key)


@about(
    Scope.TAG,
    "QLESS-20",
    "A tag's counter is the number of jobs that have it (drifts in daily use)",
    Severity.INFO,
    Harm.COSMETIC,
    repair="set the counter, or remove that of a tag which nothing has",
)
def tag_is_counted(subject: Subject, keyspace: Keyspace) -> Iterator[Violation]:
    counter, jobs = first(subject, "tags"), size(subject, "tag_jobs")
    counted = None if counter is None else counter.score
    if counted != jobs or jobs == 0:
        detail = "no counter" if counted is None else f"counted {counted:g} times"
        yield Violation(f"{detail}, {jobs} jobs have the tag", layout(keyspace.prefix).key("tags"))


@about(
    Scope.RECURRING,
    "QLESS-23",
    "A recurring job stands in its queue's zset of such jobs, and has a hash",
    Severity.ERROR,
    Harm.POISON,
    repair="remove what has no hash from the zset",
)
def recurring_is_whole(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    template, places = first(subject, "template"), list(subject.in_role("recur"))
    if template is None:
        for fact in places:
            yield Violation("due to recur, but its hash is gone: each pop fails there", fact.key, fact.queue)
        return
    queue = to_text(template.fields.get(b"queue", b""))
    if not places:
        yield Violation("in no zset of recurring jobs: it never recurs again", template.key, queue)
    for fact in places:
        if fact.queue != queue:
            detail = f"recurs in queue {show(fact.queue or '', 60)!r}, but its hash says {show(queue, 60)!r}"
            yield Violation(detail, fact.key, fact.queue)


@about(
    Scope.RECURRING,
    "QLESS-RECUR",
    "Recurring jobs are schedules, which only qless acts on: they are not carried to another keyspace",
    Severity.INFO,
    Harm.COSMETIC,
)
def recurring_stays(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    template = first(subject, "template")
    if template is not None:
        klass, interval = (show(template.fields.get(name, b""), 60) for name in (b"klass", b"interval"))
        queue = to_text(template.fields.get(b"queue", b""))
        yield Violation(f"puts a {klass or 'job'} every {interval} s; set it up anew where the jobs go", template.key, queue)


@about(
    Scope.WORKER,
    "QLESS-27",
    "Every worker that holds jobs is registered",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="register the worker",
)
def worker_is_registered(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    jobs = first(subject, "worker_jobs")
    if jobs is not None and first(subject, "workers") is None:
        yield Violation(f"holds {size(subject, 'worker_jobs')} jobs, but is in no listing of workers", jobs.key)


@about(
    Scope.STATISTICS,
    "QLESS-29",
    "Statistics add up",
    Severity.INFO,
    Harm.COSMETIC,
    repair="set the sums that do not add up",
)
def statistics_add_up(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in subject.in_role("statistics"):
        fields = fact.fields
        if fact.label == "stats":
            failed, failures = (parse_int(fields.get(name, b"0")) for name in (b"failed", b"failures"))
            if failed is None or failures is None or not 0 <= failed <= failures:
                yield Violation(f"{failed} failed jobs of {failures} failures", fact.key, fact.queue)
        else:
            cells = {name: parse_int(raw) for name, raw in fields.items() if CELL.fullmatch(name)}
            seen = sum(count or 0 for count in cells.values())
            spread = parse_number(fields.get(b"vk", b"0"))
            if parse_int(fields.get(b"total", b"0")) != seen or any(b"-" in name for name in cells):
                yield Violation(f"{show(fields.get(b'total', b'0'), 30)} jobs in all, {seen} in the cells", fact.key, fact.queue)
            elif spread is None or spread < -1e-6:
                yield Violation(f"a spread of {show(fields.get(b'vk', b''), 30)}", fact.key, fact.queue)


@about(
    Scope.THROTTLE,
    "QLESS-35",
    "A throttle has no more slots in use than its maximum (normal after the maximum was lowered)",
    Severity.WARNING,
    Harm.DUPLICATE,
    repair="wait: it gives out no slot until enough are back",
)
def throttle_is_kept(subject: Subject, _keyspace: Keyspace) -> Iterator[Violation]:
    throttle, used = first(subject, "throttle"), size(subject, "throttle_slots")
    maximum = None if throttle is None else parse_int(throttle.fields.get(b"maximum"))
    if throttle is not None and maximum is not None and 0 < maximum < used:
        yield Violation(f"{used} slots in use of at most {maximum}", throttle.key)
