"""docs/around.md claims nothing that was not run, or says so."""

from __future__ import annotations

import re

import pytest

from ..support.workers import ROOT

PAGE = (ROOT / "docs" / "around.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_every_program_of_the_table_has_a_section():
    rows = re.findall(r"^\| \[(.*?)\]\(#(.*?)\)", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == [name for name in SECTIONS if not name.startswith("Images")]
    assert all(anchor == name.lower() for name, anchor in rows)


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_names_a_test_that_there_is_or_says_that_it_was_read(name):
    tests = re.findall(r"tests/[\w/]+\.py", SECTIONS[name])
    assert tests or "read, not run" in SECTIONS[name].lower()
    assert all((ROOT / path).is_file() for path in tests)
