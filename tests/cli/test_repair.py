"""``ferryman audit --repair``: what it prints, and its exit status."""

from __future__ import annotations

import pytest
import redis
from ferryman.cli.repair import spelled
from ferryman.testing.keyspaces import dump

from ..support.captures import capture, load
from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


@pytest.fixture
def arguments(server: Server, client: redis.Redis) -> list[str]:
    """The audit of a keyspace after real crashes."""
    case = capture("kue", "crashed")
    load(case, client)
    return ["audit", server.url(family="kue"), "--now", str(case.captured_at_ms)]


def test_without_apply_the_exact_commands_are_shown_and_nothing_is_sent(client: redis.Redis, arguments: list[str]) -> None:
    before = dump(client)
    outcome = ferryman(*arguments, "--repair", "KUE-1", "--repair", "KUE-8")
    assert outcome.status == 1
    assert "LPUSH q:pop-token:jobs 1" in outcome.stdout
    assert "ZREM q:jobs" in outcome.stdout
    assert "--apply" in outcome.stdout
    assert dump(client) == before


def test_with_apply_the_findings_are_gone(arguments: list[str]) -> None:
    outcome = ferryman(*arguments, "--repair", "KUE-1", "--apply")
    assert outcome.status == 0
    assert "mended" in outcome.stdout
    assert ferryman(*arguments, "--repair", "KUE-1").stdout == "No findings of these rules: nothing to mend.\n"


def test_json_has_the_finding_the_commands_and_the_outcome(arguments: list[str]) -> None:
    for options, word in ((), "planned"), (("--apply",), "mended"):
        lines = ferryman(*arguments, "--repair", "KUE-1", "--format", "json", *options).lines()
        assert lines
        for line in lines:
            assert list(line) == [
                "rule",
                "severity",
                "job_id",
                "key",
                "queue",
                "detail",
                "repair",
                "commands",
                "outcome",
                "reason",
            ]
            assert line["outcome"] == word
            assert all(isinstance(text, str) for command in line["commands"] for text in command)
    assert ferryman(*arguments, "--repair", "KUE-1", "--format", "json").stdout == ""


def test_what_can_not_be_asked_for_is_one_line(arguments: list[str]) -> None:
    assert "--apply needs --repair" in ferryman(*arguments, "--apply").error
    assert "rules that can be mended: KUE-1" in ferryman(*arguments, "--repair", "KUE-14").error
    assert "local engine" in ferryman(*arguments, "--repair", "KUE-1", "--engine", "spark").error


def test_commands_are_spelled_as_redis_cli_takes_them() -> None:
    assert spelled(("ZADD", b"q:jobs", 0, b"01|5")) == "ZADD q:jobs 0 01|5"
    assert spelled(("SET", b"a b", b'"\n\xff')) == 'SET "a b" "\\"\\x0a\\xff"'
    assert spelled(("SET", "ü", b"")) == 'SET "ü" ""'


def test_a_rule_that_can_not_be_mended_says_why_and_stops_no_other(arguments: list[str]) -> None:
    rules = ("--repair", "KUE-14", "--repair", "KUE-15", "--repair", "KUE-1")
    outcome = ferryman(*arguments, *rules, "--apply", "--format", "json")
    said = {line["rule"]: line for line in outcome.lines()}
    assert outcome.status == 1
    assert said["KUE-1"]["outcome"] == "mended"
    assert said["KUE-14"]["outcome"] == said["KUE-15"]["outcome"] == "not mendable"
    assert said["KUE-14"]["reason"].startswith("no command mends KUE-14 safely (run any kue process")
    assert said["KUE-15"]["reason"].endswith("choose the jobs with --older-than or --worker")


def test_what_is_not_chosen_is_left_and_costs_no_exit_status(client: redis.Redis, arguments: list[str]) -> None:
    repair = (*arguments, "--repair", "KUE-15", "--apply")
    assert ferryman(*repair, "--older-than", "0s").status == 1
    left = ferryman(*arguments, "--repair", "KUE-15").stdout
    assert "its work is done and would run twice" in left
    assert left.count("KUE-15  ") == 1
    client.hdel("q:job:19", "duration")
    before = dump(client)
    outcome = ferryman(*repair, "--older-than", "9000d")
    assert (outcome.status, dump(client)) == (0, before)
    assert "not chosen: its last sign was" in outcome.stdout


def test_choices_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    assert "need --repair" in ferryman(*arguments, "--older-than", "2h").error
    assert "of kue, these do: KUE-3, KUE-15, KUE-16" in ferryman(*arguments, "--repair", "KUE-1", "--worker", "w").error
    assert "no length of time" in ferryman(*arguments, "--repair", "KUE-15", "--older-than", "2 hours").error
