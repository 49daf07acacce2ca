"""The message frame: every message comes back as it was, and no bytes can do more than be refused."""

from __future__ import annotations

from json import dumps, loads

import pytest
from ferryman.schema.errors import MalformedValue, UsageError
from ferryman.schema.native import codec
from hypothesis import given
from hypothesis import strategies as st

any_text = st.text(st.characters(codec=None)).filter(lambda text: loads(dumps(text)) == text)
"""Two surrogates side by side are one character to JSON."""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(any_text, json_values, max_size=5), st.binary())
def test_a_message_comes_back_as_it_was(head: dict[str, object], body: bytes) -> None:
    assert codec.decode(codec.encode(head, body)) == (head, body)


@given(st.binary())
def test_any_bytes_are_a_frame_or_malformed(message: bytes) -> None:
    try:
        head, body = codec.decode(message)
    except MalformedValue:
        return
    assert isinstance(head, dict)
    assert message.endswith(b"\n" + body)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"\nbody",
        b"[]\nbody",
        b"null\nbody",
        b'"text"\nbody',
        b'{"a":\nbody',
        b'{"a":"\xff"}\nbody',
        b"[" * 100_000 + b"\nbody",
        b'{"a":' * 100_000 + b"\nbody",
        b"1" * 5_000 + b"\nbody",
    ],
    ids=lambda message: repr(message[:12]),
)
def test_what_is_no_frame_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedValue):
        codec.decode(message)


def test_a_body_may_contain_newlines_and_any_bytes() -> None:
    assert codec.decode(b'{"content-type":"x"}\na\nb\x00\xff') == ({"content-type": "x"}, b"a\nb\x00\xff")


def test_a_head_that_json_cannot_express_is_refused_at_the_edge() -> None:
    with pytest.raises(UsageError, match="plain JSON"):
        codec.encode({"headers": {"when": object()}}, b"")
