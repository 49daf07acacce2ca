"""Job index: a sorted set in which all jobs of a keyspace stand, and how its members name their records. A plain value.

Who only wants records need not look for them among all keys then. Told by ``KeyFamily.job_index``, used by spark/index_scan.py.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class JobIndex:
    """The record of a member is the hash whose name is ``prefix`` and what the member says of the job's id."""

    key: bytes
    prefix: bytes
    separator: int
    """The id stands behind the first such byte of a member, or is all of one that has none."""
