"""The options of a new kickq job: how long and how often it may run, as the members of its document.

Names that all families know (``attempts``, ``backoff``, ``ttl``) stand beside kickq's own. Called by ``live.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...schema.errors import UsageError
from ..members import Member
from .record import DEFAULTS, LONGEST_RUN

FLAGS = frozenset({"retry", "hotjob", "ghostRetry"})
COUNTS = frozenset({"retryTimes", "ghostTimes"})

SHARED = ("attempts", "backoff", "ttl")
"""``attempts``: all runs that it may have; ``backoff``: ms from a failed run to the next, True for kickq's own half hour, False
for none, or ``{"type": "fixed", "delay": ms}``; ``ttl``: ms that a run may take."""


def option_members(options: Mapping[str, Any]) -> bytes:
    """The members from ``processTimeout`` to ``ghostInterval``, in kickq's order.

    Raises UsageError for an option that kickq doesn't have, or a value that it can't use.
    """
    values = dict(DEFAULTS)
    for name, value in options.items():
        if value is None:
            continue
        match name:
            case "attempts":
                values["retry"], values["retryTimes"] = _count(name, value) > 1, max(value, 1)
            case "backoff":
                values["retryInterval"] = _backoff(value)
            case "ttl":
                values["processTimeout"] = _limit(name, value)
            case "processTimeout":
                values[name] = _limit(name, value)
            case _ if name in FLAGS:
                values[name] = _flag(name, value)
            case _ if name in COUNTS:
                values[name] = _count(name, value)
            case _ if name in DEFAULTS:
                values[name] = _duration(name, value)
            case _:
                known = ", ".join([*SHARED, *DEFAULTS])
                raise UsageError(f"a kickq job has no option {name!r}; there are: {known}")
    return b",".join(b'"%b":%b' % (name.encode(), Member.of(value).text) for name, value in values.items())


def _backoff(value: Any) -> int:
    if isinstance(value, bool):
        return int(DEFAULTS["retryInterval"]) if value else 0
    if isinstance(value, Mapping):
        if value.get("type", "fixed") != "fixed" or not value.keys() <= {"type", "delay"}:
            raise UsageError(f"backoff {dict(value)!r} is none that kickq has: every retry of a job waits for the same time")
        value = value.get("delay", DEFAULTS["retryInterval"])
    return _duration("backoff", value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} {value!r} must be true or false")
    return value


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 2**53:
        raise UsageError(f"{name} {value!r} must be a whole number, 0 or above")
    return value


def _duration(name: str, value: Any) -> int:
    """Milliseconds that kickq takes for what they are: it counts modulo 2^32, and without fractions."""
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < 2**32:
        raise UsageError(f"{name} {value!r} must be a number of milliseconds, 0 or above and below 2^32 (49 days)")
    return int(value)


def _limit(name: str, value: Any) -> int:
    if type(value) not in (int, float) or not 1 <= value <= LONGEST_RUN:
        raise UsageError(f"{name} {value!r} must be a number of milliseconds from 1 to {LONGEST_RUN} (24 days)")
    return int(value)
