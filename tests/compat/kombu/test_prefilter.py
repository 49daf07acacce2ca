"""Messages that are accepted are left out of audits, and nothing of what rules find or count is missing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable

from attrs import evolve
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.generate import generate_records
from ferryman.migrations.fact_reader import FactReader
from ferryman.migrations.prefiltering_reader import InMemoryPrefilterReader
from ferryman.schema.fact import Entry, join
from ferryman.schema.prefilter import Member
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support import prefiltered_audits as audit
from ...support.effort import examples
from ...support.prefiltered_audits import Seen
from .messages import NOW, SEP, bound, held, message, queued, text
from .strategies import entries, messages, texts

ADDRESS = audit.address("kombu", "")


def prefiltered(keys: Iterable[Entry], prefix: str = "") -> tuple[Seen, int]:
    return audit.prefiltered(audit.address("kombu", prefix), keys, NOW)


def expected(keys: Iterable[Entry], prefix: str = "") -> Seen:
    return audit.expected(audit.address("kombu", prefix), keys, NOW)


@settings(max_examples=examples(150))
@given(st.lists(entries(), max_size=10, unique_by=lambda entry: entry.key), st.sampled_from(["", "app1:"]))
def test_an_audit_of_any_keys_finds_and_counts_the_same(keys: list[Entry], prefix: str) -> None:
    found, accepted = prefiltered(keys, prefix)
    event(f"accepted: {min(accepted, 3)}")
    assert found == expected(keys, prefix)


waiting = st.sampled_from(["celery", "emails", "app1:celery"]).flatmap(
    lambda queue: st.tuples(
        st.just(queue), st.sampled_from([0, 3]), st.lists(st.one_of(messages(queue), messages(), texts()), min_size=1, max_size=5)
    )
)


@settings(max_examples=examples(150))
@given(
    st.lists(waiting, max_size=4, unique_by=lambda task: task[:2]),
    st.lists(st.sampled_from(["tag-1", "tag-2"]), unique=True),
    st.booleans(),
    st.sampled_from(["", "news"]),
)
def test_messages_that_wait_and_are_held_are_seen_in_both(lists, tags, is_indexed, exchange) -> None:
    keys = [bound("emails"), *(queued(*items, queue=queue, step=step) for queue, step, items in lists)]
    if tags:
        since = NOW / 1000 - 60 if is_indexed else None
        keys += held(*(message(tag, exchange=exchange) for tag in tags), since=since)
    found, accepted = prefiltered(keys)
    event(f"accepted: {min(accepted, 3)}, held: {bool(tags)}")
    assert found == expected(keys)


def test_sound_messages_are_accepted_and_others_are_not() -> None:
    def accepted(*keys: Entry) -> int:
        found, number = prefiltered(keys)
        assert found == expected(keys)
        return number

    one, two = message("tag-1"), message("tag-2", exchange="celery", eta="2031-01-02T03:04:05+00:00")
    assert accepted(queued(one, two)) == 2
    assert accepted(queued(one), queued(two, step=3)) == 2
    assert accepted(queued(one, one)) == 0, "twice in one list"
    assert accepted(queued(one), queued(one, queue="emails"), bound("emails")) == 0, "in two lists"
    assert accepted(queued(one), *held(one)) == 0, "waits, and a consumer has it"
    assert accepted(queued(two), *held(two), bound()) == 0, "its exchange leads to where it waits"
    assert accepted(queued(one, b"garbage")) == 1
    assert accepted(queued(one, b"garbage", queue="emails")) == 0, "what garbage is, its neighbours tell"
    assert accepted(queued(one, b"garbage", queue="emails", step=3)) == 1
    assert accepted(queued(message(5), one)) == 1, "a number as tag"
    assert accepted(queued({**one, "headers": {}})) == 0, "a task of Celery 3 may have its eta in the body"
    assert accepted(queued(message(ferryman="{}"))) == 0, "it may come from another family"
    assert accepted(queued(message(), queue="app1:celery")) == 0, "of another prefix"
    bindings = Entry(b"app1:_kombu.binding.x", "set", [SEP.join((b"x", b"", b"app1:x"))])
    assert accepted(queued(message(), queue="app1:other"), bindings) == 0, "under another prefix"
    assert accepted(Entry(b"celery", "list", [text(one)], 5000)) == 0, "a list that expires"
    assert accepted(queued(one, queue="celeryev.1")) == 0, "control traffic"


def test_generated_messages_are_accepted_unless_a_consumer_has_them() -> None:
    lists: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
    for made in generate_records(500, 5, NOW):
        if not made.record.record.held:
            lists[made.record.queue, made.record.step].append(made.record.text)
    keys = [queued(*texts, queue=queue, step=step) for (queue, step), texts in lists.items()]
    assert prefiltered(keys)[1] == sum(map(len, lists.values())) > 400


def test_the_subject_of_a_message_is_what_its_list_states() -> None:
    prefilter = FAMILY.prefilter("", NOW)
    for each in (message("tag-1"), message("tag-2", exchange="news", key="a.b"), message("tag-3", key="other")):
        for step in (0, 3):
            entry = queued(b"{}", each, step=step)
            facts = [fact for fact in FactReader(ADDRESS).facts(entry) if fact.scope and fact.index == 1]
            stated = join(facts)
            made = prefilter.subject(entry.key, (), [Member(entry.key, text(each), 0.0, 1)], ())
            assert (made.job_id, made.scope, made.facts) == (stated.job_id, stated.scope, stated.facts)
            assert made.prefiltered


@given(st.lists(texts(), min_size=1, max_size=6), st.sampled_from([0, 4000]))
def test_what_is_counted_beside_facts_is_what_facts_count(items: list[bytes], offset: int) -> None:
    entry = Entry(b"celery", "list", items, None, offset)
    prefiltering, plain = InMemoryPrefilterReader(ADDRESS, NOW), FactReader(ADDRESS)
    facts = Counter([*prefiltering.facts(entry), *prefiltering.settle()[0]])
    assert facts <= Counter(plain.facts(entry))
    assert evolve(prefiltering.close(), about_jobs=0) == evolve(plain.close(), about_jobs=0)
    assert json.dumps(prefiltering.close().totals.to_json()) == json.dumps(plain.close().totals.to_json())
