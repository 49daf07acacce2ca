"""What hypothesis draws for keys and jobs of several families: numbers, times, texts and JSON, sound and odd."""

from __future__ import annotations

import json

from hypothesis import strategies as st

whole_numbers = st.integers(-(2**63) + 1, 2**63 - 1)
"""All that a job may hold."""

times = st.one_of(st.none(), st.integers(1_500_000_000_000, 1_900_000_000_000), whole_numbers)
"""Milliseconds, most of them of our days."""

lines = st.text(st.characters(exclude_categories=()), max_size=8)
"""Texts with surrogates, line ends and zeros in them."""

json_texts = st.one_of(
    st.sampled_from([b"{}", b"[]", b"42", b"1e400", b'"\\ud83d"', b"null", '{"ü": [1, {"b": "東京"}]}'.encode()]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode()),
)
"""Sound JSON documents."""

extra_values = st.recursive(
    st.one_of(st.none(), st.booleans(), whole_numbers, st.floats(allow_nan=False), st.binary(max_size=5), lines),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(lines, st.sampled_from(["b64", "float", "plain"])), inner, max_size=2),
    ),
    max_leaves=6,
)
"""What a job may keep in its ``extra``, the words of our own encoding among it."""
