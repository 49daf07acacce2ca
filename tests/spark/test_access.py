"""Users with few rights and Spark: the rules of docs/access.md are enough for driver and executors, and a refusal is one line."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError
from ferryman.schema.family import Target, get_family
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import store

from ..support.acl import access_additions, access_rules, for_family, user
from ..support.servers import Server

NOW = 1_795_262_676_000
RULES, MORE = access_rules(), access_additions()[0]


def fill(client: redis.Redis, name: str) -> None:
    family = get_family(name)
    jobs = list(family.generate(200, 7, NOW))
    store(client, family, family.default_prefix, jobs, NOW)
    for rule in ("KUE-5", "BEE-11"):
        faults = (family.inject(rule, job, Target(family.default_prefix, NOW)) for job in jobs if rule in family.injectable)
        for command in next(filter(None, faults), []):
            client.execute_command(*command)


def address(server: Server, db: int, name: str, who: str) -> Address:
    return Address.parse(server.url(db, family=name).replace("ferryman://", f"ferryman://{who}:secret@"))


@pytest.mark.parametrize("name", ["bee", "kickq", "kombu", "kue", "pjq", "qless"])
def test_the_rules_are_enough(engine: SparkEngine, server: Server, client: redis.Redis, name: str) -> None:
    fill(client, name)
    source, target = address(server, 0, name, "clerk"), address(server, 1, "ferryman", "writer")
    plan = Plan.between(source, target, NOW, lossy=True)
    client.execute_command("ACL", "LOG", "RESET")
    with user(client, "clerk", [*for_family(RULES["auditor"], name), *MORE]):
        assert engine.audit(source, NOW, lambda _: None).jobs > 0
    with user(client, "clerk", [*for_family(RULES["source"], name), *MORE]), user(client, "writer", RULES["target-ferryman"]):
        assert engine.migrate(source, target, plan, lambda _: None).written > 0
    with (
        user(client, "clerk", [*for_family(RULES["reader"], name), *MORE]),
        user(client, "writer", [*RULES["verifier"], *MORE]),
    ):
        assert engine.verify(source, target, plan, lambda _: None).matched > 0
        assert list(engine.jobs(source, NOW))
        assert engine.queues(source, NOW)
    assert {entry["object"] for entry in client.acl_log()} <= {"client|setinfo"}


@pytest.mark.parametrize(("taken", "command"), [("-lrange", "LRANGE on "), ("-zrange", "ZRANGE on ")])
def test_what_an_executor_may_not_do_is_one_line_on_the_driver(
    engine: SparkEngine, server: Server, client: redis.Redis, taken: str, command: str
) -> None:
    fill(client, "bee")
    with (
        user(client, "clerk", [*for_family(RULES["auditor"], "bee"), *MORE, taken]),
        pytest.raises(ServerError) as caught,
    ):
        engine.audit(address(server, 0, "bee", "clerk"), NOW, lambda _: None)
    error = str(caught.value)
    assert f"the user may not call {command}bee:" in error
    assert f"grant +{taken[1:]}" in error
    assert "\n" not in error


def test_a_target_that_forbids_is_one_line_on_the_driver(engine: SparkEngine, server: Server, client: redis.Redis) -> None:
    fill(client, "kue")
    source, target = Address.parse(server.url(family="kue")), address(server, 1, "ferryman", "writer")
    plan = Plan.between(source, target, NOW)
    with (
        user(client, "writer", [*RULES["target-ferryman"], "-zadd"]),
        pytest.raises(ServerError, match=r"the user may not call ZADD on ferryman:.*grant \+zadd"),
    ):
        engine.migrate(source, target, plan, lambda _: None)
