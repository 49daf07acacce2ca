"""State indexes: the keys in which the jobs of a queue that are in one state stand in order, so that a page of them can be read.

Told by ``KeyFamily.state_indexes``, read by ``operations/pages.py``. Plain values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Literal

from attrs import frozen

StateIndexQuery = Generator[Sequence[tuple[bytes | str | int | float, ...]], Sequence[Any], "Sequence[StateIndex]"]
"""A question that may take a few rounds: yields commands, is sent their replies, returns the indexes, what runs first first."""


@frozen
class StateIndex:
    """A list, zset or set whose items are jobs in one state, with perhaps a few others that are not in it any more."""

    key: bytes
    redis_type: Literal["list", "zset", "set"]
    runs_from_tail: bool = False
    """Whether the item that runs first is the last of the list, or has the highest score."""
    has_records: bool = False
    """Whether an item is all of a job, and no key beside it need be read."""


def known(indexes: Sequence[StateIndex]) -> StateIndexQuery:
    """The query of a family that need not ask for its indexes."""
    yield from ()
    return indexes
