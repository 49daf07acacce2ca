"""Draw: what generated jobs of every family are drawn from, so that the same seed gives the same jobs on any machine.

Called by each family's ``generate.py``.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import TypeVar

T = TypeVar("T")

TEXT = 'lorem ipsum dolor Grüße façade 東京 мир naïve back\\slash "quoted" tab\tend 🙂 delta gamma'


def shares(random: Random, pairs: Sequence[tuple[T, int]]) -> Callable[[], T]:
    """Draws values in proportion to their shares, each time it is called."""
    values = [value for value, _ in pairs]
    ends = list(accumulate(share for _, share in pairs))
    return lambda: values[bisect(ends, random.random() * ends[-1])]


def text(random: Random) -> str:
    """Mostly some hundred characters, now and then many thousand, of many alphabets."""
    return " ".join(random.choices(TEXT.split(" "), k=int(random.paretovariate(0.8)) % 3000 + 8))
