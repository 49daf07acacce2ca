"""The numbers of thousands of jobs: ``number_of`` (jobnumber.py) for columns. Needs the extra ``columnar``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from ..jobnumber import before_id
from .binary_views import BinaryViews
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_INTS, helper, kernel

_CRC = np.array([crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256)], np.uint32)
"""What a byte does to a checksum whose lowest byte is 0."""
_ONES = np.uint32(0xFFFFFFFF)


def numbers_of(ids: BinaryViews, queues: Sequence[str], which: Any) -> Any:
    """``number_of`` of each job (int64). ``which``: the index of each job's queue among these."""
    heads = BinaryViews.of(list(map(before_id, queues)))
    numbers = np.empty(len(ids), np.int64)
    _hash(ids.data, ids.starts, ids.sizes, heads.data, heads.starts[which], heads.sizes[which], numbers)
    return numbers


@helper
def _checksum(data: Any, start: int, size: int, is_backward: bool, found: Any) -> Any:
    for index in range(size):
        at = start + size - 1 - index if is_backward else start + index
        found = np.uint32(_CRC[(found ^ data[at]) & 255] ^ (found >> np.uint32(8)))
    return found


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _hash(data: Any, starts: Any, sizes: Any, heads: Any, head_starts: Any, head_sizes: Any, numbers: Any) -> None:
    for row in range(len(starts)):
        start, size, head, head_size = starts[row], sizes[row], head_starts[row], head_sizes[row]
        forward = _checksum(heads, head, head_size, False, _ONES)
        forward = _checksum(data, start, size, False, forward) ^ _ONES
        backward = _checksum(data, start, size, True, _ONES)
        backward = _checksum(heads, head, head_size, True, backward) ^ _ONES
        numbers[row] = (np.int64(forward) << 31) | (np.int64(backward) >> 1)
