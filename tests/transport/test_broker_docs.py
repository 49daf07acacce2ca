"""docs/broker.md names every option, with its default."""

from __future__ import annotations

import re

from ferryman.schema.connection.address import IGNORED_OPTIONS, OPTIONS
from ferryman.schema.native.scripts.arguments import SETTINGS
from ferryman.transport import settings
from ferryman.transport.live.mapping import parse

from ..support.acl import BROKER

DEFAULTS = {
    "prefix": "`ferryman`",
    "lease": settings.LEASE,
    "fetch_limit": settings.FETCH_LIMIT,
    "delivery_limit": settings.DELIVERY_LIMIT,
    "socket_timeout": settings.SOCKET_TIMEOUT,
    "priority_order": "`ascending`",
    "queue_order_strategy": "`round_robin`",
    "durability": "`local`",
    "remove_revoked": "true",
}


def section(title: str) -> str:
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", BROKER.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return text


def test_the_mapping_file_of_the_page_is_one():
    (text,) = re.findall(r"```toml\n(.*?)```", section("Another system's keyspace"), re.DOTALL)
    found = parse(text).of("email")
    assert (found.tasks, found.args, found.excluded) == ({"email": "shop.send_mail"}, "kwargs", {"audit"})
    assert set(found.options) == {"attempts", "backoff"}


def test_every_option_stands_in_the_table_and_no_other():
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", section("Options"), re.MULTILINE)
    named = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(named) == {"prefix", *OPTIONS} - {"checksum"}  # of snapshot files
    for name, default in DEFAULTS.items():
        assert named[name] == (default if isinstance(default, str) else f"{default:g}")


def test_every_ignored_option_and_every_queue_argument_is_named():
    (ignored,) = re.findall(r"say so once, with the reason: (.*?)\.\n", section("Options"), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", ignored)) == set(IGNORED_OPTIONS)
    (honoured,) = re.findall(r"Queue arguments that are honoured(.*?)\n\n", section("Options"), re.DOTALL)
    assert set(re.findall(r"`(x-[a-z-]+)`", honoured)) == set(SETTINGS)
