"""The history of a job against what JSON and Lua alone make of its entries, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.compat import lua_json
from ferryman.compat.qless import history
from ferryman.compat.qless.history import Timeline
from ferryman.schema.errors import MalformedValue
from ferryman.schema.text import load_loose_json
from hypothesis import given
from hypothesis import strategies as st

from .strategies import event_texts

moments = st.sampled_from(
    [b"0", b"7", b"1795263768", b"9" * 13, b"9" * 14, b"9" * 15, b"-1", b"01", b"1.0", b"1e3", b" 1", b"", b"true"]
)
rests = st.sampled_from(
    [
        b'"put",{"q":"a"}]',
        b'"put",{"queue":"a\\/b"}]',
        b'"put",{"q":"a/b"}]',
        b'"put",{"q":"\x7f"}]',
        b'"put",{"q":"\xff"}]',
        b'"put",{"q":"\xed\xa0\xbd"}]',
        b'"put",{"q":"1.5"}]',
        b'"put",{"q":"a","q":"b"}]',
        b'"put",{"q":"a","n":100000000000000}]',
        b'"put",{"q":"a","n":1.50}]',
        b'"put",{"q": "a"}]',
        b'"put",{"q":"a"}] ',
        b'"put",{"q":"a"}\n]',
        b'"put",{"q":7}]',
        b'"put",{"q":"' + b"x" * 300 + b'"}]',
        b'"put",{"when":5}]',
        b'"put",' + b"[" * 600,
        b'"note",{}]',
        b'"note",[]]',
        b'"note",null]',
        b'"note",{"about":1}]',
        b'"popped",{"worker":"w"}]',
        b'"done"]',
        b'"done"',
        b'"done"],[1]',
        b"5]",
        b"]",
        b"",
    ]
)
entries = st.one_of(event_texts, st.builds(lambda moment, rest: b"[" + moment + b"," + rest, moments, rests))


def event_of(raw: bytes) -> Any:
    """The event in an entry by what the module says of events; None if there is none."""
    try:
        value = load_loose_json(raw)
    except MalformedValue:
        return None
    if not isinstance(value, list) or len(value) not in (2, 3) or not isinstance(value[1], str):
        return None
    if type(value[0]) not in (int, float) or not abs(value[0]) < history.LATEST:
        return None
    about = value[2] if len(value) == 3 else {}
    is_named = isinstance(about, dict) and (about or len(value) == 2) and not {"what", "when", "about"} & about.keys()
    return {"what": value[1], "when": value[0], **(about if is_named else {"about": about})}


@given(st.lists(entries, max_size=4))
def test_each_entry_is_the_event_that_its_json_tells(raws: list[bytes]) -> None:
    found = list(history.read_list(raws))
    expected = [event_of(raw) for raw in raws]
    assert found == expected
    assert [event and [*map(type, event.values())] for event in found] == [
        each and [*map(type, each.values())] for each in expected
    ]
    assert [event and list(event) for event in found] == [each and list(each) for each in expected]


@given(st.lists(entries, max_size=4))
def test_entries_that_are_taken_as_they_are_are_those_that_would_be_written(raws: list[bytes]) -> None:
    timeline = Timeline.of_list(raws)
    try:
        written = history.write_list(timeline.events)
    except MalformedValue:
        written = None
    assert timeline.entries == (raws if written == raws else None)


@given(st.lists(entries, max_size=6))
def test_what_a_history_tells_is_what_its_events_tell_one_by_one(raws: list[bytes]) -> None:
    timeline = Timeline.of_list(raws)
    events = [event for event in map(event_of, raws) if event is not None]
    times = [round(event["when"] * 1000) for event in events]
    own = {what: [] for what in ("put", "popped", "done")}
    for event, at in zip(events, times, strict=True):
        if history.is_own(event):
            own.setdefault(event["what"], []).append(at)
    queues = [event.get("q", event.get("queue")) for event in events if event["what"] == "put" and history.is_own(event)]
    assert timeline.put_at == next(iter(own["put"]), None)
    assert (timeline.popped_at, timeline.pops) == (next(reversed(own["popped"]), None), len(own["popped"]))
    assert timeline.done_at == next(reversed(own["done"]), None)
    assert timeline.latest == max(times, default=None)
    assert timeline.last_queue == next((queue for queue in reversed(queues) if isinstance(queue, str) and queue), "")
    assert timeline.logs == tuple(history.log_line(event) for event in events if not history.is_own(event))
    told = Timeline.of_events(timeline.events)
    assert told.entries is None
    assert (told.logs, told.latest, told.last_queue) == (timeline.logs, timeline.latest, timeline.last_queue)


def test_events_of_entries_that_say_the_same_at_other_moments_are_their_own() -> None:
    first, second = history.read_list([b'[1,"put",{"q":"a"}]', b'[2,"put",{"q":"a"}]'])
    assert (first, second) == ({"what": "put", "when": 1, "q": "a"}, {"what": "put", "when": 2, "q": "a"})


@pytest.mark.parametrize(
    "line", [b'[1795263768,"put",{"q":"q"}]', b'[1795263768,"popped",{"worker":"w"}]', b'[1795263768,"done"]']
)
def test_what_qless_writes_is_not_encoded_again(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    Timeline.of_list([line])
    monkeypatch.setattr(lua_json, "dump", None)
    assert Timeline.of_list([line]).entries == [line]
