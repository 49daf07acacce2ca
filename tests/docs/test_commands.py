"""Every command and option that the documentation names exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from ferryman.cli.main import main

from .pages import PAGES, Block, blocks, commands


def uses() -> Iterator[tuple[Block, str]]:
    """The arguments of ``ferryman`` in every command line of every page, without what a shell does with them."""
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("", "console", "sh", "bash", "text"):
                continue
            for command in commands(block):
                for part in re.split(r"\s(?:&&|\|\|?|;|>|2>)\s", command):
                    part = part.strip()
                    if part.startswith("ferryman "):
                        yield block, part.removeprefix("ferryman ")


USES = list(uses())


def sub_command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None, f"there is no command {name!r}"
    return found


@pytest.mark.parametrize("text", [text for _, text in USES], ids=[f"{block.page}-{text[:60]}" for block, text in USES])
def test_a_command_in_the_docs_is_one_that_can_be_typed(text: str) -> None:
    if "…" in text or "..." in text:
        text = re.sub(r"\s\[?(?:…|\.\.\.)\]?", "", text)
    words = shlex.split(text.split("  (")[0], comments=True)
    name, *arguments = words
    if name in ("--help", "--version"):
        return
    command = sub_command(name)
    context = click.Context(command, info_name=name, resilient_parsing=True)
    # Options in brackets are optional ones.
    command.make_parser(context).parse_args([argument.strip("[]") for argument in arguments])


def test_there_are_commands_in_the_docs() -> None:
    assert len(USES) > 35


def test_a_shell_completes_commands() -> None:
    environment = os.environ | {"_FERRYMAN_COMPLETE": "bash_complete", "COMP_WORDS": "ferryman au", "COMP_CWORD": "1"}
    program = [sys.executable, "-c", "from ferryman.cli.main import main; main(prog_name='ferryman')"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=400, check=True)
    assert done.stdout.split() == ["plain,audit"]
