"""What pages assume of the server in their commands, and what is said of a URL that is wrong (docs/commands.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from ..support.command import ferryman
from ..support.servers import Server, free_port
from .pages import PAGES, ROOT, blocks, commands, page_name

SECTION = "commands.md#addresses"
FIRST = "start.md"
"""Has the reader start the server that it assumes."""
TABLE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("| message |")[2]
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TABLE, re.MULTILINE)


def with_addresses() -> list[Path]:
    """The pages that have commands with the address of a server on the reader's machine."""
    return [
        page
        for page in PAGES
        if page_name(page) != FIRST
        and any(
            re.match(r"ferryman .*localhost:6379", command)
            for block in blocks(page)
            if block.language in ("", "console", "bash")
            for command in commands(block)
        )
    ]


@pytest.mark.parametrize("page", with_addresses(), ids=page_name)
def test_a_page_says_what_its_commands_assume(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert SECTION in text or "Assumed here: the server is `localhost:6379`" in text


def said(url: str) -> str:
    """What a command answers to the URL."""
    outcome = ferryman("audit", url)
    assert outcome.status in (2, 3), outcome.stdout
    return outcome.stderr


def promised(start: str) -> re.Pattern[str]:
    """The message of the page that has these words, as a pattern: ``…`` stands for anything."""
    (message,) = [each for each in MESSAGES if start in each]
    return re.compile(".*".join(map(re.escape, message.strip("… ").split("…"))))


def test_each_message_of_the_page_is_what_is_said(server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    client.mset({f"other:{number}": "" for number in range(49)})
    assert promised("no kue keys").search(said(server.url(family="kue", prefix="shop")))
    assert promised("which is empty").search(said(server.url(3, family="kue")))
    assert promised("unknown family").search(said(server.url(family="kuee")))
    assert promised("can't be reached").search(said(f"ferryman://{server.host}:{free_port()}/0"))
    monkeypatch.delenv("REDIS_PASSWORD", raising=False)
    assert promised("environment variable").search(said(server.url(password_env="REDIS_PASSWORD")))
    monkeypatch.setenv("REDIS_PASSWORD", "wrong")
    client.config_set("requirepass", "right")
    try:
        message = said(server.url(password_env="REDIS_PASSWORD"))
    finally:
        client.config_set("requirepass", "")
    assert promised("refuses the credentials").search(message)
    assert "wrong" not in message
    client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+ping")
    try:
        message = said(server.url(family="kue").replace("://", "://reader@"))
    finally:
        client.execute_command("ACL", "DELUSER", "reader")
    assert promised("may not call").search(message)
