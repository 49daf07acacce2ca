"""The ACL rules that docs/broker.md and docs/access.md publish: what tests check is what users read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

BROKER = Path(__file__).parents[2] / "docs" / "broker.md"


def published_rules() -> tuple[list[str], list[str]]:
    """The words of the rule for one server, and of what a cluster needs besides."""
    one, more = re.findall(r"ACL SETUSER shop (.*?)\n\n", BROKER.read_text(encoding="utf-8"), re.DOTALL)
    return one.replace("\\\n", " ").split(), more.split()


def kue_shop_rule() -> list[str]:
    """The words of the rule for a broker on kue's keyspace."""
    (rule,) = re.findall(r"ACL SETUSER kue-shop (.*?)\n\n", BROKER.read_text(encoding="utf-8"), re.DOTALL)
    return rule.replace("\\\n", " ").split()


ACCESS = Path(__file__).parents[2] / "docs" / "access.md"
KUE = ["~q:*", "~promotion:lock", "~activeJobsTTL:lock"]
"""The patterns for which users write those of another family."""


def access_rules() -> dict[str, list[str]]:
    """The words of each whole rule in docs/access.md, by the user's name there."""
    found = re.findall(r"ACL SETUSER (\S+) (on .*?)\n\n", ACCESS.read_text(encoding="utf-8"), re.DOTALL)
    return {name: rule.replace("\\\n", " ").split() for name, rule in found}


def access_additions() -> tuple[list[str], list[str]]:
    """What readers need besides with Spark, and at a cluster."""
    spark, cluster = re.findall(r"ACL SETUSER reader (\+.*?)\n\n", ACCESS.read_text(encoding="utf-8"), re.DOTALL)
    return spark.split(), cluster.split()


def patterns(family: str) -> list[str]:
    """The key patterns of a family, from the table in docs/access.md."""
    found = re.search(rf"^\| `{family}` \| `(~.*)` \|$", ACCESS.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, family
    return found[1].split()


def for_family(rule: Sequence[str], family: str) -> list[str]:
    """A rule with the patterns of another family in place of kue's."""
    return [*(word for word in rule if word not in KUE), *patterns(family)]


@contextlib.contextmanager
def user(client: redis.Redis, name: str, rule: Sequence[str]) -> Iterator[None]:
    """Makes a user with this rule and nothing more, for the length of the block."""
    client.execute_command("ACL", "SETUSER", name, "reset", *rule)
    try:
        yield
    finally:
        client.execute_command("ACL", "DELUSER", name)
