"""Jobs of qless that are accepted are left out of audits, and nothing of what rules find or count is missing."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve
from ferryman.compat.qless import FAMILY, history
from ferryman.compat.qless.prefilter import NEEDED
from ferryman.schema.fact import Entry, join
from ferryman.schema.prefilter import Member
from ferryman.schema.text import to_text
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.captures import Capture, captures
from ...support.effort import examples
from ...support.prefiltered_audits import address, changed, expected, prefiltered
from ...support.prefiltering import accept
from . import strategies
from .keyspaces import HISTORY, NOW, PUT, STANDING, generated, sound

QLESS = address("qless", "ql")
GENERATED = generated(25, 4)
FIELDS = [*NEEDED, *b"failure worker expires throttles spawned_from_jid grace scheduled history id ferryman tenant".split()]
MEMBERS = ["group", "type", "message", "when", "worker"]
RECORDS = [entry for entry in GENERATED if entry.redis_type == "hash"]


def left(keys: list[Entry]) -> set[bytes]:
    """The generated jobs that are not accepted: those that run, wait for others or release them, and those that wait with
    a priority that is no whole number."""
    found: set[bytes] = set()
    for entry in keys:
        if entry.key.endswith((b"-locks", b"-depends")):
            found.update(member for member, _ in entry.value)
        elif entry.key.endswith(b"-dependents"):
            found.add(entry.key[5 : -len(b"-dependents")])
        elif entry.redis_type == "hash" and entry.value[b"priority"] == b"1.5":
            found.update([entry.value[b"jid"]] if entry.value[b"state"] in (b"waiting", b"stalled") else ())
    return found


@pytest.mark.parametrize(("seed", "least"), [(4, 410), (5, 410)], ids=["qless", "reqless"])
def test_generated_jobs_are_accepted_unless_they_run_or_are_tied_to_others(seed: int, least: int) -> None:
    keys = generated(500, seed)
    found, accepted = prefiltered(QLESS, keys, NOW)
    assert found == expected(QLESS, keys, NOW)
    assert not found[0]
    assert accepted == 500 - len(left(keys)) > least


@settings(max_examples=examples(300))
@given(st.sampled_from([GENERATED, generated(25, 5)]).flatmap(lambda keys: changed(keys, b"failure", FIELDS, MEMBERS)))
def test_an_audit_of_a_keyspace_with_changes_finds_and_counts_the_same(keys: list[Entry]) -> None:
    found, accepted = prefiltered(QLESS, keys, NOW)
    event(f"found: {sorted({finding.rule for finding in found[0]})}, accepted: {accepted > 15}")
    assert found == expected(QLESS, keys, NOW)


@settings(max_examples=examples(600))
@given(
    st.sampled_from(sorted(STANDING)),
    st.dictionaries(strategies.fields, st.one_of(st.none(), strategies.texts), max_size=2),
    st.one_of(st.none(), st.lists(st.one_of(strategies.histories, strategies.texts), max_size=4)),
    st.one_of(st.none(), st.sampled_from([0.0, 5.18, 5 + PUT / 1e10, 5 - PUT / 1e10, 1e18, float("inf"), float("-inf")])),
    st.lists(strategies.entries(), max_size=2, unique_by=lambda entry: entry.key),
)
def test_an_audit_of_any_job_finds_and_counts_the_same(word, fields, lines, score, others: list[Entry]) -> None:
    keys = sound(word)
    record = keys[b"ql:j:1"].value | fields
    keys[b"ql:j:1"] = Entry(b"ql:j:1", "hash", {name: value for name, value in record.items() if value is not None})
    if lines is not None:
        keys[b"ql:j:1-history"] = Entry(b"ql:j:1-history", "list", lines)
    key, redis_type, _ = STANDING[word]
    if score is not None and redis_type == "zset":
        keys[key] = Entry(key, redis_type, [(b"1", score)])
    those = list((keys | {entry.key: entry for entry in others}).values())
    found, accepted = prefiltered(QLESS, those, NOW)
    event(f"accepted: {accepted}")
    assert found == expected(QLESS, those, NOW)


@given(st.lists(strategies.entries(), max_size=8, unique_by=lambda entry: entry.key))
def test_an_audit_of_any_keys_finds_and_counts_the_same(keys: list[Entry]) -> None:
    found, _ = prefiltered(QLESS, keys, NOW)
    assert found == expected(QLESS, keys, NOW)


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_an_audit_of_a_real_keyspace_finds_and_counts_the_same(case: Capture) -> None:
    keys, keyspace = list(case.entries()), address("qless", case.prefix)
    found, _ = prefiltered(keyspace, keys, case.captured_at_ms)
    assert found == expected(keyspace, keys, case.captured_at_ms)


@pytest.mark.parametrize("word", STANDING)
def test_jobs_as_qless_writes_them_are_accepted(word: str) -> None:
    def accepted(keys: dict[bytes, Entry]) -> int:
        found, number = prefiltered(QLESS, keys.values(), NOW)
        assert found == expected(QLESS, keys.values(), NOW)
        return number

    keys = sound(word)
    assert accepted(keys) == 1
    assert accepted(sound(word, throttles=b'["t"]', tags=b'["a","a"]')) == 1
    assert accepted(sound(word, tags=b"{}")) == 0, "in the set of a tag that it has not"
    assert accepted(sound(word, tags=b'["a","b"]')) == 0, "not in the set of a tag that it has"
    assert accepted(sound(word, grace=b"1")) == 0
    assert accepted(sound(word, ferryman=b"{}")) == 0
    assert accepted({key: entry for key, entry in keys.items() if key != b"ql:j:1-history"}) == 0
    assert accepted(keys | {b"ql:j:2-dependents": Entry(b"ql:j:2-dependents", "set", [b"1"])}) == 0
    assert accepted(keys | {b"ql:tracked": Entry(b"ql:tracked", "zset", [(b"1", 1.0)])}) == 0
    told = keys[b"ql:j:1-history"]
    assert accepted(keys | {told.key: evolve(told, value=[*told.value, b"[]"])}) == 0
    assert accepted(keys | {told.key: evolve(told, value=[*told.value, b'[%d,"seen"]' % PUT])}) == 1
    assert accepted(keys | {told.key: evolve(told, ttl_ms=1000)}) == 0


def test_a_job_that_was_tried_is_accepted_as_one_and_so_is_one_timed_out_by_hand() -> None:
    tried = sound("waiting", remaining=b"4")
    assert prefiltered(QLESS, tried.values(), NOW)[1] == 0
    tried[b"ql:j:1-history"] = Entry(b"ql:j:1-history", "list", HISTORY["failed"][:2])
    found, accepted = prefiltered(QLESS, tried.values(), NOW)
    assert (found, accepted) == (expected(QLESS, tried.values(), NOW), 1)
    stalled = sound("waiting", state=b"stalled") | {b"ql:q:q-work": Entry(b"ql:q:q-work", "zset", [(b"1", float("inf"))])}
    found, accepted = prefiltered(QLESS, stalled.values(), NOW)
    assert (found, accepted) == (expected(QLESS, stalled.values(), NOW), 1)


def entries_of(member: bytes, keys: list[Entry]) -> list[Entry]:
    """The entries of a job in lists and zsets, each by itself."""
    found = []
    for entry in keys:
        for rank, item in enumerate(entry.value if entry.redis_type in ("list", "zset") else ()):
            if member in (item, item[0]):
                found.append(evolve(entry, value=[item], offset=rank))
    return found


@given(st.sampled_from(RECORDS))
def test_the_subject_of_a_job_is_what_its_keys_state(record: Entry) -> None:
    prefilter, member = FAMILY.prefilter("ql", NOW), record.value[b"jid"]
    accepted = accept(prefilter, record.value, record.key)
    if accepted is None:
        assert record.value[b"state"] in (b"running", b"depends") or record.value[b"priority"] == b"1.5"
        return
    (index_key,) = accepted.group.index_keys
    told = next(entry for entry in GENERATED if entry.key == record.key + b"-history")
    places = [entry for entry in entries_of(member, GENERATED) if entry.key == index_key.key]
    tagged = [entry for entry in entries_of(member, GENERATED) if entry.key.startswith(b"ql:t:")]
    stated = [fact for entry in (record, told, *places, *tagged) for fact in FAMILY.facts(entry, "ql") if not fact.scope]
    expected_subject = join(stated)
    ((item,),) = (entry.value for entry in places)
    score = item[1] if isinstance(item, tuple) else 0.0
    flat = tuple(text for pair in record.value.items() for text in pair)
    made = prefilter.subject(record.key, flat, [Member(index_key.key, member, score, places[0].offset)], [told, *tagged])
    assert (made.job_id, made.scope) == (expected_subject.job_id, expected_subject.scope)
    assert Counter(made.facts) == Counter(expected_subject.facts)
    assert made.prefiltered


@pytest.mark.parametrize(
    ("changes", "score", "rules"),
    [
        ({"time": b"%d" % (NOW // 1000 + 7300)}, 5 - PUT / 1e10, {"QLESS-36"}),
        ({}, 5 + PUT / 1e10, {"QLESS-37"}),
        ({"priority": b"1.5"}, 1.5 + PUT / 1e10, {"QLESS-37"}),
        ({"priority": b"1.5"}, 1.5 - PUT / 1e10, set()),
    ],
    ids=["put in the future", "counts time the other way", "so with a fraction", "only with a fraction"],
)
def test_jobs_that_no_rule_refuses_are_accepted_for_a_transfer_alone(changes, score: float, rules: set[str]) -> None:
    keys = sound("waiting", **changes)
    work = Entry(b"ql:q:q-work", "zset", [(b"1", score)])
    record = keys[b"ql:j:1"]

    def is_accepted(*, for_transfer: bool) -> bool:
        prefilter = FAMILY.prefilter("ql", NOW, for_transfer=for_transfer)
        return accept(prefilter, record.value, record.key) is not None and prefilter.index_members(work).numbers != [None]

    assert is_accepted(for_transfer=True)
    assert not is_accepted(for_transfer=False)
    seen = read_keyspace(FAMILY, (keys | {work.key: work}).values(), "ql", NOW)
    assert {finding.rule for finding in seen.findings() if finding.job_id == "1"} == rules
    assert not any(FAMILY.refusals(subject, seen.keyspace) for subject in seen.subjects.values())


@pytest.mark.parametrize("priority", [b"0", b"-7", b"2.0", b"1e15", b"-4503599627370497", b"9007199254740993", b"1e300"])
def test_a_score_that_counts_time_the_other_way_is_found_at_any_priority(priority: bytes) -> None:
    for part in (0.1299, 0.13, 0.1301, 0.18, 0.2499, 0.25, 0.2501):
        score = float(priority) + part
        keys = sound("waiting", priority=priority) | {b"ql:q:q-work": Entry(b"ql:q:q-work", "zset", [(b"1", score)])}
        assert prefiltered(QLESS, keys.values(), NOW)[0] == expected(QLESS, keys.values(), NOW)


def test_names_that_no_key_has_are_left_to_the_rules() -> None:
    name = b"\xed\xa0\x80"  # a lone surrogate, as it is written into a key
    keys = sound("waiting", tags=b'["\\ud800"]')
    keys[b"ql:t:" + name] = evolve(keys.pop(b"ql:t:a"), key=b"ql:t:" + name)
    found, accepted = prefiltered(QLESS, keys.values(), NOW)
    assert (found, accepted) == (expected(QLESS, keys.values(), NOW), 0)
    assert "QLESS-19" in {finding.rule for finding in found[0]}
    keys = sound("failed", failure=b'{"group":"\\ud800","when":1}')
    keys[b"ql:f:" + name] = evolve(keys.pop(b"ql:f:g"), key=b"ql:f:" + name)
    found, accepted = prefiltered(QLESS, keys.values(), NOW)
    assert (found, accepted) == (expected(QLESS, keys.values(), NOW), 0)
    assert "QLESS-7" in {finding.rule for finding in found[0]}


@given(st.binary().filter(lambda raw: not raw.endswith((b"-history", b"-dependencies", b"-dependents"))))
def test_keys_have_the_number_of_the_job_that_facts_name(raw: bytes) -> None:
    prefilter, number = FAMILY.prefilter("ql", NOW), FAMILY.prefilter("ql", NOW).number(to_text(raw), "")
    assert prefilter.record(b"ql:j:" + raw) == prefilter.owner(b"ql:j:" + raw + b"-history") == number


def test_names_of_keys_tell_records_and_histories_apart() -> None:
    prefilter = FAMILY.prefilter("ql", NOW)
    assert prefilter.record(b"ql:j:1") == prefilter.owner(b"ql:j:1-history") == prefilter.number("1", "")
    assert prefilter.number("1", "tag") != prefilter.number("1", "")
    for key in (b"ql:j:1-history", b"ql:j:1-dependents", b"ql:j:1-dependencies", b"ql:t:j", b"other:j:1"):
        assert prefilter.record(key) is None
        assert not prefilter.is_record(key)
    assert prefilter.owner(b"ql:j:1") is prefilter.owner(b"ql:q:1-history") is None
    assert prefilter.owned_list(Entry(b"ql:j:1-history", "list", [b"[]"]), Totals()) is None


@settings(max_examples=examples(500))
@given(st.lists(strategies.event_texts, max_size=4))
def test_a_history_is_read_at_a_glance_as_it_is_read_with_care(lines: list[bytes]) -> None:
    events = [event for event in history.read_list(lines) if event is not None]
    own = list(filter(history.is_own, events))
    puts = history.named(own, "put")
    story = history.story_of(lines)
    event(f"told: {story is not None}")
    if len(events) < len(lines) or not puts or type(puts[0]["when"]) is not int:
        assert story is None
        return
    is_done = own[-1]["what"] == "done"
    assert story == (puts[0]["when"], bool(history.named(own, "popped")), is_done, history.Timeline.of_events(events).last_queue)


def test_histories_as_qless_writes_them_take_no_care(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "read_list", None)
    for lines in HISTORY.values():
        assert history.story_of(lines) is not None
