"""Servers that can't do what ferryman needs say so in one sentence, with their version."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.errors import ServerError
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from kombu import Connection, Consumer, Producer, Queue

from ..support.command import ferryman
from ..support.partial_server import partial_server
from ..support.servers import installed_servers

UNKNOWN = "ERR unknown command 'EVALSHA', with args beginning with: 'a1' '14' "
UNDECLARED = "ERR Error running script (call to f_1): @user_script:3: script tried accessing undeclared key"
CROSSSLOT = "CROSSSLOT Keys in request don't hash to the same slot"


def said(url):
    """What a producer is told."""
    with Connection(url) as connection, pytest.raises(connection.channel_errors) as caught, connection.channel() as channel:
        Producer(channel).publish("lost?", routing_key="q")
    return str(caught.value)


@pytest.mark.parametrize("renamed", [("EVALSHA",), ("EVAL", "EVALSHA")])
def test_a_server_whose_scripts_are_renamed_away_is_told_with_its_version(tmp_path, renamed):
    kind = installed_servers()[0]
    with kind.start(tmp_path, *(word for name in renamed for word in ("--rename-command", name, ""))) as bare:
        with bare.client() as client:
            version = client.info("server")
        name = f"Valkey {version['valkey_version']}" if "valkey_version" in version else f"Redis {version['redis_version']}"
        assert said(bare.url()).startswith(f"this server ({name}) runs no Lua scripts (EVALSHA is unknown to it, or renamed)")


@pytest.mark.parametrize(
    ("refusals", "sentence"),
    [
        ({"EVALSHA": UNDECLARED}, "lets scripts use no keys but those they name"),
        ({"EVALSHA": CROSSSLOT}, "keeps its keys in slots, as a cluster does: write ferryman+cluster://"),
        ({"EVALSHA": "ERR unsupported command 'EVALSHA'"}, "runs no Lua scripts"),
        ({"EVALSHA": "ERR Error running script: Unknown Redis command called from Lua script"}, "is too old"),
        ({"DEL": "ERR unknown command `DEL`"}, "does not know DEL, or it is renamed"),
    ],
)
def test_what_a_server_lacks_is_one_sentence(server, refusals, sentence):
    with partial_server(server, refusals) as partial:
        text = said(partial.url())
    assert text.startswith("this server (")
    assert sentence in text
    assert "\n" not in text


def test_a_server_that_does_not_say_its_version_is_told_without(server):
    with partial_server(server, {"EVALSHA": UNKNOWN, "INFO": "NOPERM this user has no permissions"}) as partial:
        assert said(partial.url()).startswith("this server runs no Lua scripts")


def test_a_consumer_is_told_what_its_wait_lacks(server):
    with (
        partial_server(server, {"BLPOP": CROSSSLOT}) as partial,
        Connection(partial.url()) as connection,
        connection.channel() as channel,
        Consumer(channel, [Queue("q")], on_message=print),
        pytest.raises(connection.channel_errors, match=r"this server \(.*\) keeps its keys in slots"),
    ):
        connection.drain_events(timeout=5)


def test_an_error_that_says_something_else_stays_as_it_is(server):
    with partial_server(server, {"EVALSHA": "ERR something else"}) as partial:
        assert said(partial.url()) == "something else"


def test_the_command_line_says_it_too(server):
    lacking = pytest.raises(ServerError, match=r"\(.*\) runs no Lua scripts")
    with partial_server(server, {"EVALSHA": UNKNOWN}) as partial, redis.Redis(port=partial.port) as client, lacking:
        run(client, QueueScripts("ferryman").size("q"))


def test_a_migration_to_a_server_without_scripts_is_refused_with_its_version(server):
    with Connection(server.url(5)) as connection:
        connection.SimpleQueue("q").put("x")
    with partial_server(server, {"EVALSHA": UNKNOWN, "EVAL": UNKNOWN}) as partial:
        refused = ferryman("migrate", server.url(5), partial.url())
    assert refused.status == 3
    assert "this server (" in refused.error
    assert "runs no Lua scripts" in refused.error
