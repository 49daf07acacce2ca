"""Field sets: records whose fields have the same names in the same order, told apart in thousands of hashes at once.

What is done once for each combination of fields is not done for each record. Called by key_rows.py and by projections.
tests/schema/columnar/test_field_sets.py. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .binary_views import NULL, BinaryViews
from .jit import compiled, same


def field_sets(counts: Any, words: BinaryViews, step: int = 2) -> tuple[Any, list[int]]:
    """A code for each of the records that these words make up, the same for those with the same fields in the same order.

    ``counts``: how many words each has. Every ``step``-th is a name. The second value: the first record of each code.
    """
    codes, firsts = _field_sets(counts, words.data, words.starts, words.sizes, step)
    return codes, firsts.tolist()


def select_fields(
    counts: Any, words: BinaryViews, names: Sequence[bytes]
) -> tuple[dict[bytes, BinaryViews], Any, list[tuple[bytes, ...]]]:
    """These fields of the records that these words make up, nulls where one lacks it.

    And the code of each record that ``field_sets`` gives, and the names of the fields behind each code.
    """
    codes, firsts = field_sets(counts, words)
    begins = np.cumsum(counts) - counts
    those = [tuple(words.slice(begins[first], begins[first] + counts[first]).to_list()[::2]) for first in firsts]
    offsets = np.full((len(firsts), len(names)), NULL, np.int64)
    for code, present in enumerate(those):
        for index, name in enumerate(names):
            if name in present:
                offsets[code, index] = 2 * present.index(name) + 1
    starts, sizes = _fields(begins, codes, offsets, words.starts, words.sizes)
    return {name: BinaryViews(words.data, starts[at], sizes[at]) for at, name in enumerate(names)}, codes, those


# The loops


@compiled
def _alike(data: Any, starts: Any, sizes: Any, one: int, other: int, count: int, step: int) -> bool:
    for index in range(0, count, step):
        if sizes[one + index] != sizes[other + index]:
            return False
        if not same(data, starts[one + index], data, starts[other + index], sizes[one + index]):
            return False
    return True


@compiled
def _field_sets(counts: Any, data: Any, starts: Any, sizes: Any, step: int) -> Any:
    rows = len(counts)
    codes, firsts, begins = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    known, latest, begin = 0, 0, 0
    for row in range(rows):
        begins[row] = begin
        # Few sets of fields follow one another in any order: the one before is most likely, and there are few others.
        code = -1
        for index in range(known):
            each = (latest + index) % known
            first = firsts[each]
            if counts[first] == counts[row] and _alike(data, starts, sizes, begins[first], begin, counts[row], step):
                code = each
                break
        if code < 0:
            code = known
            firsts[known] = row
            known += 1
        codes[row] = latest = code
        begin += counts[row]
    return codes, firsts[:known]


@compiled
def _fields(begins: Any, codes: Any, offsets: Any, starts: Any, sizes: Any) -> Any:
    rows, names = len(begins), offsets.shape[1]
    found_starts, found_sizes = np.zeros((names, rows), np.int64), np.full((names, rows), NULL, np.int64)
    for row in range(rows):
        for name in range(names):
            offset = offsets[codes[row], name]
            if offset != NULL:
                found_starts[name, row] = starts[begins[row] + offset]
                found_sizes[name, row] = sizes[begins[row] + offset]
    return found_starts, found_sizes
