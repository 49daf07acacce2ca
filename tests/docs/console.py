"""The consoles of a page: what is typed there, what is printed below it, and whether a server prints the same. Used by tests.

A line of output on a page is one that the command prints, and in the same order. ``…`` stands for any text; a line of it alone
for any lines.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attrs import frozen

from ..support.command import Outcome, ferryman
from ..support.servers import Server
from .pages import Block, blocks

ADDRESS = "localhost:6379"
"""The server of every page."""
SECONDS = 90.0
"""How long a worker may take for what a page says."""


@frozen
class Typed:
    """A command of a page, with what stands below it."""

    page: str
    line: int
    command: str
    printed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


def typed(block: Block) -> Iterator[Typed]:
    """The commands of a console block, each joined over its continuations, with their output."""
    lines, begin, command, printed = block.text.replace("\\\n", "\x00").split("\n"), 0, "", []
    number = block.line
    for line in lines:
        if line.startswith("$ "):
            if command:
                yield Typed(block.page, begin, command, tuple(printed))
            begin, command, printed = number, re.sub(r"\x00\s*", "", line[2:]), []
        else:
            printed.append(line.rstrip())
        number += 1 + line.count("\x00")
    if command:
        yield Typed(block.page, begin, command, tuple(printed))


def steps(page: Path) -> Iterator[Typed | Block]:
    """What a reader does, in order: the Python files that they write, and the commands that they type."""
    for block in blocks(page):
        if block.language == "console":
            yield from typed(block)
        elif block.language == "python":
            yield block


def run(command: str, server: Server) -> Outcome:
    """A ``ferryman`` command of a page on this server; what it prints names the page's again."""
    here = f"{server.host}:{server.port}"
    program, *words = shlex.split(command.replace(ADDRESS, here))
    assert program == "ferryman", f"{command}: nothing runs this"
    done = ferryman(*words)
    return Outcome(done.status, done.stdout.replace(here, ADDRESS), done.stderr.replace(here, ADDRESS))


def prints(step: Typed, output: str) -> bool:
    """Whether a command has printed what its page says."""
    pattern = "".join(_patterns(_without_margins(step.printed)))
    text = "".join(f"{line.rstrip()}\n" for line in _without_margins(output.split("\n")))
    return re.fullmatch(pattern, text) is not None


def _patterns(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"


def _without_margins(lines: Iterable[str]) -> list[str]:
    """Without the empty lines: pages have fewer of them than tables."""
    return [line for line in lines if line.strip()]


def wait_until_printed(step: Typed, look: Callable[[], Outcome]) -> None:
    """Looks until the command prints what its page says: a worker is at it."""
    deadline = time.monotonic() + SECONDS
    while not prints(step, (seen := look()).stdout):
        assert time.monotonic() < deadline, f"{step}\n{seen.stdout}{seen.stderr}"
        time.sleep(0.2)
