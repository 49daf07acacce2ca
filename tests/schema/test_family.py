"""The contract of key families: installed ones have what it names, and nothing beside it that nobody would call."""

from __future__ import annotations

import pytest
from ferryman.schema.family import KeyFamily, family_names, get_family


@pytest.mark.parametrize("name", family_names())
def test_a_family_has_no_public_method_that_is_not_of_the_contract(name: str) -> None:
    known = {*vars(KeyFamily), *KeyFamily.__annotations__}
    assert {each for each in vars(type(get_family(name))) if not each.startswith("_")} <= known
