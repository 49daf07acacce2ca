"""Jobs that are counted at once are counted as each of them."""

from __future__ import annotations

from ferryman.migrations.engine import AGES, Census
from ferryman.schema.job import Job, State
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000_000

times = st.sampled_from([NOW - ms + shift for ms in AGES.values() for shift in (-1, 0, 1)]) | st.integers(-(2**62), 2**62)


@given(st.lists(st.tuples(st.sampled_from(["mail", "report"]), st.lists(st.none() | times, max_size=5)), max_size=3))
def test_jobs_are_counted_at_once_as_one_by_one(groups: list[tuple[str, list[int | None]]]) -> None:
    at_once, singly = Census(), Census()
    for queue, created in groups:
        dated = [each for each in created if each is not None]
        at_once.count_created(queue, str(State.WAITING), dated, NOW, len(created) - len(dated))
        for number, created_at in enumerate(created):
            singly.count(Job(str(number), queue, queue, State.WAITING, created_at=created_at), NOW)
    assert at_once == singly
