"""Digits: whole columns of decimal texts as arrays of numbers, for families that look at millions of records at a glance.

Needs numpy, which comes with the extra ``spark``. Called by the ``columns.py`` of families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MOST = 18
"""More digits may not fit into 64 bits."""
ZERO = ord("0")


def numbers_in(texts: Sequence[bytes], start: int = 0) -> Any:
    """The number that the digits from ``start`` on stand for, of each text; -1 for everything else.

    Only ASCII digits, 1 to 18 of them: an empty text, a sign, and a longer one are -1.
    """
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) - start
    widest = int(min(sizes.max(initial=0), MOST))
    fits = (sizes > 0) & (sizes <= MOST)
    # The texts side by side, padded with zero bytes; longer ones are cut, and don't fit anyway.
    cells = np.array(texts, f"S{start + MOST}").view(np.uint8).reshape(len(texts), start + MOST)
    found = np.zeros(len(texts), np.int64)
    for place in range(widest):
        digit = cells[:, start + place].astype(np.int64) - ZERO
        inside = place < sizes
        fits &= ~inside | ((digit >= 0) & (digit <= 9))
        found = np.where(inside, found * 10 + digit, found)
    return np.where(fits, found, -1)
