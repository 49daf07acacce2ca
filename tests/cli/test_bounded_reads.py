"""``queues`` and ``jobs`` with a limit: from indexes, for what they show and not for all that there is, with the same result."""

from __future__ import annotations

import time

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import store

from ..support.acl import access_rules, user
from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

INDEXED = ("ferryman", "kue")
"""The families whose indexes tell all numbers of their queues."""


@pytest.fixture(params=INDEXED)
def filled(request: pytest.FixtureRequest, server: Server, client: redis.Redis) -> str:
    """The URL of a keyspace of a thousand jobs."""
    now = round(time.time() * 1000)
    family = get_family(request.param)
    store(client, family, family.default_prefix, list(family.generate(1000, 5, now)), now)
    return server.url(family=request.param)


def _commands(client: redis.Redis) -> int:
    """How many commands the server has run for others."""
    stats = client.info("commandstats")
    ours = (
        "cmdstat_info",
        "cmdstat_config|resetstat",
        "cmdstat_client|setinfo",
        "cmdstat_select",
        "cmdstat_time",
        "cmdstat_hello",
    )
    return sum(stats[name]["calls"] for name in stats.keys() - {*ours})


def test_numbers_from_indexes_are_those_of_who_reads_every_job(filled: str, client: redis.Redis) -> None:
    client.config_resetstat()
    began = time.monotonic()
    found = ferryman("queues", filled, "--format", "json").lines()
    # States, the end of the walk over priorities, and for each of them a step of it, the number and the age. What the script
    # of a native queue calls is counted as well.
    assert _commands(client) <= sum(30 + 3 * len(status["priorities"]) for status in found)
    read = ferryman("queues", filled, "--scan", "--format", "json").lines()
    passed_ms = (time.monotonic() - began) * 1000 + 2  # both are rounded
    for status, again in zip(found, read, strict=True):
        first, second = status.pop("oldest_ms"), again.pop("oldest_ms")
        assert first == second or 0 <= second - first <= passed_ms
    assert found == read
    assert sum(sum(status["priorities"].values()) for status in found) == sum(status["waiting"] for status in found) > 100


def test_the_first_jobs_come_from_indexes(filled: str, client: redis.Redis) -> None:
    everything = ferryman("jobs", filled, "--format", "json").lines()
    client.config_resetstat()
    first = ferryman("jobs", filled, "--format", "json", "--limit", "20").lines()
    assert _commands(client) < 1000
    assert len(first) == 20
    waiting = [[job["id"] for job in jobs if job["state"] == "waiting"] for jobs in (first, everything)]
    assert waiting[0] == waiting[1][: len(waiting[0])]
    assert all(job in everything for job in first)


def test_a_page_names_the_next_one(filled: str) -> None:
    everything = ferryman("jobs", filled, "--format", "json", "--state", "failed").lines()
    queue = everything[0]["queue"]
    failed = {job["id"] for job in everything if job["queue"] == queue}
    page = ferryman("jobs", filled, "--queue", queue, "--state", "failed", "--newest", "--limit", "1")
    assert page.status == 0
    assert ("--after 0-1" in page.stdout) == (len(failed) > 1)
    seen = [
        job["id"]
        for offset in range(len(failed))
        for job in ferryman(
            *("jobs", filled, "--queue", queue, "--state", "failed", "--newest", "--limit", "1"),
            *("--after", f"0-{offset}", "--format", "json"),
        ).lines()
    ]
    assert sorted(seen) == sorted(failed)


def test_a_page_wants_a_queue_a_state_and_a_limit(filled: str) -> None:
    for options in (
        ["--newest"],
        ["--after", "0-5", "--queue", "x"],
        ["--queue", "x", "--state", "failed", "--newest", "--limit", "0"],
    ):
        outcome = ferryman("jobs", filled, *options)
        assert outcome.status == 2
        assert "--queue, --state and a --limit" in outcome.error


def test_a_family_without_the_index_says_so(server: Server, client: redis.Redis) -> None:
    now = round(time.time() * 1000)
    family = get_family("kickq")
    store(client, family, family.default_prefix, list(family.generate(50, 5, now)), now)
    outcome = ferryman("jobs", server.url(family="kickq"), "--queue", "mail", "--state", "failed", "--newest")
    assert outcome.status == 2
    assert "kickq has no index of failed jobs of one queue" in outcome.error


def test_the_auditors_rule_with_three_commands_more_is_enough_for_kue(server: Server, client: redis.Redis) -> None:
    now = round(time.time() * 1000)
    family = get_family("kue")
    store(client, family, family.default_prefix, list(family.generate(1000, 5, now)), now)
    with user(client, "clerk", [*access_rules()["auditor"], "+zcount", "+zrangebyscore", "+zrevrange"]):
        url = f"ferryman://clerk:secret@{server.host}:{server.port}/0?family=kue"
        client.config_resetstat()
        assert ferryman("queues", url).status == 0
        assert ferryman("jobs", url, "--limit", "10").status == 0
    assert "cmdstat_scan" not in client.info("commandstats")
