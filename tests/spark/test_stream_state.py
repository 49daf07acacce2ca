"""What a stream of events reports, without Spark: nothing twice, and everything that two polls in a row have seen."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ferryman.schema.errors import UsageError
from ferryman.spark.poll import EVENTS, Event, EventKind
from ferryman.spark.stream_state import BEGINNING, StreamState
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support.effort import examples


@pytest.fixture
def state(tmp_path: Path) -> StreamState:
    state = StreamState(tmp_path / "state")
    state.begin()
    return state


def finding(job_id: str, detail: str = "late", at_ms: int = 1) -> Event:
    return Event(EventKind.FINDING, at_ms, job_id, "mail", rule="KUE-14", severity="warning", key="q:jobs:delayed", detail=detail)


def dead(job_id: str, died_at: int) -> Event:
    return Event(EventKind.DEAD, died_at, job_id, "mail", "mail", detail="boom", died_at=died_at)


def events(state: StreamState, poll: int) -> list[Event]:
    found = state.events(poll)
    assert found is not None
    return [event for batch in found for event in EVENTS.rows(batch)]


def polls(state: StreamState, *seen_at_polls: Iterable[Event], silently: bool = False) -> list[list[Event]]:
    """What is reported when these are seen one after the other, from the beginning."""
    reported = []
    for poll, seen in enumerate(seen_at_polls, 1):
        state.record(seen, poll - 1, poll, silently=silently)
        reported.append(events(state, poll))
    return reported


def test_a_finding_is_reported_when_it_is_seen_again_and_then_no_more(state: StreamState) -> None:
    seen = [[finding("1", f"late by {poll} s", poll)] for poll in range(4)]
    assert polls(state, *seen) == [[], seen[1], [], []]


def test_a_finding_of_one_poll_alone_is_never_reported(state: StreamState) -> None:
    assert polls(state, [finding("1")], [], [finding("1")], []) == [[], [], [], []]


def test_a_finding_that_was_gone_is_new_again(state: StreamState) -> None:
    here = [finding("1")]
    assert polls(state, here, here, [], here, here) == [[], here, [], [], here]


def test_a_dead_letter_is_reported_at_once_and_once_more_when_the_job_has_died_again(state: StreamState) -> None:
    first, second = [dead("1", 5)], [dead("1", 9)]
    assert polls(state, first, first, second, second) == [first, [], second, []]


def test_what_is_there_at_the_beginning_can_be_left_out(state: StreamState) -> None:
    old, new = [dead("1", 5), finding("1")], [dead("2", 9)]
    assert polls(state, old, [*old, *new], silently=True) == [[], new]


@settings(max_examples=examples(60))
@given(st.lists(st.sets(st.integers(0, 6)), max_size=8))
def test_whatever_comes_and_goes_nothing_is_reported_twice_and_nothing_missed(seen_at_polls: list[set[int]]) -> None:
    with TemporaryDirectory() as folder:
        state = StreamState(Path(folder))
        reported = [
            {event.job_id for event in state}
            for state in polls(state, *([finding(f"{n}") for n in each] for each in seen_at_polls))
        ]
    earlier: set[int] = set()
    for number, (before, now) in enumerate(pairwise(seen_at_polls), 1):
        assert reported[number] == {str(n) for n in before & now - earlier}
        earlier = before & now


def test_a_poll_that_is_asked_for_again_says_the_same(state: StreamState) -> None:
    state.record([dead("1", 5)], BEGINNING, 10)
    state.record([dead("2", 6)], BEGINNING, 10)
    assert events(state, 10) == [dead("1", 5)]
    assert state.count(11) is None


def test_of_two_attempts_side_by_side_one_counts(state: StreamState) -> None:
    both = threading.Barrier(2)

    def seen(job_id: str) -> Iterator[Event]:
        yield dead(job_id, 1)
        both.wait(100)  # neither has finished when the other one begins

    attempts = [threading.Thread(target=state.record, args=(seen(job_id), BEGINNING, 10)) for job_id in "12"]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join(100)
    first = events(state, 10)
    assert len(first) == 1
    assert [path.name for path in state.folder.iterdir()] == ["look-10"]
    state.record([dead("1", 1), dead("2", 1)], 10, 11)
    assert {event.job_id for event in first + events(state, 11)} == {"1", "2"}


def test_a_poll_that_fails_leaves_nothing(state: StreamState) -> None:
    def seen() -> Iterator[Event]:
        yield dead("1", 1)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        state.record(seen(), BEGINNING, 10)
    assert list(state.folder.iterdir()) == []


def test_only_the_last_poll_is_kept(state: StreamState) -> None:
    polls(state, [dead("1", 1)], [dead("2", 2)], [dead("3", 3)])
    state.prune(2)
    assert [path.name for path in state.folder.iterdir()] == ["look-2"]
    assert events(state, 2) == [dead("2", 2)]


def test_after_a_batch_that_nobody_has_read_the_poll_before_it_counts(state: StreamState) -> None:
    state.record([dead("1", 1)], BEGINNING, 10)
    state.prune(20)
    state.record([dead("1", 1), dead("2", 2)], 20, 30)
    assert events(state, 30) == [dead("2", 2)]


def test_the_folder_of_another_query_is_refused(state: StreamState) -> None:
    state.record([dead("1", 1)], BEGINNING, 10)
    with pytest.raises(UsageError, match="this is what another query has reported"):
        state.record([], BEGINNING, 20)


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="what this stream has reported is not here"):
        StreamState(tmp_path / "gone").record([], 10, 20)
