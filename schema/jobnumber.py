"""A number for each job by its queue and id, for whoever sorts and joins millions of jobs.

columnar/jobnumbers.py has it for columns.
"""

from __future__ import annotations

from zlib import crc32

from .text import to_bytes


def number_of(queue: str, job_id: str) -> int:
    """Below 2^63. Different jobs have different numbers, but for about one in 2^63."""
    return _number_of(before_id(queue) + to_bytes(job_id))


def number_of_raw(job_id: bytes) -> int:
    """``number_of`` without a queue, for an id as keys have it."""
    return _number_of(BEFORE_RAW + job_id)


def _number_of(name: bytes) -> int:
    # Both ways: names of which only one checksum is the same are no rarity among billions.
    return crc32(name) << 31 | crc32(name[::-1]) >> 1


def before_id(queue: str) -> bytes:
    """What stands before the id in the text whose checksums are the number."""
    return to_bytes(f"{len(queue)}:{queue}")


BEFORE_RAW = before_id("")
