"""All systems in one database: each is detected, listed and audited as if it were alone, and work on one touches no other."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump

from ..support.captures import DATA, Capture, captures, load
from ..support.command import ferryman
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

SYSTEMS = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())


def one_of_each() -> list[Capture]:
    """The healthy capture of every system, and one under another prefix where there is one."""
    cases = [case for system in SYSTEMS for case in captures(system)]
    return [case for case in cases if case.name in ("healthy", "custom-prefix")]


def printed(server: Server, case: Capture, command: str) -> list[dict[str, Any]]:
    """What a command says about the keyspace of a capture."""
    url = server.url(family=case.system, prefix=quote(case.prefix))
    return ferryman(command, url, "--format", "json", "--now", str(case.captured_at_ms)).lines()


def test_every_system_is_detected_among_all_others(server: Server, client: redis.Redis) -> None:
    cases = one_of_each()
    for case in cases:
        load(case, client)
    *found, _ = ferryman("detect", server.url(), "--format", "json").lines()
    fitting = {(each["family"], each["prefix"]): each["jobs"] for each in found if each["confidence"] != "doubtful"}
    assert fitting == {(case.system, case.prefix): case.expected["jobs"] for case in cases}


@pytest.mark.parametrize("case", one_of_each(), ids=str)
def test_a_keyspace_is_listed_and_audited_as_if_it_were_alone(server: Server, client: redis.Redis, case: Capture) -> None:
    load(case, client)
    jobs, findings = printed(server, case, "jobs"), printed(server, case, "audit")
    for other in one_of_each():
        if (other.system, other.prefix) != (case.system, case.prefix):
            load(other, client)
    assert printed(server, case, "jobs") == jobs
    # A key that its own system knows may still look odd to one under whose prefix it stands.
    assert [each for each in printed(server, case, "audit") if each not in findings] == []


def test_work_on_one_keyspace_touches_no_other(server: Server, client: redis.Redis) -> None:
    for case in one_of_each():
        load(case, client)
    client.set("celery-task-meta-1", b"{}")
    before = dump(client)
    rules = [option for rule in sorted(get_family("kue").repairable) for option in ("--repair", rule)]
    url = server.url(family="kue", prefix="other")
    faults = ("--damage", "KUE-4=2", "--damage", "KUE-7=2")
    assert ferryman("generate", url, "--jobs", "50", *faults, "--now", str(NOW)).status == 0
    assert ferryman("audit", url, *rules, "--apply", "--now", str(NOW)).status == 0
    assert ferryman("migrate", url, server.url(prefix="carried"), "--now", str(NOW)).status == 0
    after = dump(client)
    assert {key: after.get(key) for key in before} == before
    own = (b"other:", b"carried:", b"ferryman-migration")
    assert all(key.startswith(own) for key in after.keys() - before.keys())
