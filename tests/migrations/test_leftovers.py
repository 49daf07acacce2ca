"""Keys that stay behind: a migration names them, grouped, whichever engine it is, and no repair touches those of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import redis
from ferryman.migrations.leftovers import MOST_COUNTED, MOST_TOLD, OTHERS, count, group_of, largest_groups
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.preconditions import READING, keys_of
from ferryman.migrations.repair import applied, planned
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry, FactKind
from ferryman.schema.family import KeyFamily, Target, get_family
from ferryman.schema.text import dump_json
from ferryman.schema.totals import Totals
from ferryman.testing.faults import changed_keys
from ferryman.testing.keyspaces import dump, send, store

from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server, installed_servers


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all families."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("leftovers")) as server:
        yield server


@pytest.mark.parametrize(
    ("key", "group"),
    [
        (b"q:scheduler:8b1f", "q:scheduler:*"),
        (b"q:scheduler:data:8b1f", "q:scheduler:data:*"),
        (b"q:stats:work-time", "q:stats:work-time"),
        (b"q:3f2504e0-4f89-11d3-9a0c-0305e82c3301", "q:*"),
        (b"celery-task-meta-3f2504e0-4f89-11d3-9a0c-0305e82c3301", "celery-task-meta-*"),
        (b"q2:user:1", "q2:user:*"),
        (b"", ""),
        (b"q:\xff\xfe", "q:\udcff\udcfe"),
    ],
)
def test_keys_are_grouped_by_how_their_names_begin(key: bytes, group: str) -> None:
    assert group_of(key, "q2" if key.startswith(b"q2") else "q") == group


def test_many_groups_are_counted_and_told_together() -> None:
    groups: Counter[str] = Counter()
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    for first in alphabet:
        for second in alphabet:
            count(f"q:{first}{second}".encode(), "q", groups)
            count(b"q:often:1", "q", groups)
    assert len(groups) == MOST_COUNTED + 1
    found = largest_groups(groups)
    assert next(iter(found)) == "q:often:*"
    assert len(found) == MOST_TOLD + 1
    assert list(found)[-1] == OTHERS
    assert sum(found.values()) == 2 * len(alphabet) ** 2


def strangers(client: redis.Redis, family: KeyFamily) -> None:
    """What other programs keep under the family's prefix: keys of every type, with and without a time to live."""
    start = f"{family.default_prefix}:" if family.default_prefix else ""
    client.psetex(f"{start}scheduler:8b1f", 10_000_000, "")
    client.set(f"{start}scheduler:data:8b1f", "{}")
    for end, is_passing in (("kept", False), ("passing", True)):
        client.rpush(f"{start}notes:list:{end}", "a", "{}")
        client.hset(f"{start}notes:hash:{end}", mapping={"a": "[{", "b": "1"})
        client.zadd(f"{start}notes:zset:{end}", {"7": 1.0, "02|17": 2.0})
        client.sadd(f"{start}notes:set:{end}", "1", "a")
        client.xadd(f"{start}notes:stream:{end}", {"a": "b"})
        if is_passing:
            for redis_type in ("list", "hash", "zset", "set", "stream"):
                client.pexpire(f"{start}notes:{redis_type}:{end}", 10_000_000)
    if family.name == "kombu":
        other_keyspace(client)


def other_keyspace(client: redis.Redis) -> None:
    """kombu's under a prefix of their own: messages twice in a list, held without an index, and indexed without a message."""
    client.sadd("app1:_kombu.binding.news", "x\x06\x16\x06\x16mail")
    info = {"exchange": "news", "routing_key": "x"}
    for tag in ("tag-1", "tag-2"):
        message = {"body": "", "headers": {"task": "t", "id": tag}, "properties": {"delivery_tag": tag, "delivery_info": info}}
        client.rpush("app1:mail", dump_json(message), dump_json(message), "{")
        client.hset("app1:unacked", tag, dump_json([message, "news", "x"]))
    client.zadd("app1:unacked_index", {"gone": 1.0})


def of_others(family: KeyFamily, keys: dict[bytes, Entry], prefix: str) -> set[bytes]:
    """The keys that the family calls somebody else's: it states nothing of them, or that they have no name of its own."""
    totals, about = Totals(), {}
    for entry in keys.values():
        about[entry.key] = list(family.facts(entry, prefix))
        for fact in about[entry.key]:
            family.tally(fact, totals)
    others = totals.names.get("other prefixes", set())
    return {
        key
        for key, facts in about.items()
        if all((fact.kind is FactKind.ODD and fact.role == "nameless") or fact.role in family.ambiguous_roles for fact in facts)
        or any(key.startswith(other.encode()) for other in others)
    }


@pytest.mark.parametrize("name", GENERATING)
def test_no_repair_writes_what_is_not_the_familys(lasting: Server, name: str) -> None:
    """Each rule that can be broken is, one after the other, among the keys of others; then all are mended at once."""
    client, family = lasting.client(), get_family(name)
    prefix = family.default_prefix
    client.flushdb()
    strangers(client, family)
    made = list(family.generate(150, 3, NOW))
    store(client, family, prefix, made, NOW)
    for place, rule in enumerate(sorted(family.injectable)):
        jobs = (*made[place:], *made[:place])
        broken = next(filter(None, (family.inject(rule, job, Target(prefix, NOW)) for job in jobs)), [])
        send(client, broken)
    before = dump(client)
    foreign = of_others(family, before, prefix)
    assert len(foreign) >= 10
    address = Address.parse(lasting.url(family=name))
    repairs = planned(address, sorted(family.repairable), NOW)
    written = {key for each in repairs for command in each.commands if command[0] not in READING for key in keys_of(command)}
    assert written
    assert written & foreign == set()
    applied(address, sorted(family.repairable), NOW)
    after = dump(client)
    assert changed_keys({key: before[key] for key in foreign}, {key: after[key] for key in foreign & after.keys()}) == set()


def test_the_summary_names_the_keys_of_others(lasting: Server) -> None:
    client, family = lasting.client(), get_family("kue")
    client.flushdb()
    store(client, family, "q", list(family.generate(20, 1, NOW)), NOW)
    client.set("q:stats:work-time", "7")
    for number in range(3):
        client.set(f"q:scheduler:{number}", "")
    client.lpush("elsewhere", "x")
    source, target = Address.parse(lasting.url(family="kue")), Address.parse(lasting.url(1))
    plan = Plan.between(source, target, NOW)
    for dry_run in (True, False):
        summary = LocalEngine().migrate(source, target, plan, lambda _finding: None, dry_run=dry_run)
        assert summary.left_behind == {"q:scheduler:*": 3, "q:stats:work-time": 1}
        assert summary.to_dict()["left_behind"] == summary.left_behind
