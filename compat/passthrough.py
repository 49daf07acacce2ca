"""Passthrough: what each family's ``passthrough.py`` starts from. What readers remember of a job in ``Job.extra`` is plain on its
way in and checked on its way out.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

T = TypeVar("T")


def optional(value: Any, kind: type[T]) -> T | None:
    """The value, if it is of this kind or None. Raises TypeError."""
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"not {kind.__name__}")


def plain_score(score: float) -> int | float | str:
    """A score as JSON can hold it: whole numbers without a decimal point, as far as a float counts exactly; infinity as text."""
    if not math.isfinite(score):
        return str(score)
    return int(score) if abs(score) < 2**53 and score.is_integer() else score
