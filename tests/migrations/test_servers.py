"""Scans, audits and snapshot files on a server of each generation: they differ in hash tables, cursors, encodings and files."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
import redis
from attrs import evolve
from ferryman.migrations import key_splits
from ferryman.migrations.key_splits import cut, read_split
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.rdbfile import RdbFile
from ferryman.migrations.scan import CursorRange, Cursors, node, ranges, scan_range, split_slots
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.pipeline import open_pipeline
from ferryman.schema.fact import Entry
from ferryman.schema.family import family_names, get_family
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import read_keyspace

from ..support.captures import Capture, capture, captures, load
from ..support.servers import GENERATIONS, Server, ServerKind, free_cluster_port, generation
from ..support.snapshots import NOW, fill, plain, read, saved
from ..support.topologies import wait_until


@pytest.fixture(scope="module", params=GENERATIONS)
def kind(request: pytest.FixtureRequest) -> ServerKind:
    found = generation(request.param)
    if found is None:
        pytest.skip(f"there is no {request.param} here (PyPI: {GENERATIONS[request.param] or 'none; Debian: redis-server'})")
    return found


@pytest.fixture(scope="module")
def any_server(kind: ServerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with kind.start(tmp_path_factory.mktemp("server")) as server:
        yield server


# Scans

STABLE = {b"toy:%d" % number for number in range(2_000)}
CROWD = 32_000
"""So many keys come and go at once: the table grows to sixteen times its size, and shrinks again."""
GROW = "for n = ARGV[1], ARGV[2] do redis.call('set', 'other:' .. n, n) end"
SHRINK = "for n = ARGV[1], ARGV[2] do redis.call('del', 'other:' .. n) end"


def stand(client: redis.Redis, names: Iterable[bytes]) -> None:
    """Stores the keys that stand still."""
    client.mset(dict.fromkeys(names, 1))


def scanned(client: redis.Redis, spans: Sequence[CursorRange], random: Random, *, dropped: int = 0) -> set[bytes]:
    """What ranges in any order name while crowds come and go; without the last ``dropped`` pages of each range."""
    found: set[bytes] = set()
    for span in random.sample(spans, len(spans)):
        pages = []
        for page in scan_range(client, span, ["toy:*"], count=random.randrange(1, 200)):
            pages.append(page)
            if random.random() < 0.1:
                client.eval(random.choice((GROW, SHRINK)), 0, 1, random.randrange(CROWD))
        found.update(*pages[: len(pages) - dropped])
    return found


def test_ranges_miss_no_key_that_stands_still_while_crowds_come_and_go(client: redis.Redis) -> None:
    stand(client, STABLE)
    for seed in range(3):
        random = Random(seed)
        client.config_set("activerehashing", random.choice(("yes", "no")))
        assert scanned(client, ranges(random.randrange(1, 17)), random) == STABLE
    assert scanned(client, ranges(8), Random(5), dropped=1) != STABLE, "or the assertions above can't fail"


@pytest.mark.slow
def test_side_by_side_scans_of_many_keys_miss_none_while_crowds_come_and_go(client: redis.Redis, server: Server) -> None:
    names = {b"toy:%d" % number for number in range(100_000)}
    stand(client, names)
    done = threading.Event()
    tides = 0

    def churn() -> None:
        """The table grows to four times its size and shrinks again, again and again, a step at a time."""
        nonlocal tides
        steps = range(0, 3 * len(names), 3_000)
        with server.client() as other:
            while not done.is_set():
                for script in (GROW, SHRINK):
                    for step in steps:
                        other.eval(script, 0, step + 1, step + 3_000)
                tides += 1

    def scan(span: CursorRange) -> set[bytes]:
        with server.client() as own:
            return {key for page in scan_range(own, span, ["toy:*"]) for key in page}

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            while tides < 5 and thread.is_alive():
                assert set().union(*pool.map(scan, ranges(16))) == names
    finally:
        done.set()
        thread.join()
    assert tides >= 5


@pytest.mark.parametrize("kind_of_key", ["set", "hash"])
def test_parts_of_sets_and_hashes_hold_every_item_that_stands_still(
    client: redis.Redis, kind_of_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LONG", 1_000), ("PART", 500), ("PAGE", 100)):
        monkeypatch.setattr(key_splits, name, value)
    add, take = {"set": ("'sadd', 'key', n", "'srem', 'key', n"), "hash": ("'hset', 'key', n, n", "'hdel', 'key', n")}[
        kind_of_key
    ]
    random = Random(3)
    client.eval(f"for n = 1, 4000 do redis.call({add}) end", 0)
    # Numbers alone would make an intset of a small set; this one is a table.
    client.eval(f"local n = 'word' redis.call({add})", 0)
    found: Counter[bytes] = Counter()
    with open_pipeline(client) as pipe:
        splits = cut(pipe, b"key", kind_of_key, None, by_cursor=True)
        for entry in (entry for split in splits for entry in read_split(pipe, split)):
            found.update(list(entry.value))
            command = random.choice((add, take))
            client.eval(f"for n = 4001, ARGV[1] do redis.call({command}) end", 0, random.randrange(4_001, 20_000))
    assert len(splits) == 8
    assert {number for number in range(1, 4_001) if found[b"%d" % number] != 1} == set()


CLUSTERED = {"redis-6.2": Cursors.POSITIONS, "redis-8.2": Cursors.SLOTS, "valkey-9.1": Cursors.SLOTS}
"""What the cursors of a cluster's nodes are. The system's may be of any generation."""


def test_what_cursors_are_is_told_from_the_server(client: redis.Redis, kind: ServerKind, tmp_path: Path) -> None:
    assert node(client).cursors is Cursors.POSITIONS
    node_alone = kind.start(tmp_path, "--cluster-enabled", "yes", port=free_cluster_port())
    with node_alone as alone, alone.client() as member:
        member.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        names = {b"{%d}:%d" % (number % 50, number) for number in range(3_000)}
        wait_until(lambda: "ok" in str(member.execute_command("CLUSTER", "INFO")).partition("cluster_state")[2][:8])
        for name in names:
            member.set(name, 1)
        cursors = node(member).cursors
        assert cursors is CLUSTERED.get(kind.name, cursors)
        with open_pipeline(member) as pipe:
            spans = split_slots(pipe, range(16384), 4) if cursors is Cursors.SLOTS else ranges(4)
        found = [key for span in spans for page in scan_range(member, span, ["*"], 10) for key in page]
        assert set(found) == names


# Audits


@pytest.mark.parametrize("case", [capture("kue", "crashed"), capture("bee", "crashed")], ids=str)
def test_an_audit_finds_what_the_capture_holds(client: redis.Redis, server: Server, case: Capture) -> None:
    load(case, client)
    address = evolve(Address.parse(server.url(family=case.system)), prefix=case.prefix)
    findings: list[Finding] = []
    LocalEngine().audit(address, case.captured_at_ms, findings.append)
    # Times to live are not loaded.
    entries = [evolve(entry, ttl_ms=None) for entry in case.entries()]
    seen = read_keyspace(get_family(case.system), entries, case.prefix, case.captured_at_ms)
    assert sorted(map(repr, findings)) == sorted(map(repr, seen.findings()))
    assert findings
    assert {job.id for job in LocalEngine().jobs(address, case.captured_at_ms)} == {job.id for job in seen.jobs()}


# Snapshot files


def test_a_snapshot_file_has_every_encoding_that_the_server_writes(client: redis.Redis, server: Server, tmp_path: Path) -> None:
    fill(client, 100)
    with open_source(Address.parse(server.url(family="kombu"))) as live:
        standing = plain(entry for batch in live.entries(0) for entry in batch)
    assert read(saved(client, server, tmp_path), now_ms=0) == standing
    assert len(standing) == 700


SAMPLES = {("kue", "healthy"), ("qless", "healthy"), ("pjq", "crashed")}
EVERY = "valkey-9.1"
"""The server that writes a file of every capture; the others write those of SAMPLES."""


FILES = [
    (name, case)
    for name in GENERATIONS
    for system in family_names()
    for case in captures(system)
    if name == EVERY or (system, case.name) in SAMPLES
]


@pytest.mark.parametrize(("kind", "case"), FILES, indirect=["kind"], ids=str, scope="module")
def test_a_snapshot_file_states_the_same_facts_as_its_server(
    client: redis.Redis, server: Server, case: Capture, tmp_path: Path
) -> None:
    load(case, client)
    address = evolve(Address.parse(server.url(family=case.system)), prefix=case.prefix)
    with open_source(address) as live:
        standing = facts(case, (entry for batch in live.entries(NOW) for entry in batch))
    with RdbFile(saved(client, server, tmp_path)) as file:
        assert facts(case, (entry for batch in file.entries(0, NOW) for entry in batch)) == standing
    assert standing


def facts(case: Capture, entries: Iterable[Entry]) -> Counter[str]:
    """What the keys state."""
    family = get_family(case.system)
    return Counter(repr(fact) for entry in entries for fact in family.facts(in_order(entry), case.prefix))


def in_order(entry: Entry) -> Entry:
    """The same with its members or fields in the one order: sets and hashes have none of their own."""
    match entry.redis_type:
        case "set":
            return evolve(entry, value=sorted(entry.value))
        case "hash":
            return evolve(entry, value=dict(sorted(entry.value.items())))
    return entry
