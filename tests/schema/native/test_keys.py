"""Key names: one hash tag a queue, whatever the queue is called."""

from __future__ import annotations

import pytest
from ferryman.schema.errors import UsageError
from ferryman.schema.native import keys
from ferryman.schema.native.keys import QueueKeys, escape, is_escaped, unescape
from hypothesis import given
from hypothesis import strategies as st

names = st.text(min_size=1) | st.text("%{}7BD25", min_size=1)


def hash_tag(key: bytes) -> bytes:
    """What Redis Cluster hashes of a key."""
    start = key.index(b"{") + 1
    return key[start : key.index(b"}", start)]


@given(names)
def test_every_name_survives_its_escaped_form(name: str) -> None:
    assert unescape(escape(name)) == name
    assert is_escaped(escape(name))


@given(names, st.text(min_size=1))
def test_all_keys_of_a_queue_share_its_tag(queue: str, name: str) -> None:
    found = QueueKeys("ferryman", queue)
    every = [*found.fixed, found.job(name), found.held(name), found.publisher(name), found.tag(name), found.unique(name)]
    assert {hash_tag(key) for key in every} == {hash_tag(found.meta)}


@given(names, names)
def test_two_queues_never_share_a_key(one: str, other: str) -> None:
    assert (QueueKeys("f", one).base == QueueKeys("f", other).base) == (one == other)


@given(names)
def test_a_stream_and_its_cursors_share_a_tag(name: str) -> None:
    assert hash_tag(keys.fanout("f", name)) == hash_tag(keys.fanout_cursors("f", name))


@pytest.mark.parametrize("prefix", ["", "{", "a}b", "{x}"])
def test_a_prefix_that_would_take_over_the_hash_tag_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="prefix"):
        QueueKeys(prefix, "q")


def test_a_queue_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="name"):
        QueueKeys("f", "")
