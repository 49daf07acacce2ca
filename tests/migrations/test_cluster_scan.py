"""A cluster as a source: every key of every node, in parts, and while slots move."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from ferryman.migrations import cluster_scan
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.scan import Cursors, node, scan_range
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound, ServerError, UsageError
from ferryman.schema.rule import Finding
from redis.crc import key_slot

from ..conftest import SERVERS
from ..support.captures import Capture, captures
from ..support.captures import commands as words_of
from ..support.clusters import MASTERS, Cluster, cluster
from ..support.servers import Server, ServerKind
from ..support.topologies import Daemon

pytestmark = pytest.mark.in_turn

KEYS = 4000


@pytest.fixture(scope="module", params=SERVERS, ids=[kind.name for kind in SERVERS])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind: ServerKind = request.param
    with cluster(kind, tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture
def empty(running: Cluster) -> Cluster:
    for master in running.nodes[:MASTERS]:
        running.say(master, "FLUSHALL")
    return running


def put(nodes: Cluster, *words: str | bytes | int | float) -> None:
    key = words[1]
    nodes.say(nodes.owner(key if isinstance(key, bytes) else str(key).encode()), *words)  # type: ignore[arg-type]


def fill(nodes: Cluster) -> set[bytes]:
    """Keys of a toy keyspace: most of them all over the cluster, and as many as half of it in one slot."""
    names = {b"spread:%d" % number for number in range(KEYS // 2)} | {b"{hot}:%d" % number for number in range(KEYS // 2)}
    with cluster_scan.Cluster(address(nodes)) as reader:
        owners = reader.refresh()
        pipelines = {owner: reader.client(owner).pipeline(transaction=False) for owner in reader.masters()}
        for name in names:
            pipelines[owners[key_slot(name)]].set(name, name)
        for pipeline in pipelines.values():
            pipeline.execute()
    return names


def address(nodes: Cluster, **options: str) -> Address:
    return Address.parse(nodes.url(**{"family": "kue", **options}))


def everything(nodes: Cluster) -> Counter[bytes]:
    with cluster_scan.Cluster(address(nodes)) as reader:
        return Counter(entry.key for batch in reader.entries(["*"]) for entry in batch)


def test_every_key_of_every_node_is_read_once(empty: Cluster) -> None:
    names = fill(empty)
    assert everything(empty) == Counter(names)


@pytest.mark.parametrize("number", [1, 2, 5, 40])
def test_spans_of_all_nodes_together_name_every_key(empty: Cluster, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferryman.migrations.scan.SCAN_COUNT", 5)
    names = fill(empty)
    with cluster_scan.Cluster(address(empty)) as reader:
        spans = [(name, span) for name in reader.masters() for span in reader.spans(name, number)]
        found = [key for name, span in spans for page in scan_range(reader.client(name), span, ["*"], 5) for key in page]
    assert set(found) == names
    assert len(found) < 1.2 * len(names)
    if number == 40:
        assert len(spans) > 20


def test_a_hot_slot_is_split_in_itself(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferryman.migrations.scan.SCAN_COUNT", 5)
    fill(empty)
    owner = empty.owner(b"{hot}")
    with cluster_scan.Cluster(address(empty)) as reader:
        name = next(name for name in reader.masters() if name[1] == owner.server.port)
        spans = reader.spans(name, 10)
        client = reader.client(name)
        sizes = [sum(b"hot" in key for page in scan_range(client, span, ["*"], 5) for key in page) for span in spans]
        assert node(client).cursors in (Cursors.SLOTS, Cursors.POSITIONS)
    assert max(sizes) < KEYS // 4


def test_a_slot_that_moves_during_the_scan_loses_no_key(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = fill(empty)
    moved = threading.Event()
    scan_page = cluster_scan.scan_range

    def scan_and_move(*arguments):  # type: ignore[no-untyped-def]
        """Moves the hot slot away from a node that is still to be scanned, to one that has been."""
        yield from scan_page(*arguments)
        if not moved.is_set():
            moved.set()
            first = next(each for each in empty.nodes[:MASTERS] if each.server.port == _port(arguments[0]))
            if empty.owner(b"{hot}") is not first:
                empty.move(b"{hot}", first)
            else:
                empty.move(b"spread:1", first)

    monkeypatch.setattr(cluster_scan, "scan_range", scan_and_move)
    assert everything(empty) == Counter(names)
    assert moved.is_set()


def test_a_slot_that_was_away_during_the_scan_loses_no_key(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = fill(empty)
    home = empty.owner(b"{hot}")
    hosts = [each for each in empty.nodes[:MASTERS] if each is not home]
    scan_page = cluster_scan.scan_range
    visits: list[Daemon] = []

    def scan_and_move(client, *arguments):  # type: ignore[no-untyped-def]
        """The hot slot is with another node while its own is scanned, and back before that one is."""
        is_home = _port(client) == home.server.port
        host = next(each for each in hosts if each.server.port != _port(client))
        if is_home:
            empty.move(b"{hot}", host)
            visits.append(host)
        yield from scan_page(client, *arguments)
        if is_home:
            empty.move(b"{hot}", home)

    with cluster_scan.Cluster(address(empty)) as reader:
        before = reader.at_rest()
        monkeypatch.setattr(cluster_scan, "scan_range", scan_and_move)
        assert everything(empty) == Counter(names)
        assert visits
        assert {name for name, _ in reader.at_rest().values()} == {name for name, _ in before.values()}
        with pytest.raises(ServerError, match="a slot has moved away and back during the scan"):
            reader.must_own(before)
        reader.must_own(reader.at_rest())


def _port(client) -> int:  # type: ignore[no-untyped-def]
    return int(client.connection_pool.connection_kwargs["port"])


@pytest.mark.parametrize("number", [0, 1], ids=["the node of the address", "another"])
def test_a_node_that_does_not_answer_is_named(empty: Cluster, number: int) -> None:
    fill(empty)
    silent, heir = empty.nodes[number], empty.nodes[MASTERS + number]
    message = rf"no answer in time \(no reply from 127\.0\.0\.1:{silent.server.port}\)"
    # For the rest of these tests: nobody is to take over, then or later.
    empty.say(heir, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
    with silent.frozen(), pytest.raises(ServerError, match=message):
        next(LocalEngine().jobs(address(empty, socket_timeout="0.5"), 0))
    empty.wait_until_healthy()


def test_keys_are_read_where_they_are_even_if_the_map_is_old(empty: Cluster) -> None:
    names = fill(empty)
    with cluster_scan.Cluster(address(empty)) as reader:
        owner = empty.owner(b"{hot}")
        empty.move(b"{hot}", next(each for each in empty.nodes[:MASTERS] if each is not owner))
        assert {entry.key for batch in reader.read(names) for entry in batch} == names


def test_a_move_without_end_is_said(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_scan, "REST_SECONDS", 0.3)
    fill(empty)
    source = empty.owner(b"{hot}")
    target = next(each for each in empty.nodes[:MASTERS] if each is not source)
    slot = key_slot(b"{hot}")
    empty.say(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", empty.id_of(target))
    try:
        with pytest.raises(ServerError, match="on the move"):
            everything(empty)
    finally:
        empty.say(source, "CLUSTER", "SETSLOT", slot, "STABLE")


def test_an_audit_of_a_cluster_is_that_of_one_server(empty: Cluster, server: Server) -> None:
    case: Capture = next(case for case in captures("kue") if case.name == "crashed")
    one = server.client()
    for entry in case.entries():
        for words in words_of(entry):
            put(empty, *words)
            one.execute_command(*words)
    found: dict[str, list[Finding]] = {}
    for source in (address(empty), Address.parse(server.url(family="kue"))):
        LocalEngine().audit(source, case.captured_at_ms, found.setdefault(str(source), []).append)
        with open_source(source) as opened:
            assert opened.size() == sum(1 for _ in case.entries())
    first, second = (sorted(map(repr, findings)) for findings in found.values())
    assert first == second
    assert first


def test_the_masters_that_are_read_tell_how_much_is_left(empty: Cluster) -> None:
    fill(empty)
    with open_source(address(empty, prefix="spread")) as source:
        assert source.expected(10) is None
        shares = [source.share() for _ in source.entries(0)]
        assert set(shares) <= {None, 1 / MASTERS, 2 / MASTERS}
        assert shares[-1] == 2 / MASTERS
        assert source.share() == 1
        assert source.expected(10) == 10


def test_what_is_not_there_is_said(empty: Cluster, server: Server) -> None:
    with pytest.raises(KeyspaceNotFound, match="among the 0 keys of the cluster"):
        list(LocalEngine().jobs(address(empty), 0))
    with (
        pytest.raises(UsageError, match="no node of a cluster"),
        open_source(Address.parse(server.url().replace("ferryman://", "ferryman+cluster://"))),
    ):
        pass
