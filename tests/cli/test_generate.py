"""``ferryman generate``: the same arguments give the same keyspace, sound or damaged as asked for, and never over other jobs."""

from __future__ import annotations

import pytest
import redis
from attrs import evolve
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump, read_keyspace

from ..support.command import ferryman
from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def lasting(keyspace: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """The keyspace without the milliseconds that keys have left to live."""
    return {key: evolve(entry, ttl_ms=None if entry.ttl_ms is None else 1) for key, entry in keyspace.items()}


@pytest.mark.parametrize("family", GENERATING)
def test_the_same_seed_gives_the_same_keyspace(server: Server, client: redis.Redis, family: str) -> None:
    keyspaces = []
    for seed in ("7", "7", "8"):
        client.flushdb()
        arguments = ("--jobs", "60", "--seed", seed, "--now", str(NOW), "--format", "json")
        (line,) = ferryman("generate", server.url(), "--family", family, *arguments).lines()
        assert (line["family"], line["jobs"], sum(line["by_state"].values())) == (family, 60, 60)
        keyspaces.append(lasting(dump(client)))
    assert keyspaces[0] == keyspaces[1]
    assert keyspaces[0] != keyspaces[2]


def test_faults_are_injected_as_often_as_asked(server: Server, client: redis.Redis) -> None:
    url = server.url(family="kue", prefix="shop")
    faults = ("--damage", "KUE-5=3", "--damage", "KUE-21=2", "--damage", "KUE-8=1")
    (line,) = ferryman("generate", url, "--jobs", "200", *faults, "--now", str(NOW), "--format", "json").lines()
    assert line["damage"] == {"KUE-5": 3, "KUE-21": 2, "KUE-8": 1}
    findings = read_keyspace(get_family("kue"), dump(client).values(), "shop", NOW).findings()
    said = [finding.rule for finding in findings if finding.rule != "KUE-15"]
    assert sorted(said) == ["KUE-21", "KUE-21", "KUE-5", "KUE-5", "KUE-5", "KUE-8"]


def test_where_not_enough_jobs_fit_it_is_said(server: Server) -> None:
    outcome = ferryman("generate", server.url(family="kue"), "--jobs", "5", "--damage", "KUE-5=50")
    assert outcome.status == 0
    assert "KUE-5 broken at 5 jobs of 50" in outcome.stdout


def test_a_keyspace_with_jobs_is_refused(server: Server, client: redis.Redis) -> None:
    url = server.url(family="kue")
    assert ferryman("generate", url, "--jobs", "5").status == 0
    before = dump(client)
    outcome = ferryman("generate", url, "--jobs", "5")
    assert outcome.status == 2
    assert "holds jobs already (q:job" in outcome.error
    assert dump(client) == before
    # Another prefix, or another system, is another keyspace.
    assert ferryman("generate", url + "&prefix=other", "--jobs", "5").status == 0
    assert ferryman("generate", server.url(), "--jobs", "5").status == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("KUE-5", "RULE=K"),
        ("KUE-5=x", "RULE=K"),
        ("KUE-99=1", "rules that can be: KUE-1, KUE-2"),
    ],
)
def test_wrong_damage_is_one_line(server: Server, client: redis.Redis, fault: str, message: str) -> None:
    outcome = ferryman("generate", server.url(family="kue"), "--jobs", "5", "--damage", fault)
    assert outcome.status == 2
    assert message in outcome.error
    assert client.dbsize() == 0


@pytest.mark.parametrize("family", GENERATING)
@pytest.mark.usefixtures("client")
def test_all_faults_of_a_family_fit_into_one_keyspace(server: Server, family: str) -> None:
    faults = [word for rule in sorted(get_family(family).injectable) for word in ("--damage", f"{rule}=2")]
    outcome = ferryman("generate", server.url(), "--family", family, "--jobs", "200", *faults)
    assert outcome.status == 0, outcome.stderr
