"""Compare: what a verification says about one job. Pure; both engines call it.

The promise is what ``carry`` gives for the job at the source; what stands is what the target's reader makes of the target's keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..schema.family import KeyFamily
from ..schema.job import JOB_FIELDS, Job
from ..schema.text import dump_json, show
from .engine import Difference

SHOWN = 120
"""Characters of a value in a difference."""


def differences(promised: Job, standing: Job, target: KeyFamily) -> Iterator[Difference]:
    """One difference for each canonical field in which the two jobs differ."""
    if promised == standing:
        return
    for name in JOB_FIELDS:
        want, have = getattr(promised, name), getattr(standing, name)
        if name == "extra":
            want, have = _comparable_extra(want, have, target)
        if want != have:
            yield Difference(promised.id, promised.queue, name, brief(want), brief(have))


def judge(promised: Job | None, refused_by: str | None, standing: Job | None, target: KeyFamily) -> Iterator[Difference]:
    """All differences about one job. ``promised``: the one to carry, or with ``refused_by`` the one to leave."""
    if promised is None or refused_by is not None:
        if standing is not None:
            yield unexpected(standing, refused_by and f"refused by {refused_by}")
    elif standing is None:
        yield missing(promised)
    else:
        yield from differences(promised, standing, target)


def missing(promised: Job) -> Difference:
    """The target lacks a job that was carried."""
    return Difference(promised.id, promised.queue, "missing", f"{promised.state} job", None)


def unexpected(standing: Job, reason: str | None = None) -> Difference:
    """The target has a job that the source has not, or that was to stay at the source for this reason."""
    return Difference(standing.id, standing.queue, "unexpected", reason, f"{standing.state} job")


def brief(value: Any) -> str:
    """A value on one short line, as JSON."""
    return show(dump_json(value), SHOWN)


def _comparable_extra(want: Mapping[str, Any], have: Mapping[str, Any], target: KeyFamily) -> tuple[Any, Any]:
    """What of ``extra`` the target's family is able to keep: everything, or only what is its own."""
    if target.keeps_extra:
        return want, have
    own = target.name
    return want.get(own), have.get(own) if own in want else None
