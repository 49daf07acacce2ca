"""Positions are compared range by range; the queues that are suspected are those in which jobs would run in another order."""

from __future__ import annotations

import tempfile
from collections import defaultdict

import pyarrow as pa
import pytest
from ferryman.migrations.engine import order_check
from ferryman.migrations.engine.order_check import SCHEMA, Positions, PositionsFile, disordered_queues, ranges
from ferryman.migrations.engine.runner import InProcess
from ferryman.migrations.engine.shuffle import read_bucket
from ferryman.migrations.order import order_difference
from hypothesis import event, given
from hypothesis import strategies as st

Position = tuple[str, str, int, int]
"""Queue, id, and the positions wanted and found."""
COLUMNS = SCHEMA.remove(0)


@st.composite
def some_positions(draw: st.DrawFn) -> list[Position]:
    """Positions of jobs of which few, if any, have moved."""
    found: list[Position] = []
    for queue in ("mail", "mail ü"):
        wanted = draw(st.lists(st.integers(0, 12), max_size=8, unique=draw(st.booleans())))
        steps = draw(st.lists(st.integers(0, 9), min_size=len(wanted), max_size=len(wanted)))
        actual = sorted(wanted) if draw(st.booleans()) else steps
        found += [(queue, str(number), *each) for number, each in enumerate(zip(sorted(wanted), actual, strict=True))]
    return draw(st.permutations(found))


def suspected(folder: str, those: list[Position], buckets: int) -> list[str]:
    """The queues that are suspected, when two tasks have written the positions."""
    files: list[str] = []
    for number in range(2):
        file = PositionsFile(folder, buckets)
        table = pa.Table.from_pylist([dict(zip(COLUMNS.names, position, strict=True)) for position in those[number::2]], COLUMNS)
        file.add(*(column.combine_chunks() for column in table.columns))
        files += file.close()
    tables = (pa.Table.from_batches(read_bucket(files, bucket, buckets, SCHEMA), SCHEMA) for bucket in range(buckets))
    return disordered_queues(each for table in tables for each in ranges(table))


@given(some_positions(), st.integers(1, 3), st.integers(1, 6))
def test_a_queue_is_suspected_when_its_order_differs(those: list[Position], buckets: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_check, "RANGE_SIZE", size)
        found = suspected(folder, those, buckets)
    by_queue = defaultdict(list)
    for queue, *position in those:
        by_queue[queue].append(position)
    for queue, of_queue in by_queue.items():
        orders = [
            [job_id for job_id, *_ in sorted(of_queue, key=lambda position, at=at: (position[at], position[0]))] for at in (1, 2)
        ]
        has_ties = any(len({position[at] for position in of_queue}) < len(of_queue) for at in (1, 2))
        event(f"ties: {has_ties}")
        assert (queue in found) == (has_ties or order_difference(queue, *orders) is not None)


def test_the_first_job_of_each_queue_that_stands_elsewhere_is_told(tmp_path) -> None:
    """Jobs of the same position run in the order of their ids, so that these are no difference by themselves."""
    file = PositionsFile(str(tmp_path), 2)
    wanted = {"same": [0, 1, 2, 3], "tied": [0, 1, 1, 3], "other": [0, 1, 2, 3]}
    found = {"same": [4, 5, 7, 9], "tied": [0, 2, 2, 5], "other": [0, 2, 1, 3]}
    for queue in wanted:
        ids = ["a", "b", "c", "d"]
        file.add(pa.array([queue] * 4), pa.array(ids), pa.array(wanted[queue]), pa.array(found[queue]))
    (difference,) = Positions(tuple(file.close()), 2).differences(InProcess(), lambda *_: None)
    assert difference == order_difference("other", ["a", "b", "c", "d"], ["a", "c", "b", "d"])


def test_no_positions_are_in_order() -> None:
    assert not list(Positions((), 2).differences(InProcess(), lambda *_: None))
