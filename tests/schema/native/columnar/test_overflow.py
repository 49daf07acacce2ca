"""What loops find aside of many jobs is what Aside.unpack reads of each."""

from __future__ import annotations

from typing import Any

from ferryman.schema.columnar.binary_views import Texts
from ferryman.schema.errors import MalformedValue
from ferryman.schema.native.columnar.overflow import FIELDS, Asides
from ferryman.schema.native.overflow import Aside, is_plain
from ferryman.schema.packed import pack
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ....compat.kue.strategies import jobs as any_jobs
from ....support.binary_views import WAYS, Way

WHOLE = ("priority", "updated_at", "max_attempts", "ttl")


def told(asides: Asides, row: int) -> Aside | None:
    """What the columns say of one job, as the class for one has it; None where they say that they can't."""
    fields: dict[str, Any] = {}
    for name in WHOLE:
        if asides.has(name)[row]:
            fields[name] = asides.whole(name).tolist()[row]
    if asides.has("progress")[row]:
        fields["progress"] = asides.fractions("progress").tolist()[row]
    result, are_exact = asides.raw("result")
    if asides.has("result")[row]:
        fields["result"] = result[row]
    (lines, are_sound), (extra, families) = asides.lines("logs"), asides.extra()
    if not (are_exact[row] and are_sound[row]):
        return None
    if asides.has("logs")[row]:
        start = int(lines.counts[:row].sum())
        fields["logs"] = tuple(lines.items[start + index] for index in range(lines.counts[row]))
    kept = Aside.unpack(b'{"fields":{},"extra":%b,"at":[],"native":false}' % extra[row]).extra
    assert families >= kept.keys()
    return Aside(fields, kept, [asides.roles[row].decode(), float(asides.moments[row])])


@settings(max_examples=500)
@given(
    st.lists(st.tuples(any_jobs(), st.randoms(use_true_random=False)), min_size=1, max_size=3), st.sampled_from(WAYS), st.data()
)
def test_what_is_plainly_aside_is_what_is_aside(rows, way: Way, data: st.DataObject) -> None:
    texts = []
    for job, random in rows:
        fields = {name: getattr(job, name) for name in FIELDS if random.random() < 0.7}
        place, score = random.choice(["waiting", "dead", "x"]), random.choice([0, 7, 2**53, -(2**45), random.randrange(2**53)])
        extra = random.choice([{}, job.extra])
        text = Aside(fields, extra, [place, float(score)], random.random() < 0.1).pack()
        if random.random() < 0.5:
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice([b"", b",", b"}", b"0", b"=", b"-", b'"']) + text[at + random.randrange(2) :]
        texts.append(text)
    asides = Asides.of(way(texts, data.draw(st.lists(st.sampled_from([b"", texts[0]]), max_size=1)), []))
    for row, text in enumerate(texts):
        event(f"plain: {asides.are_plain[row]}")
        assert not is_plain(text) or asides.are_plain[row] or b"-0" in text
        if asides.are_plain[row]:
            found = told(asides, row)
            assert Aside.unpack(text) == found or found is None


@given(st.lists(any_jobs(), min_size=1, max_size=3))
def test_most_of_what_is_aside_is_plain(jobs) -> None:
    texts = []
    for job in jobs:
        fields = {"updated_at": 7, "max_attempts": 3, "progress": 0.5, "result": job.payload or b"", "logs": job.logs or (b"",)}
        texts.append(Aside(fields, {"kue": {"fields": {"a": b"b"}}}, ["waiting", 5.0]).pack())
    asides = Asides.of(Texts.of(texts))
    assert asides.are_plain.all()
    assert [told(asides, row) for row in range(len(jobs))] == list(map(Aside.unpack, texts))


@given(st.sampled_from([{"b": {"x": 1}, "a": {}}, {"a": {"y": b"1", "x": None}}, {"a": 1}, {"a": {"b64": "AA=="}}]))
def test_what_families_keep_is_told_in_order(extra: dict[str, Any]) -> None:
    text = b'{"fields":{},"extra":%b,"at":["x",1.0],"native":false}' % pack(extra)
    asides = Asides.of(Texts.of([text]))
    try:
        kept = Aside.unpack(text).extra
    except MalformedValue:
        assert not asides.are_plain.any()
        return
    assert asides.are_plain.all()
    packed, families = asides.extra()
    assert packed.to_list() == [pack(kept, ordered=True)]
    assert families == kept.keys()
