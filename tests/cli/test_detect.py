"""``ferryman detect`` and ``family=auto``: what they print, and their exit status."""

from __future__ import annotations

import pytest
import redis

from ..support.captures import capture, load
from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def test_people_get_a_paragraph_for_each_keyspace(server: Server, client: redis.Redis) -> None:
    case = capture("kue", "custom-prefix")
    load(case, client)
    client.set("celery-task-meta-1", b"{}")
    outcome = ferryman("detect", server.url())
    assert outcome.status == 0
    assert "kue  0.10.3 to 0.11  sure, 100% of its keys explained" in outcome.stdout
    assert f"{server.url(family='kue')}&prefix=acme%3Ajobs-v2" in outcome.stdout
    assert f"{case.expected['jobs']} jobs in 5 queues" in outcome.stdout
    assert "such as celery-task-meta-1" in outcome.stdout


def test_json_has_a_line_for_each_keyspace_and_a_summary(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "healthy"), client)
    load(capture("kombu", "healthy"), client)
    *found, summary = ferryman("detect", server.url(), "--format", "json").lines()
    assert [each["family"] for each in found] == ["kue", "kombu"]
    fields = ["family", "prefix", "version", "confidence", "explained", "keys", "odd_keys", "jobs", "queues", "exact", "url"]
    assert all(list(each) == fields for each in found)
    assert list(summary) == ["database_keys", "scanned", "read", "stopped_early", "strangers", "examples", "journal", "hidden"]


def test_nothing_that_is_known_is_exit_status_1(server: Server, client: redis.Redis) -> None:
    assert ferryman("detect", server.url()).status == 1
    client.set("mine", "x")
    outcome = ferryman("detect", server.url())
    assert outcome.status == 1
    assert "No system that ferryman knows" in outcome.stdout


def test_auto_serves_every_command_that_reads(server: Server, client: redis.Redis) -> None:
    case = capture("kue", "custom-prefix")
    load(case, client)
    auto, now = server.url(family="auto"), ("--now", str(case.captured_at_ms), "--format", "json")
    assert len(ferryman("jobs", auto, *now).lines()) == case.expected["jobs"]
    assert {line["queue"] for line in ferryman("queues", auto, *now).lines()} == set(case.expected["types"])
    assert ferryman("audit", auto, *now).lines()
    assert ferryman("migrate", auto, server.url(1), *now).lines()[-1]["written"] == case.expected["jobs"]
    assert ferryman("verify", auto, server.url(1), *now).lines()[-1]["differences"] == 0


def test_what_is_written_to_must_be_named(server: Server) -> None:
    for arguments in (
        ("migrate", server.url(family="kue"), server.url(1, family="auto")),
        ("generate", server.url(family="auto")),
    ):
        outcome = ferryman(*arguments)
        assert outcome.status == 2
        assert "name the family of this one" in outcome.error


def test_a_database_with_two_keyspaces_names_both(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "healthy"), client)
    load(capture("kombu", "healthy"), client)
    outcome = ferryman("jobs", server.url(family="auto"))
    assert outcome.status == 2
    assert "family=kue" in outcome.error
    assert "family=kombu" in outcome.error


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_the_journal_of_a_migration_is_no_stranger(server: Server, client: redis.Redis, options: tuple[str, ...]) -> None:
    load(capture("kue", "healthy"), client)
    assert ferryman("migrate", server.url(family="kue"), server.url(1), *options).status == 0
    with server.client(1) as there:
        journal = len(list(there.scan_iter("ferryman-migration:*")))
    summary = ferryman("detect", server.url(1), "--format", "json").lines()[-1]
    assert (summary["strangers"], summary["examples"], summary["journal"]) == (0, [], journal)
    line = f"Keys that are ferryman's own: {journal}, the journal of migrations to this database"
    assert (line in " ".join(ferryman("detect", server.url(1)).stdout.split())) == bool(journal)


def test_a_journal_without_a_keyspace_is_named_too(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "healthy"), client)
    assert ferryman("migrate", server.url(family="kue"), server.url(1)).status == 0
    with server.client(1) as there:
        there.delete(*there.scan_iter("ferryman:*"))
        there.set("mine", "x")
    *found, summary = ferryman("detect", server.url(1), "--format", "json").lines()
    assert not found
    assert (summary["strangers"], summary["examples"]) == (1, ["mine"])
    assert summary["journal"] > 0
