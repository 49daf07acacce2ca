"""Users with few rights: each command runs with exactly the rule of docs/access.md, and a refusal says what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.migrations import local, preconditions
from ferryman.schema.family import Target, get_family

from ..conftest import SERVERS
from ..support.acl import ACCESS, KUE, access_additions, access_rules, for_family, patterns, published_rules, user
from ..support.clusters import Cluster, cluster
from ..support.command import Outcome, ferryman
from ..support.families import GENERATING
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

ROOT = Path(__file__).parents[2]
RULES = access_rules()
NEVER_MISSED = {"info", "multi", "exec", "exists"}
"""Without INFO commands go on more carefully; transactions read what changes its type meanwhile; TYPE tells what EXISTS does."""


def url(server: Server, db: int, name: str, who: str = "clerk") -> str:
    return server.url(db, family=name).replace("ferryman://", f"ferryman://{who}:secret@")


def fill(server: Server, name: str, *, damaged: bool = True, jobs: int = 200) -> None:
    """A keyspace in database 1, with every rule broken that can be."""
    rules = sorted(get_family(name).injectable) if damaged else []
    options = [word for rule in rules for word in ("--damage", f"{rule}=1")]
    assert ferryman("generate", server.url(1, family=name), "--jobs", str(jobs), *options).status == 0


def lacks(client: redis.Redis) -> list[tuple[str, str]]:
    """What the server has refused since the last time it was asked."""
    refused = [(entry["reason"], entry["object"]) for entry in client.acl_log()]
    client.execute_command("ACL", "LOG", "RESET")
    return [each for each in refused if each[1] not in ("client|setinfo", "client")]  # redis-py does not mind


def allowed(client: redis.Redis, *arguments: str) -> Outcome:
    client.execute_command("ACL", "LOG", "RESET")
    outcome = ferryman(*arguments)
    assert outcome.status in (0, 1), outcome.stderr
    assert not lacks(client)
    return outcome


# What the rules are enough for


def test_who_may_not_read_a_large_keyspace_in_parts_has_it_read_in_one_process(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SMALL_KEYS", 0)
    fill(server, "kue", damaged=False)
    with user(client, "clerk", for_family(RULES["reader"], "kue")):
        done = ferryman("jobs", url(server, 1, "kue"), "--limit", "0", "--format", "json")
    assert done.status == 0, done.stderr
    assert len(done.lines()) == 200


@pytest.mark.parametrize("name", GENERATING)
def test_the_rules_for_reading_are_enough(server: Server, client: redis.Redis, name: str) -> None:
    fill(server, name)
    source = url(server, 1, name)
    with user(client, "clerk", for_family(RULES["reader"], name)):
        assert allowed(client, "jobs", source, "--format", "json").lines()
        assert allowed(client, "queues", source, "--scan", "--format", "json").lines()
        repairs = [word for rule in sorted(get_family(name).repairable) for word in ("--repair", rule)]
        allowed(client, "audit", source, *repairs)
    with user(client, "clerk", for_family(RULES["auditor"], name)):
        allowed(client, "audit", source)
    if name != "ferryman":
        more = ["+smembers", "+zcard", "+zcount", "+zrangebyscore", "+hget"] if name == "kue" else []
        with user(client, "clerk", [*for_family(RULES["reader"], name), *more]):
            allowed(client, "metrics", source)
    with user(client, "clerk", RULES["detector"]):
        found, *_ = allowed(client, "detect", url(server, 1, name), "--format", "json").lines()
        assert found["family"] == name or name == "bee"
    if name == "kue":
        with user(client, "clerk", [*RULES["reader"], "~*", *(word for word in RULES["detector"] if word.startswith("+"))]):
            allowed(client, "jobs", url(server, 1, "auto"), "--limit", "0")


@pytest.mark.parametrize("name", GENERATING)
def test_the_rules_for_migrations_are_enough_for_every_source(server: Server, client: redis.Redis, name: str) -> None:
    fill(server, name)
    source, target = url(server, 1, name), url(server, 2, "ferryman", "writer")
    with user(client, "clerk", for_family(RULES["source"], name)), user(client, "writer", RULES["target-ferryman"]):
        allowed(client, "migrate", source, target, "--dry-run")
        summary = allowed(client, "migrate", source, target, "--lossy", "--format", "json").lines()[-1]
        assert summary["written"] > 0
    with user(client, "clerk", for_family(RULES["reader"], name)), user(client, "writer", RULES["verifier"]):
        assert allowed(client, "verify", source, target, "--format", "json").lines()


@pytest.mark.parametrize("source", ["bee", "ferryman", "kickq", "kue", "qless"])
@pytest.mark.parametrize("name", GENERATING)
def test_the_rule_for_each_target_is_enough(server: Server, client: redis.Redis, name: str, source: str) -> None:
    fill(server, source, damaged=False)
    with user(client, "clerk", RULES[f"target-{name}"]):
        arguments = ("migrate", server.url(1, family=source), url(server, 2, name), "--lossy", "--format", "json")
        assert allowed(client, *arguments).lines()[-1]["written"] > 0


@pytest.mark.parametrize("name", GENERATING)
def test_the_rule_for_repairs_is_enough(server: Server, client: redis.Redis, name: str) -> None:
    fill(server, name)
    repairs = [word for rule in sorted(get_family(name).repairable) for word in ("--repair", rule)]
    with user(client, "clerk", for_family(RULES["mender"], name)):
        outcome = allowed(client, "audit", url(server, 1, name), *repairs, "--apply", "--format", "json")
    assert any(line["outcome"] == "mended" for line in outcome.lines())


def test_the_rule_of_the_broker_is_enough_for_steering(server: Server, client: redis.Redis) -> None:
    fill(server, "ferryman", damaged=False)
    broker = url(server, 1, "ferryman")
    lines = ferryman("queues", server.url(1), "--format", "json").lines()
    queue, other = sorted(lines, key=lambda line: line["waiting"] + line["scheduled"])[-2:]
    with user(client, "clerk", published_rules()[0]):
        allowed(client, "pause", broker, queue["queue"])
        allowed(client, "resume", broker, queue["queue"])
        for action in ("promote", "cancel", "requeue"):
            allowed(client, "steer", broker, action, "--state", *STATE_FOR[action], "--text", "a", "--yes")
        to = ("--queue", queue["queue"], "--to", other["queue"])
        allowed(client, "steer", broker, "move", *to, "--state", "waiting", "--yes")
        allowed(client, "drain", broker, other["queue"], "--yes")


STATE_FOR = {"promote": ["scheduled"], "cancel": ["waiting", "--state", "scheduled"], "requeue": ["failed"]}


def test_the_rule_of_the_broker_is_enough_for_dead_letters_metrics_and_cancelling(server: Server, client: redis.Redis) -> None:
    fill(server, "ferryman", damaged=False)
    broker = url(server, 1, "ferryman")
    with user(client, "clerk", published_rules()[0]):
        allowed(client, "dead", broker)
        allowed(client, "metrics", broker)
        allowed(client, "dead", broker, "requeue", "--all")
        allowed(client, "cancel", broker, "no such task")


def a_queue(server: Server, name: str) -> str:
    lines = ferryman("queues", server.url(1, family=name), "--format", "json").lines()
    return str(lines[0]["queue"])


WATCHING = ("metrics", "backlog", "top", "history")


@pytest.mark.parametrize("command", WATCHING)
def test_the_rule_for_watching_is_enough(server: Server, client: redis.Redis, command: str) -> None:
    fill(server, "ferryman", damaged=False)
    words = [command, url(server, 1, "ferryman"), *([a_queue(server, "ferryman")] if command == "history" else [])]
    with user(client, "clerk", RULES["watcher"]):
        assert allowed(client, *words).stdout


def test_a_watcher_may_do_nothing_that_watching_does_not_need(server: Server, client: redis.Redis) -> None:
    fill(server, "ferryman", damaged=False)
    queue = a_queue(server, "ferryman")
    client.config_resetstat()
    client.script_flush()  # so that EVAL is needed
    for command in WATCHING:
        assert ferryman(command, server.url(1), *([queue] if command == "history" else [])).status == 0
    used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert commands_of(RULES["watcher"]) <= used


OF_OTHERS = [*((name, "top") for name in GENERATING if name != "ferryman"), ("kue", "backlog"), ("qless", "history")]


@pytest.mark.parametrize(("name", "command"), OF_OTHERS)
def test_the_rules_for_watching_other_systems_are_enough(server: Server, client: redis.Redis, name: str, command: str) -> None:
    fill(server, name, damaged=False)
    row = rf"^\| `{command}`.* \| the rule of `audit`(?:, and `(.*)`)? \|$"
    (more,) = re.findall(row, ACCESS.read_text("utf-8"), re.MULTILINE)
    rule = [*for_family(RULES["auditor"], name), *more.split()]
    if "~*" in rule:
        rule.remove("~ferryman:live:*")
    with user(client, "clerk", rule):
        words = [a_queue(server, name)] if command == "history" else []
        assert allowed(client, command, url(server, 1, name), *words).stdout


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_the_rules_for_a_cluster_are_enough(nodes: Cluster) -> None:
    more = access_additions()[1]
    family = get_family("ferryman")
    for command in (each for job in family.generate(50, 1, 0) for each in family.write(job, Target("from", 0, generated=True))):
        assert isinstance(command[1], bytes)
        nodes.say(nodes.owner(command[1]), *command)  # type: ignore[arg-type]
    for node in nodes.nodes:
        for who, rule, keys in (
            ("clerk", "source", ["~from:*"]),
            ("writer", "target-ferryman", []),
            ("judge", "verifier", ["~from:*", "+time"]),  # it reads the source as well
            ("auditor", "auditor", ["~from:*"]),
        ):
            words = [word for word in RULES[rule] if word not in KUE]
            nodes.say(node, "ACL", "SETUSER", who, "reset", *words, *more, *keys)
    source, target = (
        nodes.url(**({"prefix": "from"} if who in ("clerk", "auditor") else {})).replace(
            "+cluster://", f"+cluster://{who}:secret@"
        )
        for who in ("clerk", "writer")
    )
    for arguments in (
        ("migrate", source, target, "--lossy"),
        ("verify", source.replace("clerk", "judge"), target.replace("writer", "judge")),
        ("audit", source.replace("clerk", "auditor")),
    ):
        outcome = ferryman(*arguments)
        assert outcome.status in (0, 1), outcome.stderr


# That they are the least


def commands_of(rule: list[str]) -> set[str]:
    return {word[1:] for word in rule if word.startswith("+")}


READING = commands_of(RULES["reader"])


@pytest.mark.parametrize("word", sorted(READING - NEVER_MISSED))
def test_a_reader_without_one_command_is_told_which(server: Server, client: redis.Redis, word: str) -> None:
    for name in ("kue", "kombu", "bee", "qless"):
        client.flushall()
        fill(server, name, damaged=False, jobs=60)
        with user(client, "clerk", [*for_family(RULES["reader"], name), f"-{word}"]):
            outcome = ferryman("jobs", url(server, 1, name), "--limit", "0")
        if outcome.status:
            assert outcome.status == 3
            assert f"the user may not call {word.upper()}" in outcome.error
            assert f"grant +{word}" in outcome.error
            return
    pytest.fail(f"nothing reads by {word}")


@pytest.mark.parametrize("word", sorted(commands_of(RULES["verifier"]) - NEVER_MISSED))
def test_a_verifier_without_one_command_is_told_which(server: Server, client: redis.Redis, word: str) -> None:
    for name in ("kue", "qless"):
        client.flushall()
        fill(server, name, damaged=False, jobs=60)
        source, target = server.url(1, family=name), url(server, 2, "ferryman")
        assert ferryman("migrate", source, server.url(2), "--lossy").status == 0
        with server.client(2) as there:
            there.rpush("ferryman:{mail}:wake", "1")
            there.set("ferryman:{mail}:unique:key", "1")
        with user(client, "clerk", [*RULES["verifier"], f"-{word}"]):
            outcome = ferryman("verify", source, target)
        if outcome.status == 3:
            assert f"the user may not call {word.upper()}" in outcome.error
            return
    pytest.fail(f"nothing verifies by {word}")


@pytest.mark.parametrize("pattern", [word for word in RULES["verifier"] if word.startswith("~")])
def test_a_verifier_needs_each_of_its_patterns(server: Server, client: redis.Redis, pattern: str) -> None:
    fill(server, "kue", damaged=False, jobs=60)
    source, target = server.url(1, family="kue"), url(server, 2, "ferryman")
    assert ferryman("migrate", source, server.url(2)).status == 0
    with user(client, "clerk", [word for word in RULES["verifier"] if word != pattern]):
        outcome = ferryman("verify", source, target)
    assert outcome.status == 3
    assert f"the user may not use key {pattern[1:-1]}" in outcome.error


def test_a_repair_may_use_the_commands_of_its_table_and_no_other() -> None:
    table = {*preconditions.READING, *preconditions._ITEMS, *preconditions._WHOLE, "DEL", "UNLINK", "EXISTS", "SMOVE", "RENAMENX"}
    assert commands_of(RULES["mender"]) - READING - {"eval", "evalsha"} == {name.lower() for name in table} - READING


@pytest.mark.parametrize("name", GENERATING)
def test_a_target_may_use_what_its_writer_sends_and_no_other(name: str) -> None:
    folder = ROOT / ("schema/native" if name == "ferryman" else f"compat/{name}")
    scripts = [*folder.rglob("lua/*.lua"), *(ROOT / "compat" / "lua").glob("*.lua")]
    sources = "\n".join(path.read_text("utf-8") for path in (folder / "writer.py", *scripts))
    sent = {word.lower() for word in re.findall(r"['\"]([A-Z]{3,})['\"]", sources)}
    journal = {"watch", "unwatch", "eval", "hget", "hmget", "hgetall", "hset", "hsetnx", "hincrby", "hdel", "del"}
    mine = commands_of(RULES[f"target-{name}"]) - READING
    assert journal <= mine
    assert mine - journal <= sent


def test_patterns_cover_what_a_family_reads_and_nothing_beside() -> None:
    for name in GENERATING:
        family = get_family(name)
        assert [f"~{glob}" for glob in family.globs(family.default_prefix)] == patterns(name)


# Refusals


@pytest.mark.parametrize(
    ("taken", "arguments", "message"),
    [
        ("-lrange", ("jobs", "--limit", "0"), "the user may not call LRANGE on q:"),
        ("-hscan", ("jobs", "--limit", "0"), "the user may not call HSCAN on q:job:"),
        ("-time", ("queues",), "the user may not call TIME: grant +time"),
        ("-scan", ("jobs", "--limit", "0"), "the user may not call SCAN: grant +scan"),
        ("-select", ("jobs",), "SELECT: grant +select"),
        ("resetkeys", ("jobs",), "the user may not use key "),
    ],
)
def test_a_refusal_is_one_sentence_with_command_and_key(
    server: Server, client: redis.Redis, taken: str, arguments: tuple[str, ...], message: str
) -> None:
    fill(server, "kue", damaged=False)
    with user(client, "clerk", [*RULES["auditor"], taken]):
        outcome = ferryman(*arguments, url(server, 1, "kue"))
    assert outcome.status == 3
    assert outcome.error.startswith(f"ferryman: ferryman://clerk:***@{server.host}:{server.port}/1?family=kue: ")
    assert message in outcome.error
    assert "docs/access.md" in outcome.error


def test_a_key_that_is_out_of_reach_is_named(server: Server, client: redis.Redis) -> None:
    fill(server, "kue", damaged=False)
    with user(client, "clerk", ["~q:job:*" if word == "~q:*" else word for word in RULES["reader"]]):
        error = ferryman("jobs", url(server, 1, "kue"), "--limit", "0").error
    found = re.search(r"the user may not use key (.+) with TYPE: grant ~(.+) or a pattern that fits it", error)
    assert found, error
    with server.client(1) as there:
        assert there.exists(found[1])
    assert found[1] == found[2]


@pytest.mark.parametrize("taken", ["hset", "zadd", "eval", "watch"])
def test_a_target_that_refuses_is_named_and_the_rest_is_written_later(server: Server, client: redis.Redis, taken: str) -> None:
    fill(server, "kue", damaged=False)
    source, target = server.url(1, family="kue"), url(server, 2, "ferryman")
    with user(client, "clerk", [*RULES["target-ferryman"], f"-{taken}"]):
        refused = ferryman("migrate", source, target)
        assert refused.status == 3
        assert f"the user may not call {taken.upper()}" in refused.error
        client.execute_command("ACL", "SETUSER", "clerk", f"+{taken}")
        assert ferryman("migrate", source, target, "--resume", "--format", "json").status == 0
        assert ferryman("verify", source, target).status == 0


def test_a_journal_out_of_reach_is_named(server: Server, client: redis.Redis) -> None:
    fill(server, "kue", damaged=False)
    with user(client, "clerk", [word for word in RULES["target-ferryman"] if word != "~ferryman-migration:*"]):
        error = ferryman("migrate", server.url(1, family="kue"), url(server, 2, "ferryman")).error
    assert "the user may not use key ferryman-migration:{journal}:" in error


@pytest.mark.parametrize(
    ("arguments", "script"), [(("dead",), None), (("metrics",), None), (("dead", "requeue", "--all"), "revive")]
)
def test_the_commands_of_the_broker_name_what_they_lack(
    server: Server, client: redis.Redis, arguments: tuple[str, ...], script: str | None
) -> None:
    fill(server, "ferryman", damaged=False)
    taken = "-zrem" if script else "-smembers"
    with user(client, "clerk", [*published_rules()[0], taken]):
        first, *rest = arguments
        outcome = ferryman(first, url(server, 1, "ferryman"), *rest)
    assert outcome.status == 3
    assert ("grant +smembers" if script is None else f"script native.{script} on ferryman:{{") in outcome.stderr


def test_detection_counts_the_keys_that_the_user_may_not_see(server: Server, client: redis.Redis) -> None:
    fill(server, "kue", damaged=False)
    with server.client(1) as there:
        there.mset({f"session:{number}": "x" for number in range(7)})
    with user(client, "clerk", [word.replace("~*", "~q:*") for word in RULES["detector"]]):
        *_, summary = ferryman("detect", url(server, 1, "kue"), "--format", "json").lines()
        assert (summary["hidden"], summary["strangers"]) == (7, 0)
        shown = ferryman("detect", url(server, 1, "kue")).stdout
        assert "Keys that this user may not look at: 7." in shown
