"""Checksum: the CRC-64 at the end of a snapshot file, of pieces that may be read side by side.

Polynomial ad93d23594c935a9, reflected, from 0: crc64.c of Redis. anycrc computes it at some GB a second. Pure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..schema.errors import UsageError

SIZE = 8
"""Bytes of a checksum."""
NONE = 0
"""What a server writes that computes none (``rdbchecksum no``)."""


def crc64(data: Any, start: int, end: int) -> int:
    """Of the bytes from one position to another. Raises UsageError where anycrc is missing."""
    with memoryview(data) as view, view[start:end] as piece:
        return int(_model().calc(piece))


def joined(first: int, second: int, size: int) -> int:
    """The checksum of bytes that are followed by ``size`` others, by the checksums of both."""
    return int(_model().combine(first, second, size))


@cache
def _model() -> Any:
    try:
        from anycrc import Model
    except ImportError:
        raise UsageError(
            "the checksum of RDB files needs anycrc: pip install 'ferryman[rdb]', or do without it by --no-checksum"
        ) from None
    return Model("CRC64-REDIS")
