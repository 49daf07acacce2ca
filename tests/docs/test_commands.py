"""Every command and option that the documentation names exists, and every one that exists is named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain

import click
import pytest

from ferryman.cli.main import COMMANDS, main

from .pages import PAGES, Block, blocks, commands

OF_CELERY = re.compile(r"^(?:celery|python -m celery) .*? ferryman (.*)$")


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


@pytest.mark.parametrize(("block", "text"), USES, ids=[f"{block.page}-{text[:60]}" for block, text in USES])
def test_a_command_in_the_docs_is_one_that_can_be_typed(block: Block, text: str) -> None:
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


def options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield max(parameter.opts, key=len)


def test_there_are_commands_in_the_docs() -> None:
    assert len(USES) > 60
    assert {text.split()[0] for _, text in USES} >= set(COMMANDS) - {"server"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_named_in_the_docs_or_its_own_help(name: str) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [option for option in chain(options(sub_command(name))) if not re.search(rf"{re.escape(option)}(?![\w-])", text)]
    assert missing == []
