"""The URL and options of a broker whose tasks stand in another system's keyspace."""

from __future__ import annotations

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import KeyspaceRefused, UsageError
from ferryman.schema.family import get_family
from ferryman.transport.settings import Settings
from kombu import Connection

from ..support.live_systems import SYSTEMS
from ..support.toy import install


def settings(url: str, **options: object) -> Settings:
    return Settings.of(Connection(url, transport_options=options))


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_the_url_or_the_options_name_a_system_and_its_prefix(system):
    prefix = "other" if system.family != "qless" else "ql"  # qless knows no other
    for given in (
        settings(f"ferryman://localhost/0?family={system.family}&prefix={prefix}&side_prefix=mine"),
        settings("ferryman://localhost/0", family=system.family, prefix=prefix, side_prefix="mine"),
    ):
        assert given.foreign is not None
        assert (given.foreign.name, given.foreign.prefix) == (system.family, prefix)
        assert (given.prefix, given.address.prefix) == ("mine", prefix)
    plain = settings(f"ferryman://localhost/0?family={system.family}")
    assert (plain.foreign.prefix, plain.prefix) == (get_family(system.family).default_prefix, "ferryman")


def test_a_familys_own_parameters_may_be_transport_options_as_kombus_are():
    options = {"priority_steps": [0, 5], "sep": ":", "visibility_timeout": 100, "global_keyprefix": "app1:"}
    for given in (
        settings("ferryman://localhost/0?family=kombu", **options),
        settings("ferryman://h/0", family="kombu", **options),
    ):
        assert (given.foreign.prefix, given.foreign.settings.steps) == ("app1:", (0, 5))
        assert settings(given.address.url()).foreign == given.foreign


def test_ferrymans_own_family_is_served_as_ever():
    for given in (settings("ferryman://localhost/0?prefix=p"), settings("ferryman://localhost/0", family="ferryman", prefix="p")):
        assert (given.foreign, given.prefix) == (None, "p")


def test_the_address_comes_back_whole_from_its_own_text():
    given = settings("ferryman://u:secret@localhost:7/0?family=kue&prefix=x&side_prefix=mine&lease=5&priority_order=descending")
    again = settings(given.address.url())
    assert (again.address, again.foreign.prefix, again.prefix) == (given.address, "x", "mine")
    assert "secret" not in repr(given)


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("ferryman://localhost/0?family=nosuch", {}, "unknown family 'nosuch'; installed are: "),
        ("ferryman://localhost/0", {"family": "nosuch"}, "unknown family 'nosuch'"),
        ("ferryman://localhost/0?family=auto", {}, "a broker serves one keyspace: write which"),
        ("ferryman://localhost/0?side_prefix=x", {}, "the option side_prefix is for the keyspaces of other systems"),
        ("ferryman://localhost/0", {"mapping": "m.toml"}, "the option mapping is for the keyspaces of other systems"),
        ("ferryman://localhost/0?family=kue&side_prefix=q", {}, "must not begin with 'q'"),
        ("ferryman://localhost/0?family=kue&prefix=a&side_prefix=a:b", {}, "must not begin with 'a'"),
        ("ferryman://localhost/0?family=kue&side_prefix=a{b}", {}, "must not contain"),
        ("ferryman://localhost/0?family=kue&side_prefix=", {}, "must not be empty"),
        ("ferryman://localhost/0?family=kue&prefix=", {}, "a kue keyspace has a prefix"),
        ("ferryman://localhost/0?family=kue&colour=red", {}, "unknown parameter 'colour'"),
        ("ferryman://localhost/0?family=kombu", {"priority_steps": "x"}, "transport option 'priority_steps'"),
        ("ferryman+cluster://localhost/0?family=kue", {}, "it needs a prefix with a hash tag"),
        ("ferryman://localhost/0?family=kue&mapping=/no/such.toml", {}, "the mapping file /no/such.toml can't be read"),
    ],
)
def test_what_can_not_be_is_one_sentence_that_says_what_to_do(url, options, text):
    with pytest.raises(UsageError) as error:
        settings(url, **options)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_family_that_can_only_be_read_is_no_broker(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="can be read and migrated, but not be a broker"):
        settings("ferryman://localhost/0?family=toy")


def test_a_prefix_with_a_hash_tag_can_be_on_a_cluster():
    given = settings("ferryman+cluster://localhost/0?family=kue&prefix={q}")
    assert given.foreign.prefix == "{q}"


def test_a_keyspace_of_another_system_is_refused_before_anything_is_written(server, client):
    client.zadd("q:jobs", {"01|1": 0})
    client.hset("q:job:1", mapping={"type": "mail", "state": "inactive", "data": "{}"})
    client.sadd("q:job:types", "mail")
    before = {key: client.dump(key) for key in client.keys("*")}
    with Connection(server.url(family="kickq", prefix="q")) as connection:
        with pytest.raises(KeyspaceRefused) as error:
            connection.ensure_connection(max_retries=3)
        assert "\n" not in str(error.value)
    assert {key: client.dump(key) for key in client.keys("*")} == before
