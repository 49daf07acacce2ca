"""What a stream of events tells, without Spark: nothing twice, and everything that two looks in a row have seen."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ferryman.schema.errors import UsageError
from ferryman.spark.poll import EVENTS, Event, EventKind
from ferryman.spark.stream_state import BEGINNING, Told
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def told(tmp_path: Path) -> Told:
    memory = Told(tmp_path / "state")
    memory.begin()
    return memory


def finding(job_id: str, detail: str = "late", at_ms: int = 1) -> Event:
    return Event(EventKind.FINDING, at_ms, job_id, "mail", rule="KUE-14", severity="warning", key="q:jobs:delayed", detail=detail)


def dead(job_id: str, died_at: int) -> Event:
    return Event(EventKind.DEAD, died_at, job_id, "mail", "mail", detail="boom", died_at=died_at)


def events(told: Told, look: int) -> list[Event]:
    found = told.events(look)
    assert found is not None
    return [event for batch in found for event in EVENTS.rows(batch)]


def looks(told: Told, *sights: Iterable[Event], silently: bool = False) -> list[list[Event]]:
    """What is told when these are seen one after the other, from the beginning."""
    said = []
    for look, seen in enumerate(sights, 1):
        told.tell(seen, look - 1, look, silently=silently)
        said.append(events(told, look))
    return said


def test_a_finding_is_told_when_it_is_seen_again_and_then_no_more(told: Told) -> None:
    seen = [[finding("1", f"late by {look} s", look)] for look in range(4)]
    assert looks(told, *seen) == [[], seen[1], [], []]


def test_a_finding_of_one_look_alone_is_never_told(told: Told) -> None:
    assert looks(told, [finding("1")], [], [finding("1")], []) == [[], [], [], []]


def test_a_finding_that_was_gone_is_new_again(told: Told) -> None:
    here = [finding("1")]
    assert looks(told, here, here, [], here, here) == [[], here, [], [], here]


def test_a_dead_letter_is_told_at_once_and_once_more_when_the_job_has_died_again(told: Told) -> None:
    first, second = [dead("1", 5)], [dead("1", 9)]
    assert looks(told, first, first, second, second) == [first, [], second, []]


def test_what_stands_at_the_beginning_can_be_left_out(told: Told) -> None:
    old, new = [dead("1", 5), finding("1")], [dead("2", 9)]
    assert looks(told, old, [*old, *new], silently=True) == [[], new]


@settings(max_examples=60)
@given(st.lists(st.sets(st.integers(0, 6)), max_size=8))
def test_whatever_comes_and_goes_nothing_is_told_twice_and_nothing_missed(sights: list[set[int]]) -> None:
    with TemporaryDirectory() as folder:
        memory = Told(Path(folder))
        said = [{event.job_id for event in told} for told in looks(memory, *([finding(f"{n}") for n in each] for each in sights))]
    earlier: set[int] = set()
    for number, (before, now) in enumerate(pairwise(sights), 1):
        assert said[number] == {str(n) for n in before & now - earlier}
        earlier = before & now


def test_a_look_that_is_asked_for_again_says_the_same(told: Told) -> None:
    told.tell([dead("1", 5)], BEGINNING, 10)
    told.tell([dead("2", 6)], BEGINNING, 10)
    assert events(told, 10) == [dead("1", 5)]
    assert told.events(11) is None


def test_of_two_attempts_side_by_side_one_counts(told: Told) -> None:
    both = threading.Barrier(2)

    def seen(job_id: str) -> Iterator[Event]:
        yield dead(job_id, 1)
        both.wait(20)  # neither has finished when the other one begins

    attempts = [threading.Thread(target=told.tell, args=(seen(job_id), BEGINNING, 10)) for job_id in "12"]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join(20)
    first = events(told, 10)
    assert len(first) == 1
    assert [path.name for path in told.folder.iterdir()] == ["look-10"]
    told.tell([dead("1", 1), dead("2", 1)], 10, 11)
    assert {event.job_id for event in first + events(told, 11)} == {"1", "2"}


def test_a_look_that_fails_leaves_nothing(told: Told) -> None:
    def seen() -> Iterator[Event]:
        yield dead("1", 1)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        told.tell(seen(), BEGINNING, 10)
    assert list(told.folder.iterdir()) == []


def test_only_the_last_look_is_kept(told: Told) -> None:
    looks(told, [dead("1", 1)], [dead("2", 2)], [dead("3", 3)])
    told.forget(2)
    assert [path.name for path in told.folder.iterdir()] == ["look-2"]
    assert events(told, 2) == [dead("2", 2)]


def test_after_a_batch_that_nobody_has_read_the_look_before_it_counts(told: Told) -> None:
    told.tell([dead("1", 1)], BEGINNING, 10)
    told.forget(20)
    told.tell([dead("1", 1), dead("2", 2)], 20, 30)
    assert events(told, 30) == [dead("2", 2)]


def test_the_folder_of_another_query_is_refused(told: Told) -> None:
    told.tell([dead("1", 1)], BEGINNING, 10)
    with pytest.raises(UsageError, match="here stands what another query has told"):
        told.tell([], BEGINNING, 20)


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="what this stream has told is not here"):
        Told(tmp_path / "gone").tell([], 10, 20)
