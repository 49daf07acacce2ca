"""The table of features in docs/families.md says what the families say when they are asked, and each family has its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis
from ferryman.schema.family import family_names, get_family

from ..support.features import EMULATED, FEATURES, Support, support_of, table
from ..support.servers import installed_servers

DOCS = Path(__file__).parents[2] / "docs" / "families.md"
PAGES = DOCS.parent / "families"
TITLES = (r"\| of a (?:job|message) \| becomes \|", "Versions", "What the keys don't show", "Writing to", "Not reproduced")


def test_the_table_is_what_the_families_do(tmp_path: Path) -> None:
    with installed_servers()[-1].start(tmp_path) as server, server.client() as client:
        assert table(family_names(), client) in DOCS.read_text("utf-8"), "docs/families.md needs the table above"


def test_every_family_has_its_section_and_its_line_at_the_head() -> None:
    """The sections stay where they were for who comes by an old link, and lead to the pages."""
    text = DOCS.read_text("utf-8")
    head, *sections = text.split("\n## ")
    for name in family_names():
        assert f"| [`{name}`](families/{name}.md) |" in head
        (section,) = [section for section in sections if re.match(rf"{name}\b", section)]
        assert f"](families/{name}.md)" in section


@pytest.mark.parametrize("name", family_names())
def test_the_page_of_a_family_says_all_that_one_must_know(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text("utf-8")
    assert text.startswith(f"# {name}")
    for title in TITLES:
        assert re.search(rf"^\*\*{title}[^*]*\*\*|^{title}", text, re.MULTILINE), title


def test_no_page_is_about_a_family_that_does_not_exist() -> None:
    assert sorted(page.stem for page in PAGES.glob("*.md")) == sorted(family_names())


@pytest.mark.parametrize(("title", "name"), EMULATED)
def test_what_is_emulated_neither_overflows_nor_is_refused(client: redis.Redis, title: str, name: str) -> None:
    feature = next(feature for feature in FEATURES if feature.title == title)
    assert support_of(get_family(name), feature, client) is Support.EMULATED
