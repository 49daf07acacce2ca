"""The numbers of thousands of jobs: ``number_of`` (jobnumber.py) for columns. Needs the extra ``spark``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from ..jobnumber import before_id
from .binary_views import BinaryViews
from .jit import compiled

_CRC = np.array([crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256)], np.uint32)
"""What a byte does to a checksum whose lowest byte is 0."""


def numbers_of(ids: BinaryViews, queues: Sequence[str], which: Any) -> Any:
    """``number_of`` of each job (int64). ``which``: the index of each job's queue among these."""
    heads = BinaryViews.of(list(map(before_id, queues)))
    return _hashed(ids.data, ids.starts, ids.sizes, heads.data, heads.starts[which], heads.sizes[which], _CRC)


@compiled
def _checksum(data: Any, start: int, end: int, step: int, found: Any, table: Any) -> Any:
    for at in range(start, end, step):
        found = table[(found ^ data[at]) & 255] ^ (found >> np.uint32(8))
    return found


@compiled
def _hashed(data: Any, starts: Any, sizes: Any, heads: Any, head_starts: Any, head_sizes: Any, table: Any) -> Any:
    numbers = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        start, end = starts[row], starts[row] + sizes[row]
        head, head_end = head_starts[row], head_starts[row] + head_sizes[row]
        forward = _checksum(heads, head, head_end, 1, np.uint32(0xFFFFFFFF), table)
        forward = _checksum(data, start, end, 1, forward, table) ^ np.uint32(0xFFFFFFFF)
        backward = _checksum(data, end - 1, start - 1, -1, np.uint32(0xFFFFFFFF), table)
        backward = _checksum(heads, head_end - 1, head - 1, -1, backward, table) ^ np.uint32(0xFFFFFFFF)
        numbers[row] = (np.int64(forward) << 31) | (np.int64(backward) >> 1)
    return numbers
