"""Which keyspaces are served: those of qless since 2013 and reqless, of one era, and all of it theirs."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless.live import QlessLive
from ferryman.schema.connection.call import run
from ferryman.schema.errors import KeyspaceRefused, UsageError
from ferryman.schema.family import get_family
from ferryman.schema.live import NewJob

from ...support.captures import capture, load
from ...support.foreign_keys import everything

pytestmark = pytest.mark.in_turn

SERVED = ("healthy", "pypi-0.11.4", "reqless-0.13.3", "odd", "crashed")
REFUSED = {
    "older-version": "qless of 2012",
    "lower-first": "qless of 2012",
    "first-core": "qless of 2012",
    "seed-layout": "no key of qless|qless of 2012",
    "upgraded": "qless of 2012",
    "crashed-reqless": "must not work on one keyspace",
}


@pytest.mark.parametrize("name", SERVED)
def test_a_keyspace_since_2013_is_served(client: redis.Redis, name: str) -> None:
    load(capture("qless", name), client)
    before = everything(client)
    run(client, QlessLive().look())
    assert everything(client) == before


@pytest.mark.parametrize("name", REFUSED)
def test_an_older_keyspace_and_one_of_two_eras_is_refused(client: redis.Redis, name: str) -> None:
    load(capture("qless", name), client)
    before = everything(client)
    with pytest.raises(KeyspaceRefused, match=REFUSED[name]):
        run(client, QlessLive().look())
    assert everything(client) == before


def test_one_of_both_qless_and_reqless_is_served_to_who_says_which_works(client: redis.Redis) -> None:
    load(capture("qless", "crashed-reqless"), client)
    run(client, QlessLive(core="reqless").look())


def test_an_empty_keyspace_is_served(client: redis.Redis) -> None:
    run(client, QlessLive().look())


def test_keys_of_another_system_are_named(client: redis.Redis) -> None:
    client.hset("ql:job:1", "type", "mail")
    with pytest.raises(KeyspaceRefused, match="'ql:job:1'"):
        run(client, QlessLive().look())


def test_a_replica_is_refused(client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(KeyspaceRefused, match="replica"):
            run(client, QlessLive().look())
    finally:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize(("name", "throttles"), [("healthy", False), ("pypi-0.11.4", False), ("reqless-0.13.3", True)])
def test_a_job_is_put_in_the_form_of_the_core_that_works_there(client: redis.Redis, name: str, throttles: bool) -> None:
    load(capture("qless", name), client)
    for queue in ("emails", "brand new"):
        job_id = run(client, QlessLive().put(NewJob(queue, b"1", "shop.Job")))
        assert client.hexists(f"ql:j:{job_id}", "throttles") == throttles


def test_there_is_no_other_prefix_and_the_core_may_be_named() -> None:
    family = get_family("qless")
    with pytest.raises(UsageError, match="no other prefix"):
        family.live("other", "ferryman")
    live = get_family("qless", (("core", "reqless"),)).live("ql", "ferryman")
    assert isinstance(live, QlessLive)
    assert live.core == "reqless"
    with pytest.raises(ValueError, match="unified"):
        family.parameters["core"]("2013")
