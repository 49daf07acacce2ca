"""Values in many surroundings: each way puts others before and after them, so that reading too far or too early shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
from ferryman.schema.columnar.binary_views import BinaryViews, concat
from hypothesis import strategies as st

Way = Callable[[list[bytes], list[bytes], list[bytes]], BinaryViews]


def sliced(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    return BinaryViews.from_arrow(pa.array([*before, *values, *after], pa.binary()).slice(len(before), len(values)))


def packed_again(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    return BinaryViews.from_arrow(sliced(values, before, after).to_arrow())


def parted(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    return BinaryViews.of([*before, *values, *after]).slice(len(before), len(before) + len(values))


def masked(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    mask = [False] * len(before) + [True] * len(values) + [False] * len(after)
    return BinaryViews.of([*before, *values, *after]).take(np.array(mask, np.bool_))


def turned(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    return BinaryViews.of([*before, *reversed(values), *after]).take(len(before) + np.arange(len(values))[::-1])


def joined(values: list[bytes], before: list[bytes], after: list[bytes]) -> BinaryViews:
    half = len(values) // 2
    pieces = [BinaryViews.of(before), sliced(values[:half], after, before), BinaryViews.of(values[half:]), BinaryViews.of(after)]
    return concat(pieces).slice(len(before), len(before) + len(values))


def numbered(keys: Iterable[object]) -> tuple[list[int], list[int]]:
    """A number for each, in the order in which they first stand there, and where that is."""
    numbers: dict[object, int] = {}
    codes, firsts = [], []
    for row, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(numbers)
            firsts.append(row)
        codes.append(numbers[key])
    return codes, firsts


WAYS: list[Way] = [sliced, packed_again, parted, masked, turned, joined]


@st.composite
def stored(draw: st.DrawFn, each: st.SearchStrategy[bytes], max_size: int = 12) -> tuple[BinaryViews, list[bytes]]:
    """BinaryViews, and the same as Python's own."""
    values = draw(st.lists(each, max_size=max_size))
    before, after = draw(st.lists(each, max_size=2)), draw(st.lists(each, max_size=2))
    return draw(st.sampled_from(WAYS))(values, before, after), values
