"""Other systems' keyspaces on every generation of servers, on a cluster, behind a Unix socket, and under another side prefix."""

from __future__ import annotations

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.family import get_family
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ..conftest import SERVERS
from ..support.clusters import cluster
from ..support.foreign_brokers import QUEUE, publish
from ..support.live_systems import SYSTEMS
from ..support.servers import GENERATIONS, generation

pytestmark = pytest.mark.in_turn

TAGGED = [system.family for system in SYSTEMS if get_family(system.family).has_hash_tags("{x}") and system.family != "qless"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as running:
        yield running


def round_trip(url, **options):
    """Tasks, and what is no task, each to where it belongs."""
    came = []
    with Connection(url, transport_options=options) as connection, connection.channel() as channel:
        news = Queue("news", Exchange("all", "fanout"), auto_delete=True)
        with Consumer(channel, [Queue(QUEUE), news], on_message=lambda m: (came.append(m), m.ack())):
            publish(connection, [{"n": 1}])
            publish(connection, [1, 2], "other", kwargs={"k": 3})
            Producer(channel).publish("hello", exchange="all")
            while len(came) < 3:
                connection.drain_events(timeout=60)
    return sorted(str(m.payload[:2] if "task" in m.headers else m.payload) for m in came)


EXPECTED = ["[[1, 2], {'k': 3}]", "[[{'n': 1}], {}]", "hello"]


@pytest.mark.parametrize("family", TAGGED)
def test_a_prefix_with_a_hash_tag_is_served_on_a_cluster(nodes, family):
    if get_family(family).live("{x}", "ferryman").arguments == "object":
        pytest.skip("its payload has fields of its own")
    prefix = "{x-" + family + "}"
    assert round_trip(nodes.url(family=family, prefix=prefix)) == EXPECTED


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_ferrymans_own_keys_stand_under_the_side_prefix_alone(server, client, system):
    round_trip(server.url(family=system.family, prefix=system.prefix, side_prefix="beside"))
    assert not client.keys("ferryman:*")
    assert client.keys("beside:*")


def test_a_unix_socket_leads_to_a_keyspace_as_well(tmp_path):
    path = tmp_path / "s"
    with SERVERS[0].start(tmp_path, "--unixsocket", str(path)):
        assert round_trip(f"ferryman+unix://{path}?family=kue") == EXPECTED


@pytest.fixture(scope="module", params=GENERATIONS)
def of_a_generation(request, tmp_path_factory):
    kind = generation(request.param)
    if kind is None:
        pytest.skip(f"{request.param} is not installed")
    with kind.start(tmp_path_factory.mktemp("generation")) as server:
        yield server


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_every_generation_of_servers_serves_every_system(of_a_generation, system):
    of_a_generation.client().flushall()
    came = round_trip(of_a_generation.url(family=system.family, prefix=system.prefix))
    assert (len(came), came[-1]) == (3, "hello")
