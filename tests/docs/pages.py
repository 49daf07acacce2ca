"""What the pages of the documentation contain: their files, code blocks and commands. Used by the tests beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
PAGES = tuple([ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").rglob("*.md")))


def page_name(page: Path) -> str:
    """How tests call a page: its path below docs/, or its name where it stands at the root."""
    return page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT).as_posix()


@frozen
class Block:
    """A fenced or indented block of a page."""

    page: str
    """``page_name`` of it."""
    line: int
    language: str
    """Empty for an indented block."""
    text: str


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """All blocks of a page, in order."""
    return tuple(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    fence, language, begin, lines = "", "", 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        found = re.match(r"^(```+)\s*([\w{}-]*)", line)
        if fence:
            if line.rstrip() == fence:
                yield Block(page_name(page), begin, language, "\n".join(lines))
                fence, lines = "", []
            else:
                lines.append(line)
        elif found:
            if lines:
                yield Block(page_name(page), begin, "", "\n".join(lines))
            fence, language, begin, lines = found[1], found[2] or "text", number + 1, []
        elif line.startswith("    ") and (lines or not _previous_is_text(page, number)):
            begin = begin if lines else number
            lines.append(line[4:])
        elif lines:
            yield Block(page_name(page), begin, "", "\n".join(lines))
            lines = []
    if lines:
        yield Block(page_name(page), begin, "", "\n".join(lines))


@cache
def _lines(page: Path) -> list[str]:
    return page.read_text(encoding="utf-8").splitlines()


def _previous_is_text(page: Path, number: int) -> bool:
    """Whether an indented line goes on with the paragraph or the item of a list before it."""
    return number > 1 and bool(_lines(page)[number - 2].strip())


def commands(block: Block) -> Iterator[str]:
    """The command lines of a block, each joined over its continuations."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        line = line.strip()
        if block.language == "console":
            if line.startswith("$ "):
                yield line[2:]
        elif line and not line.startswith("#"):
            yield line
