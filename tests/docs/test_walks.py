"""The walks of CONTRIBUTING.md go through files and functions that exist, and its glossary is short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
STEPS = re.findall(r"^\| `([\w/]+\.(?:py|lua))` \| (?:`([\w.]+)`)? *\|", TEXT, re.MULTILINE)
MOST_WORDS = 40
MOST_FILES = 14


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_each_step_of_a_walk_exists(file: str, function: str) -> None:
    path = ROOT / file
    assert path.is_file()
    if function:
        scope = ast.parse(path.read_text("utf-8")).body
        for name in function.split("."):
            (found,) = [node for node in scope if getattr(node, "name", None) == name]
            scope = getattr(found, "body", [])


def test_a_message_passes_few_files() -> None:
    walk = TEXT.split("**From a publish to its ack.**")[1].split("**")[0]
    files = set(re.findall(r"^\| `([\w/.]+)`", walk, re.MULTILINE))
    assert 10 < len(files) <= MOST_FILES


def test_the_glossary_is_short() -> None:
    glossary = TEXT.split("## Glossary")[1].split("\n## ")[0]
    words = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)[2:]
    assert 20 < len(words) <= MOST_WORDS
