"""Compare: what a verification says about one job. Pure; both engines call it.

What is expected is what ``decide`` gives for the job at the source; the actual job is what the target's reader makes of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..schema.family import KeyFamily, family_names, get_family
from ..schema.job import JOB_FIELDS, Job
from ..schema.text import dump_json, show
from .engine import Difference

SHOWN = 120
"""Characters of a value in a difference."""
BEFORE = 20
"""Characters shown of what two long values have in common, before the first in which they differ."""


def differences(expected: Job, actual: Job, target: KeyFamily) -> Iterator[Difference]:
    """One difference for each canonical field in which the two jobs differ."""
    if expected == actual:
        return
    for name in JOB_FIELDS:
        want, have = getattr(expected, name), getattr(actual, name)
        if name == "extra":
            want, have = _comparable_extra(want, have, target)
        if want != have:
            yield Difference(expected.id, expected.queue, name, *contrast(want, have))


def compare_job(expected: Job | None, refused_by: str | None, actual: Job | None, target: KeyFamily) -> Iterator[Difference]:
    """All differences about one job. ``expected``: the one to carry, or with ``refused_by`` the one to leave."""
    if expected is None or refused_by is not None:
        if actual is not None:
            yield unexpected(actual, refused_by and f"refused by {refused_by}")
    elif actual is None:
        yield missing(expected)
    else:
        yield from differences(expected, actual, target)


Expectation = tuple[Job | None, str | None]
"""What the source lets expect of a job: the one to carry, or the one to leave with the rule that keeps it there."""


def compare_all(expectations: Sequence[Expectation], actual: Job | None, target: KeyFamily) -> tuple[int, list[Difference]]:
    """How many of the expectations about one queue and id are met, and all differences.

    A source may speak of one job twice, as kombu does of a message in its list and with a consumer: mostly one of the two is
    carried, and the other stays. Of two that are carried the target can have but one.
    """
    carried = [job for job, refused_by in expectations if job is not None and refused_by is None]
    if not carried:
        job, refused_by = expectations[0] if expectations else (None, None)
        return 0, list(compare_job(job, refused_by, actual, target))
    compared = [list(compare_job(job, None, actual, target)) for job in carried]
    equal = [found for found in compared if not found]
    differing = [] if equal else compared[-1]
    return len(equal[:1]), [*differing, *map(missing, carried[1:])]


def missing(expected: Job) -> Difference:
    """The target lacks a job that was carried."""
    return Difference(expected.id, expected.queue, "missing", f"{expected.state} job", None)


def unexpected(actual: Job, reason: str | None = None) -> Difference:
    """The target has a job that the source has not, or that was to stay at the source for this reason."""
    return Difference(actual.id, actual.queue, "unexpected", reason, f"{actual.state} job")


def brief(value: Any) -> str:
    """A value on one short line, as JSON."""
    return show(dump_json(value), SHOWN)


def contrast(want: Any, have: Any) -> tuple[str, str]:
    """Two values that differ, each on one short line, as JSON: long ones from shortly before where the difference begins."""
    first, second = dump_json(want), dump_json(have)
    pairs = enumerate(zip(first, second, strict=False))
    start = max(0, next((i for i, (one, other) in pairs if one != other), min(len(first), len(second))) - BEFORE)
    if max(len(first), len(second)) <= SHOWN or not start:
        return show(first, SHOWN), show(second, SHOWN)
    return "…" + show(first[start:], SHOWN), "…" + show(second[start:], SHOWN)


CLOCKS_MS = 2_000
"""How much later than it was read a key may seem to end: it was read again a moment after its time was asked for."""


def _still(name: str, want: Any, have: Any) -> Any:
    """What a family keeps, with the times left as they were when they were read first, if since then only time has passed."""
    if name not in family_names() or not isinstance(want, Mapping) or not isinstance(have, Mapping):
        return want
    for record, time_left in get_family(name).countdowns:
        now, then = (value[record].get(time_left) if isinstance(value.get(record), Mapping) else None for value in (want, have))
        if type(now) is int and type(then) is int and now <= then + CLOCKS_MS:
            want = {**want, record: {**want[record], time_left: then}}
    return want


def _comparable_extra(want: Mapping[str, Any], have: Mapping[str, Any], target: KeyFamily) -> tuple[Any, Any]:
    """What of ``extra`` the target's family is able to keep: everything, or only what is its own.

    What runs down by itself is compared as the moment at which it is over: the source is read again, later than it was carried.
    """
    want = {name: _still(name, value, have.get(name)) for name, value in want.items()}
    if target.keeps_extra:
        return want, have
    own = target.name
    return want.get(own), have.get(own) if own in want else None
