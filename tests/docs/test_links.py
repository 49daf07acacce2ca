"""Every link, anchor and file that the documentation names exists."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, page_name

FOLDERS = ("benchmarks", "cli", "compat", "docs", "examples", "migrations", "schema", "spark", "testing", "tests", "transport")
EXAMPLES = {"carry.py", "ferryman_command.py", "proj.py", "superset_config.py"}
"""Files of the reader's own."""


@cache
def text(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", text(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return names


def missing_link(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return not file.exists() or bool(anchor and anchor not in anchors(file))


@cache
def names() -> set[str]:
    """The names of all files below the project's folders."""
    return {each.name for top in FOLDERS for each in (ROOT / top).rglob("*.*")}


def missing_files(page: Path) -> list[str]:
    """Paths below the project's folders that don't exist, and names of tests that aren't beside the one named before."""
    missing = []
    folder = ROOT / "tests"
    for name in re.findall(r"(?<![\w/.:-])[\w<>/-]+(?:\.(?:py|lua)\b|/(?=`))", text(page)):
        if "<" in name or name in EXAMPLES:
            continue
        if name.endswith("/"):
            folder = ROOT / name
        elif "/" in name:
            if not (ROOT / name).is_file():
                missing.append(name)
            folder = (ROOT / name).parent
        elif not (folder / name).is_file() and (name.startswith("test_") or name not in names()):
            missing.append(name)
    return missing


def missing_folders(page: Path) -> list[str]:
    """Folders named as code, such as `schema/native/`, that don't exist."""
    named = re.findall(r"`([\w/-]+)/`", text(page))
    return [name for name in named if name.split("/")[0] in FOLDERS and not (ROOT / name).is_dir()]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", text(page))
    assert [target for target in targets if "://" not in target and missing_link(page, target)] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert missing_files(page) + missing_folders(page) == []
