"""What is said of thousands of kue records at once is what is said of each alone."""

from __future__ import annotations

from ferryman.compat.digits import numbers_in
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.schema.fact import Entry
from hypothesis import event, given, settings
from hypothesis import strategies as st

from .strategies import fields, texts
from .test_voucher import NOW, PREFIX, edges, stored_as

JOBS = list(generate(300, 7, NOW))
RECORDS = [stored_as(job) for job in JOBS]
VOUCHER = FAMILY.voucher(PREFIX, NOW)

digits = st.one_of(
    st.integers(0, 10**20).map(lambda number: b"%d" % number),
    st.text("0123456789", max_size=20).map(str.encode),
    st.binary(max_size=20),
    st.sampled_from([b"12\0", b"\0", b"-1", b"+1", b"1 ", "١".encode(), b"0" * 19]),
)
members = st.one_of(
    st.integers(0, 10**17).map(lambda number: b"%02d|%d" % (len(str(number)), number)),
    st.tuples(st.binary(max_size=3), digits).map(b"".join),
    st.tuples(st.sampled_from([b"00|", b"01|", b"02|", b"03|", b"1:|", b"0/|", b"16|", b"17|"]), digits).map(b"".join),
    texts,
)


@given(st.lists(digits, max_size=30), st.integers(0, 3))
def test_a_column_of_numbers(column, start) -> None:
    def number(text: bytes) -> int:
        rest = text[start:]
        return int(rest) if rest.isdigit() and len(rest) <= 18 else -1

    assert numbers_in(column, start).tolist() == list(map(number, column))


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(RECORDS), st.dictionaries(fields, edges, max_size=2), st.sets(fields, max_size=1)),
        min_size=8,
        max_size=40,
    ),
    st.booleans(),
)
def test_records_are_vouched_for_as_one_by_one(changed, alike) -> None:
    if alike:  # many with the same fields, which are looked at together
        changed = [(record, changed[0][1], set()) for record, _, _ in changed for _ in range(8)]
    rows = [
        {name: value for name, value in {**record, **changes}.items() if name not in less} for record, changes, less in changed
    ]
    keys = [b"q:job:%d" % (10**number if number < 18 else number) for number in range(len(rows))]
    keys[0] = b"q:job:007"
    found = VOUCHER.columns().vouch(keys, list(map(tuple, rows)), [list(row.values()) for row in rows])
    told = {}
    for row, number, home, scores, created_at in zip(
        found.rows.tolist(),
        found.numbers.tolist(),
        found.at_home.tolist(),
        found.scores.tolist(),
        found.created_at.tolist(),
        strict=True,
    ):
        told[row] = (number, found.homes[home], tuple(scores), created_at)
    expected = {}
    for row, (key, record) in enumerate(zip(keys, rows, strict=True)):
        number, sound = VOUCHER.record(key), VOUCHER.vouch(record)
        if number is not None and sound is not None:
            expected[row] = (number, sound.home, tuple(sound.scores), sound.created_at)
    event(f"vouched for: {10 * len(expected) // len(rows)} of 10")
    assert told == expected


@given(
    st.lists(members, min_size=1, max_size=30),
    st.sampled_from([b"q:jobs", b"q:jobs:mail:failed", b"q:job:types", b"q:searchtmpkey"]),
)
def test_members_of_places_as_one_by_one(names, key) -> None:
    entry = Entry(key, "zset", [(name, 1.0) for name in names])
    alone, together = VOUCHER.standing(entry), VOUCHER.columns().standings(entry)
    assert (alone is None) == (together is None)
    if alone is not None:
        assert together.place == alone.place
        assert together.numbers.tolist() == [-1 if number is None else number for number in alone.numbers]
