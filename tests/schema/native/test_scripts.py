"""Scripts: made of a transition and of what it uses of the pieces, and of nothing else."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from ferryman.schema.lua import names
from ferryman.schema.native.scripts.loader import definitions, script

FILES = [file.name.removesuffix(".lua") for file in (files("ferryman.schema.native.scripts") / "lua").iterdir()]
TRANSITIONS = sorted(name for name in FILES if not name.startswith("_"))
PIECES = sorted(name for name in FILES if name.startswith("_"))


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_consists_of_definitions(piece: str) -> None:
    assert all(names(definition) for definition in definitions(piece))


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_script_carries_what_it_uses_of_the_pieces_and_nothing_else(transition: str) -> None:
    text = script(transition).text
    included = [definition for piece in PIECES for definition in definitions(piece) if definition in text]
    assert included
    for definition in included:
        rest = text.replace(definition, "")
        assert any(re.search(rf"\b{name}\b", rest) for name in names(definition)), f"nobody uses {definition}"
    assert "\n--" not in text
