"""A number for each job by its queue and id, for whoever sorts and joins millions of jobs.

columnar/jobnumbers.py has it for columns.
"""

from __future__ import annotations

from zlib import crc32

from .text import to_bytes


def number_of(queue: str, job_id: str) -> int:
    """Below 2^63. Different jobs have different numbers, but for about one in 2^63."""
    # Both ways: names of which only one checksum is the same are no rarity among billions.
    name = before_id(queue) + to_bytes(job_id)
    return crc32(name) << 31 | crc32(name[::-1]) >> 1


def before_id(queue: str) -> bytes:
    """What stands before the id in the text whose checksums are the number."""
    return to_bytes(f"{len(queue)}:{queue}")
