"""The documentation site is built without a warning: every page is in its contents, every link and docstring is right.

Its page of commands has every command and option that exists.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from ferryman.cli.main import COMMANDS, main


def text(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_the_api_has_its_docstrings(site: Path) -> None:
    assert "assert_enqueued" in text(site / "docs" / "api.html")


def test_nothing_comes_from_another_host(site: Path) -> None:
    first = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//""", first) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_there(site: Path, name: str) -> None:
    page = text(site / "docs" / "commands.html")
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert f"ferryman {name} " in page
    options = [option for each in command.params if isinstance(each, click.Option) and not each.hidden for option in each.opts]
    assert [option for option in options if option not in page] == []
