"""Every snippet of Python, JSON, TOML and YAML in the docs can be read by its language, and what it imports of ferryman exists.

Those of Python are run by test_snippets_run.py, which names the tests of the others.
"""

from __future__ import annotations

import ast
import importlib
import json
import textwrap
import tomllib
from collections.abc import Callable

import pytest
import yaml

from .pages import PAGES, Block, blocks

READERS: dict[str, Callable[[str], object]] = {
    "python": lambda text: ast.parse(textwrap.dedent(text)),
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}
SNIPPETS = [block for page in PAGES for block in blocks(page) if block.language in READERS]
PYTHON = [block for block in SNIPPETS if block.language == "python"]


def name(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) > 15


@pytest.mark.parametrize("block", SNIPPETS, ids=name)
def test_a_snippet_can_be_read(block: Block) -> None:
    READERS[block.language](block.text)


@pytest.mark.parametrize("block", PYTHON, ids=name)
def test_what_a_snippet_imports_of_ferryman_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(textwrap.dedent(block.text))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("ferryman"):
                    importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ferryman"):
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
