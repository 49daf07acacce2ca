"""The documentation site is built without a warning: every page is in its contents, every link and docstring is right.

Its page of commands has every command and option that exists.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from ferryman.cli.main import COMMANDS, main

from .pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", str(folder / "cache")]
    done = subprocess.run(
        [*command, ".", str(folder / "site")], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site" / "docs"


def text(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_the_api_has_its_docstrings(site: Path) -> None:
    assert "assert_enqueued" in text(site / "api.html")


def test_nothing_comes_from_another_host(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//""", first) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_there(site: Path, name: str) -> None:
    page = text(site / "commands.html")
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert f"ferryman {name} " in page
    options = [option for each in command.params if isinstance(each, click.Option) and not each.hidden for option in each.opts]
    assert [option for option in options if option not in page] == []
