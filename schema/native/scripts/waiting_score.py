"""A job's score in ``waiting``: one number made of its priority and its sequence.

``score = rank · 2^45 + sequence``, popped in ascending order: a total order without a clock, first in first out inside a
priority. With ranks from -256 to 255 every score is an integer that a double holds exactly (below 2^53), so Redis never
rounds two neighbours together. The scripts use the same formula (``lua/_queue.lua``). Pure; never talks to Redis.
"""

from __future__ import annotations

from typing import Literal

from ...errors import UsageError

PriorityOrder = Literal["ascending", "descending"]

#: 0 runs before 9, as on ``redis://`` brokers.
ASCENDING: PriorityOrder = "ascending"
#: 9 runs before 0, as on RabbitMQ.
DESCENDING: PriorityOrder = "descending"

LOWEST_PRIORITY = -256
HIGHEST_PRIORITY = 255

RANK_STEP = 2**45
"""What lies between the scores of two ranks: so many sequences there are."""

#: Sequences below this belong to migrated jobs, which so stay ahead of what is published while they are being written.
IMPORTED = 2**40


def check_order(order: str) -> PriorityOrder:
    """The order itself, if there is such a one. Raises UsageError."""
    if order == ASCENDING:
        return ASCENDING
    if order == DESCENDING:
        return DESCENDING
    raise UsageError(f"priority_order {order!r} is unknown: use {ASCENDING!r} (0 first) or {DESCENDING!r} (9 first)")


def check_priority(priority: object) -> int:
    """The priority itself, if it is an integer from -256 to 255. Raises UsageError."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise UsageError(f"priority {priority!r} is not an integer")
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise UsageError(f"priority {priority} is not between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}")
    return priority


def rank(priority: int, order: PriorityOrder = ASCENDING) -> int:
    """The priority as a number that is lower the sooner it runs.

    Descending order mirrors the range onto itself (``-1 - priority``): plain negation would send -256 to 256, whose scores
    a double can't hold.
    """
    return priority if order == ASCENDING else -1 - priority


def score_of(priority: int, sequence: int, order: PriorityOrder = ASCENDING) -> int:
    """The score of the job that came as number ``sequence`` (below 2^45) with this priority."""
    return rank(priority, order) * RANK_STEP + sequence


def priority_of(score: int, order: PriorityOrder = ASCENDING) -> int:
    """The priority that a score was made of."""
    return rank(score // RANK_STEP, order)


def sequence_of(score: int) -> int:
    """The sequence that a score was made of."""
    return score % RANK_STEP
