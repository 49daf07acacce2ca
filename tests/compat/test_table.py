"""The table of features in docs/families.md says what the families say when they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from ferryman.schema.family import family_names, get_family

from ..support.features import EMULATED, FEATURES, Support, support_of, table
from ..support.servers import installed_servers

DOCS = Path(__file__).parents[2] / "docs" / "families.md"


def test_the_table_is_what_the_families_do(tmp_path: Path) -> None:
    with installed_servers()[-1].start(tmp_path) as server, server.client() as client:
        assert table(family_names(), client) in DOCS.read_text("utf-8"), "docs/families.md needs the table above"


def test_every_family_has_its_section_and_its_line_at_the_head() -> None:
    text = DOCS.read_text("utf-8")
    head = text.partition("\n## ")[0]
    for name in family_names():
        assert f"| `{name}` |" in head
        if name != "ferryman":
            assert f"\n## {name}" in text


@pytest.mark.parametrize(("title", "name"), EMULATED)
def test_what_is_emulated_neither_overflows_nor_is_refused(client: redis.Redis, title: str, name: str) -> None:
    feature = next(feature for feature in FEATURES if feature.title == title)
    assert support_of(get_family(name), feature, client) is Support.EMULATED
