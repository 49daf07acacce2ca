"""Field sets: records whose fields have the same names in the same order, told apart in thousands of hashes at once.

What is done once for each combination of fields is not done for each record. Called by key_rows.py and by projections.
tests/schema/columnar/test_field_sets.py. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .binary_views import NULL, BinaryViews
from .jit import BYTE_ARRAY, INT, INT_ARRAY, OUT_INTS, helper, kernel, same


def field_sets(counts: Any, words: BinaryViews, step: int = 2) -> tuple[Any, list[int]]:
    """A code for each of the records that these words make up, the same for those with the same fields in the same order.

    ``counts``: how many words each has. Every ``step``-th is a name. The second value: the first record of each code.
    """
    codes, firsts = np.empty((2, len(counts)), np.int64)
    begins = np.cumsum(counts) - counts
    known = _field_sets(counts, begins, words.data, words.starts, words.sizes, step, codes, firsts)
    return codes, firsts[:known].tolist()


def select_fields(
    counts: Any, words: BinaryViews, names: Sequence[bytes]
) -> tuple[dict[bytes, BinaryViews], Any, list[tuple[bytes, ...]]]:
    """These fields of the records that these words make up, nulls where one lacks it.

    And the code of each record that ``field_sets`` gives, and the names of the fields behind each code.
    """
    codes, firsts = field_sets(counts, words)
    begins = np.cumsum(counts) - counts
    those = [tuple(words.slice(begins[first], begins[first] + counts[first]).to_list()[::2]) for first in firsts]
    offsets = np.full((len(names), len(firsts)), NULL, np.int64)
    for code, present in enumerate(those):
        for index, name in enumerate(names):
            if name in present:
                offsets[index, code] = 2 * present.index(name) + 1
    starts, sizes = np.zeros((len(names), len(counts)), np.int64), np.full((len(names), len(counts)), NULL, np.int64)
    for at in range(len(names)):
        _field(begins, codes, offsets[at], words.starts, words.sizes, starts[at], sizes[at])
    return {name: BinaryViews(words.data, starts[at], sizes[at]) for at, name in enumerate(names)}, codes, those


# The loops


@helper
def _alike(data: Any, starts: Any, sizes: Any, one: int, other: int, count: int, step: int) -> bool:
    for index in range(0, count, step):
        if sizes[one + index] != sizes[other + index]:
            return False
        if not same(data, starts[one + index], data, starts[other + index], sizes[one + index]):
            return False
    return True


@kernel(INT_ARRAY, INT_ARRAY, BYTE_ARRAY, INT_ARRAY, INT_ARRAY, INT, OUT_INTS, OUT_INTS)
def _field_sets(counts: Any, begins: Any, data: Any, starts: Any, sizes: Any, step: int, codes: Any, firsts: Any) -> int:
    """Fills in the code of each record, and the first record of each code; how many codes there are."""
    known, latest = 0, 0
    for row in range(len(counts)):
        # Few sets of fields follow one another in any order: the one before is most likely, and there are few others.
        code = -1
        for index in range(known):
            each = (latest + index) % known
            first = firsts[each]
            if counts[first] == counts[row] and _alike(data, starts, sizes, begins[first], begins[row], counts[row], step):
                code = each
                break
        if code < 0:
            code = known
            firsts[known] = row
            known += 1
        codes[row] = latest = code
    return known


@kernel(INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, OUT_INTS)
def _field(begins: Any, codes: Any, offsets: Any, starts: Any, sizes: Any, found_starts: Any, found_sizes: Any) -> None:
    """Fills in the value of one field, where a record has it: so many words, by its code, behind its first one."""
    for row in range(len(begins)):
        offset = offsets[codes[row]]
        if offset != NULL:
            found_starts[row], found_sizes[row] = starts[begins[row] + offset], sizes[begins[row] + offset]
