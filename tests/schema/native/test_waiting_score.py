"""Scores in waiting: exact numbers, whose order is priority first and then first in first out."""

from __future__ import annotations

import pytest
from ferryman.schema.errors import UsageError
from ferryman.schema.native.scripts.waiting_score import (
    ASCENDING,
    DESCENDING,
    PriorityOrder,
    check_priority,
    priority_of,
    score_of,
    sequence_of,
)
from hypothesis import given
from hypothesis import strategies as st

priorities = st.integers(-256, 255)
sequences = st.integers(0, 2**45 - 1)
orders = st.sampled_from([ASCENDING, DESCENDING])


@given(priorities, sequences, orders)
def test_a_score_tells_its_priority_and_sequence_and_a_double_holds_it(
    priority: int, sequence: int, order: PriorityOrder
) -> None:
    found = score_of(priority, sequence, order)
    assert (priority_of(found, order), sequence_of(found)) == (priority, sequence)
    assert int(float(found)) == found


@given(st.tuples(priorities, sequences), st.tuples(priorities, sequences))
def test_lower_priorities_run_first_in_ascending_order_and_last_in_descending(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (score_of(*one) < score_of(*other)) == (one < other)
    mirrored = (-one[0], one[1]) < (-other[0], other[1])
    assert (score_of(*one, DESCENDING) < score_of(*other, DESCENDING)) == mirrored


@pytest.mark.parametrize("priority", [-257, 256, 1.0, "1", None, True])
def test_a_priority_that_has_no_place_is_refused(priority: object) -> None:
    with pytest.raises(UsageError):
        check_priority(priority)
