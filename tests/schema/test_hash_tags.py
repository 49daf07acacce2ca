"""Hash tags: what a cluster hashes of a key, as the server itself does, and which families' jobs share a slot."""

from __future__ import annotations

import pytest
from ferryman.schema.family import family_names, get_family
from ferryman.schema.keys import hash_tag
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        (b"q:jobs", b"q:jobs"),
        (b"ferryman:{mail}:job:1", b"mail"),
        (b"{q}:jobs:{other}", b"q"),
        (b"{}:jobs{a}", b"{}:jobs{a}"),
        (b"a}b{c}", b"c"),
        (b"a{{b}}", b"{b"),
        (b"open{", b"open{"),
    ],
)
def test_the_tag_is_the_first_braces_that_hold_something(key: bytes, tag: bytes) -> None:
    assert hash_tag(key) == tag


@given(st.text(alphabet="ab{}").map(str.encode))
def test_a_key_lies_in_the_slot_of_its_tag(key: bytes) -> None:
    tag = hash_tag(key)
    assert key_slot(key) == key_slot(tag) if tag == key else key_slot(key) == key_slot(b"{" + tag + b"}")


@pytest.mark.parametrize("name", family_names())
def test_a_prefix_with_a_tag_keeps_every_family_in_one_slot(name: str) -> None:
    family = get_family(name)
    assert family.has_hash_tags("plain") is (name == "ferryman")
    assert family.has_hash_tags("{q}")
