"""The rules against healthy keyspaces that kombu made, and each against the smallest case of its own."""

from __future__ import annotations

import pytest
from ferryman.compat.kombu import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given
from hypothesis import strategies as st

from ...support.captures import Capture, capture, captures
from .messages import NOW, SEP, bound, held, message, queued, text
from .strategies import entries, texts

HOUR = 3600
each_capture = pytest.mark.parametrize("case", captures("kombu"), ids=str)

TABLES = [bound(), bound("mail"), bound("short", "news", "x")]
VALID = [queued(message("w2"), message("w1")), queued(message("m1", "mail"), queue="mail"), *held(message("h1")), *TABLES]
"""Two queues with messages, and one that a consumer has."""


def keyspace(*more: Entry, without: tuple[bytes, ...] = ()) -> list[Entry]:
    """The sound keyspace with other keys, which replace those of the same name."""
    found = {entry.key: entry for entry in (*VALID, *more)}
    return [entry for key, entry in found.items() if key not in without]


def audit(found: list[Entry], now_ms: int = NOW) -> list[Finding]:
    return read_keyspace(FAMILY, found, "", now_ms).findings()


def named(found: list[Entry], now_ms: int = NOW) -> dict[str, str]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: str(finding.severity) for finding in audit(found, now_ms)}


@each_capture
def test_nothing_is_said_of_a_healthy_keyspace(case: Capture) -> None:
    assert read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings() == []


@each_capture
def test_after_two_hours_a_killed_consumer_is_noticed(case: Capture) -> None:
    findings = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms + 2 * HOUR * 1000).findings()
    assert {finding.rule for finding in findings} == {"KOMBU-5"}
    assert len(findings) == case.expected["by_state"]["active"]


def test_the_valid_keyspace_breaks_no_rule() -> None:
    assert audit(VALID) == []


def test_rules_are_numbered_from_1_to_11() -> None:
    numbered = [int(rule.id.removeprefix("KOMBU-")) for rule in FAMILY.rules]
    assert sorted(set(numbered)) == list(range(1, 12))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


FAR = "2031-01-01T00:00:00+00:00"
SOON = "2027-01-15T08:30:00+00:00"
TOPIC = message("t1", exchange="news", key="x")


def bare(**changes: object) -> dict[str, object]:
    """A message with some of its properties taken away (None) or changed."""
    whole = message("w1")
    whole["properties"] = {name: value for name, value in {**whole["properties"], **changes}.items() if value is not None}
    return whole


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (keyspace(queued(message("w1"), b"junk")), {"KOMBU-1": "error"}),
        (keyspace(queued(message("w1"), text(message("w2"))[:-5])), {"KOMBU-1": "error"}),
        (keyspace(queued(b"[" * 5000)), {"KOMBU-1": "error"}),
        (keyspace(queued(bare(delivery_tag=None))), {"KOMBU-1": "error"}),
        (keyspace(queued(bare(delivery_info=None))), {"KOMBU-1": "error"}),
        (keyspace(queued(bare(delivery_info={"exchange": ""}))), {"KOMBU-1": "error"}),
        (keyspace(queued(bare(body_encoding="rot13"))), {"KOMBU-1": "error"}),
        (keyspace(queued(message() | {"body": "abcde"})), {"KOMBU-1": "error"}),
        (keyspace(queued(message() | {"headers": []})), {"KOMBU-1": "error"}),
        (keyspace(Entry(b"unacked", "hash", {b"h1": b"[]"})), {"KOMBU-1": "error"}),
        (keyspace(without=(b"unacked_index",)), {"KOMBU-2": "error"}),
        (keyspace(without=(b"unacked",)), {"KOMBU-2": "warning"}),
        (keyspace(queued(message("h1"))), {"KOMBU-3": "error"}),
        (keyspace(queued(message("w1"), message("w1"))), {"KOMBU-3": "error"}),
        (keyspace(queued(message("w1"), step=6)), {"KOMBU-3": "error"}),
        (keyspace(queued(message("w1"), message("w1", id="t-2"))), {"KOMBU-3": "error"}),
        (keyspace(*held(TOPIC), queued(TOPIC, queue="short")), {"KOMBU-3": "error"}),
        (keyspace(*held(TOPIC)), {}),
        (keyspace(*held(TOPIC), without=(b"_kombu.binding.news",)), {"KOMBU-4": "error"}),
        (keyspace(queued(message("o1"), queue="retired")), {"KOMBU-4": "warning"}),
        (keyspace(queued(message("o1"), queue="retired"), bound("retired")), {}),
        (keyspace(queued(message("o1", "undeclared"), queue="undeclared")), {}),
        (keyspace(*held(message("h1"), since=NOW / 1000 - HOUR - 150)), {}),
        (keyspace(*held(message("h1"), since=NOW / 1000 - HOUR - 250)), {"KOMBU-5": "warning"}),
        (keyspace(Entry(b"unacked_mutex", "string", b"x", ttl_ms=1000)), {}),
        (keyspace(Entry(b"unacked_mutex", "string", b"x")), {"KOMBU-5": "error"}),
        (keyspace(*held(message("h1", eta=SOON))), {}),
        (keyspace(*held(message("h1", eta=FAR))), {"KOMBU-6": "warning"}),
        (keyspace(queued(message("w1", eta=FAR))), {}),
        (keyspace(queued(message("p1", priority=3), step=3)), {}),
        (keyspace(queued(message("p1", priority=4), step=4)), {}),
        (keyspace(queued(message("p1", priority=5), step=4)), {"KOMBU-7": "warning"}),
        (keyspace(queued(message("p1"), step=-1)), {"KOMBU-7": "warning"}),
        (keyspace(queued(b"x", queue="1.reply.celery.pidbox")), {"KOMBU-8": "warning"}),
        (keyspace(bound("1.reply.celery.pidbox", "reply.celery.pidbox", "1")), {"KOMBU-8": "info"}),
        (keyspace(bound("w1@h.celery.pidbox", "celery.pidbox", "")), {}),
        (keyspace(Entry(b"_kombu.binding.x", "set", [b"only one part"])), {"KOMBU-9": "error"}),
        (keyspace(Entry(b"_kombu.binding.x", "string", b"x")), {"KOMBU-9": "error"}),
        (keyspace(Entry(b"unacked_mutex", "hash", {})), {"KOMBU-9": "error"}),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rule(entries: list[Entry], rules: dict[str, str]) -> None:
    assert named(entries) == rules


@pytest.mark.parametrize("expiring", [True, False])
def test_a_reply_queue_that_expires_is_no_leak(expiring: bool) -> None:
    reply = Entry(b"1.reply.celery.pidbox", "list", [b"x"], ttl_ms=10_000 if expiring else None)
    assert named(keyspace(reply)) == ({} if expiring else {"KOMBU-8": "warning"})


def test_many_bound_reply_queues_are_a_leak() -> None:
    members = [b"%d" % number + SEP + SEP + b"%d.reply.celery.pidbox" % number for number in range(200)]
    leaking = Entry(b"_kombu.binding.reply.celery.pidbox", "set", members)
    [finding] = audit(keyspace(leaking))
    assert (finding.rule, finding.severity) == ("KOMBU-8", Severity.WARNING)
    assert "200 reply queues" in finding.detail


def test_only_what_could_not_run_once_and_right_is_refused() -> None:
    found = keyspace(
        queued(b"junk", message("h1"), message("twin"), message("twin"), message("two"), message("two", id="t-2"), message("w1")),
        queued(message("old"), queue="retired"),
        *held(message("h1"), message("lost", exchange="gone", key="x"), message("late", eta=FAR)),
    )
    seen = read_keyspace(FAMILY, found, "", NOW)
    refused = {
        (subject.scope, subject.job_id): {finding.rule for finding in FAMILY.refusals(subject, seen.keyspace)}
        for subject in seen.subjects.values()
    }
    assert {job: rules for job, rules in refused.items() if rules} == {
        ("celery", "no-message-06fb9c39-4"): {"KOMBU-1"},
        ("celery", "h1"): {"KOMBU-3"},
        ("celery", "two"): {"KOMBU-3"},
        ("", "lost"): {"KOMBU-4"},
    }


def test_a_message_that_was_only_redelivered_is_not_another_one() -> None:
    again = message("w1", redelivered=True)
    again["properties"]["delivery_info"]["redelivered"] = True
    seen = read_keyspace(FAMILY, keyspace(queued(again, message("w1"))), "", NOW)
    subject = seen.subjects["celery", "w1"]
    assert list(FAMILY.refusals(subject, seen.keyspace)) == []
    assert [finding.rule for finding in FAMILY.findings(subject, seen.keyspace)] == ["KOMBU-3"]


def test_a_finding_names_key_and_queue() -> None:
    [finding] = audit(keyspace(queued(b"junk", queue="mail", step=3)))
    assert (finding.rule, finding.key, finding.queue) == ("KOMBU-1", "mail\x06\x163", "mail")


def test_rules_know_their_prefix() -> None:
    case = capture("kombu", "custom-prefix")
    entries = [entry for entry in case.entries() if not entry.key.endswith(b"unacked_index")]
    findings = read_keyspace(FAMILY, entries, case.prefix, case.captured_at_ms).findings()
    assert {(finding.rule, finding.key) for finding in findings} == {("KOMBU-2", "app1:unacked")}


@given(st.lists(texts(), max_size=3), st.lists(entries(), max_size=4), st.integers(0, 2**62))
def test_findings_are_one_printable_line_each(raw: list[bytes], more: list[Entry], now_ms: int) -> None:
    for finding in audit(keyspace(*more, queued(*raw)), now_ms):
        assert finding.detail.isprintable()
        assert len(finding.detail) < 1000
