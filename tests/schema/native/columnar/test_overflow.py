"""What loops find in the overflow of many jobs is what Overflow.decode reads of each."""

from __future__ import annotations

from typing import Any

from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.errors import MalformedValue
from ferryman.schema.native.columnar.overflow import FIELDS, OverflowColumns
from ferryman.schema.native.overflow import Overflow, is_plain
from ferryman.schema.tagged_json import decode_tagged, encode_tagged
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ....compat.kue.strategies import jobs as any_jobs
from ....support.binary_views import WAYS, Way
from ....support.effort import examples

WHOLE = ("priority", "updated_at", "max_attempts", "ttl")


def overflow_of(columns: OverflowColumns, row: int) -> Overflow | None:
    """What the columns say of one job, as the class for one has it; None where they say that they can't."""
    fields: dict[str, Any] = {}
    for name in WHOLE:
        if columns.has(name)[row]:
            fields[name] = None if columns.are_null(name)[row] else columns.whole(name).tolist()[row]
    if columns.has("progress")[row]:
        fields["progress"] = columns.fractions("progress").tolist()[row]
    result, are_exact = columns.raw("result")
    if columns.has("result")[row]:
        fields["result"] = result[row]
    (lines, are_valid), (extra, families) = columns.lines("logs"), columns.extra()
    if not (are_exact[row] and are_valid[row]):
        return None
    for name in ("tags", "history"):
        if columns.has(name)[row]:
            fields[name] = tuple(decode_tagged(b'{"":%b}' % columns.encoded(name)[row])[""])
    if columns.has("logs")[row]:
        start = int(lines.counts[:row].sum())
        fields["logs"] = tuple(lines.items[start + index] for index in range(lines.counts[row]))
    others = Overflow.decode(b'{"fields":{},"extra":%b,"at":[],"native":false}' % extra[row]).extra
    assert families >= others.keys()
    return Overflow(fields, others, [columns.roles[row].decode(), float(columns.scores[row])])


@settings(max_examples=examples(500))
@given(
    st.lists(st.tuples(any_jobs(), st.randoms(use_true_random=False)), min_size=1, max_size=3), st.sampled_from(WAYS), st.data()
)
def test_plain_overflow_is_read_as_the_codec_reads_it(rows, way: Way, data: st.DataObject) -> None:
    texts = []
    for job, random in rows:
        fields = {name: getattr(job, name) for name in FIELDS if random.random() < 0.7}
        role, score = random.choice(["waiting", "dead", "x"]), random.choice([0, 7, 2**53, -(2**45), random.randrange(2**53)])
        extra = random.choice([{}, job.extra])
        text = Overflow(fields, extra, [role, float(score)], random.random() < 0.1).encode()
        if random.random() < 0.5:
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice([b"", b",", b"}", b"0", b"=", b"-", b'"']) + text[at + random.randrange(2) :]
        texts.append(text)
    columns = OverflowColumns.of(way(texts, data.draw(st.lists(st.sampled_from([b"", texts[0]]), max_size=1)), []))
    for row, text in enumerate(texts):
        event(f"plain: {columns.are_plain[row]}")
        assert not is_plain(text) or columns.are_plain[row] or b"-0" in text
        if columns.are_plain[row]:
            found = overflow_of(columns, row)
            assert Overflow.decode(text) == found or found is None


@given(st.lists(any_jobs(), min_size=1, max_size=3))
def test_most_overflows_are_plain(jobs) -> None:
    texts = []
    for job in jobs:
        fields = {"updated_at": 7, "max_attempts": 3, "progress": 0.5, "result": job.payload or b"", "logs": job.logs or (b"",)}
        texts.append(Overflow(fields, {"kue": {"fields": {"a": b"b"}}}, ["waiting", 5.0]).encode())
    columns = OverflowColumns.of(BinaryViews.of(texts))
    assert columns.are_plain.all()
    assert [overflow_of(columns, row) for row in range(len(jobs))] == list(map(Overflow.decode, texts))


@given(st.sampled_from([{"b": {"x": 1}, "a": {}}, {"a": {"y": b"1", "x": None}}, {"a": 1}, {"a": {"b64": "AA=="}}]))
def test_what_families_keep_is_told_in_order(extra: dict[str, Any]) -> None:
    text = b'{"fields":{},"extra":%b,"at":["x",1.0],"native":false}' % encode_tagged(extra)
    columns = OverflowColumns.of(BinaryViews.of([text]))
    try:
        others = Overflow.decode(text).extra
    except MalformedValue:
        assert not columns.are_plain.any()
        return
    assert columns.are_plain.all()
    found, families = columns.extra()
    assert found.to_list() == [encode_tagged(others)]
    assert families == others.keys()
