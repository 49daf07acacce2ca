"""What a foreign record has no field for: exact there and back, and nothing that was not put there by us is believed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.compat.overflow import FIELD, TRUNCATED, Overflow, decode_tagged, encode_tagged, why_unreadable
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Active, Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import MalformedValue
from ferryman.schema.fact import Entry, FactKind
from ferryman.schema.family import KeyFamily, get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump, store
from hypothesis import given
from hypothesis import strategies as st

from ..support.mending import NOW
from ..support.servers import Server
from ..support.strategies import extra_values, lines
from .kue.strategies import jobs

pytestmark = pytest.mark.in_turn

BARE = Job(id="1", queue="q", name="q", state=State.WAITING)


@given(st.dictionaries(lines, extra_values, max_size=4))
def test_any_values_come_back_exactly(values: dict[str, Any]) -> None:
    assert decode_tagged(encode_tagged(values)) == values


def test_infinite_numbers_come_back() -> None:
    assert decode_tagged(encode_tagged({"a": float("inf"), "b": [float("-inf")]})) == {"a": float("inf"), "b": [float("-inf")]}


@given(jobs())
def test_a_job_gets_back_what_had_overflowed(job: Job) -> None:
    names = ("name", "payload", "progress", "tags", "history", "due_at", "error")
    poorer = evolve(BARE, id=job.id, extra={"kue": {}})
    overflow = Overflow.of(job, {name: getattr(job, name) for name in names}, "kue", b"5")
    assert overflow is not None
    again = Overflow.decode(overflow.encode()).restored(poorer, "", b"5")
    assert all(getattr(again, name) == getattr(job, name) for name in names)
    assert again.extra == {**{name: value for name, value in job.extra.items() if name != "kue"}, "kue": {}}


def test_nothing_overflows_of_a_job_that_lacks_nothing() -> None:
    assert Overflow.of(evolve(BARE, extra={"kue": {"state": "active"}}), {}, "kue", None) is None


def test_when_the_original_software_has_touched_the_job_only_what_it_never_touches_is_restored() -> None:
    overflow = Overflow({"progress": 0.333, "tags": ("a",)}, {"qless": {"x": 1}}, b"5")
    restored = overflow.restored(evolve(BARE, progress=0.5), "kue", b"6")
    assert (restored.progress, restored.tags, restored.extra) == (0.5, ("a",), {"qless": {"x": 1}})


@pytest.mark.parametrize(
    "values",
    [
        [],
        "text",
        {"fields": []},
        {"fields": {"id": 7}},
        {"fields": {"state": "failed"}},
        {"fields": {"logs": []}},
        {"fields": {"tags": "abc"}},
        {"fields": {"tags": [1]}},
        {"fields": {"attempts": True}},
        {"fields": {"attempts": 2**63}},
        {"fields": {"payload": "text"}},
        {"fields": {"payload": {"b64": "!"}}},
        {"fields": {"created_at": 1.5}},
        {"extra": {"qless": 5}},
        {"as_of": 5},
        {"as_of": "5"},
        {"as_of": "5", "fields": {}, "more": 1},
        {"fields": {"tags": []}},
    ],
)
def test_text_that_only_looks_like_ours_is_refused(values: Any) -> None:
    with pytest.raises(MalformedValue):
        Overflow.decode(json.dumps(values).encode())


def test_an_id_comes_back_only_to_a_job_that_has_none_of_its_own() -> None:
    overflow = Overflow({"id": "mail-1"}, {}, None)
    job = Job(id="7", queue="t", name="t", state=State.WAITING)
    assert overflow.restored(job, "kue", None).id == "7"
    assert overflow.restored(job, "kue", None, has_own_id=False).id == "mail-1"


@given(st.binary(max_size=30))
def test_any_bytes_are_refused_by_one_error(raw: bytes) -> None:
    try:
        Overflow.decode(raw)
    except MalformedValue:
        return
    assert isinstance(decode_tagged(raw), dict)


OURS = Overflow({"tags": ("a",)}, {"qless": {"x": 1}}, b"5").encode()


@pytest.mark.parametrize("raw", [OURS[:-1], OURS[:12], OURS.replace(b'["a"]', b'"a"'), OURS + b"}", TRUNCATED])
def test_text_that_was_ours_and_is_damaged_is_told(raw: bytes) -> None:
    assert why_unreadable(OURS) is None
    assert why_unreadable(raw)


OWN = [b"", b"mine", b"{", b"{}", b"[1]", b'{"a":1}', b'{"as_of":"2026-11-26"}', b'{"as_of":"5","fields":1,"mine":2}']


@pytest.mark.parametrize("raw", [None, *OWN])
def test_text_of_an_application_is_no_damage(raw: bytes | None) -> None:
    assert why_unreadable(raw) is None


@pytest.mark.parametrize("name", ["bee", "kickq", "kue", "pjq", "qless"])
@pytest.mark.parametrize("own", OWN)
def test_an_application_s_own_field_of_that_name_comes_back(server: Server, client: redis.Redis, name: str, own: bytes) -> None:
    """By way of ferryman's own queues."""
    family = get_family(name)
    store(client, family, family.default_prefix, family.generate(5, 3, NOW), NOW)
    records = [key for key, entry in dump(client).items() if entry.redis_type == "hash" and _is_record(family, entry)]
    for key in records:
        client.hset(key, FIELD.decode(), own)
    urls = [server.url(db, family=each) for db, each in ((0, name), (1, "ferryman"), (2, name))]
    for source, target in pairwise(urls):
        plan = Plan.between(Address.parse(source), Address.parse(target), NOW, active=Active.REFUSE, lossy=True)
        LocalEngine().migrate(Address.parse(source), Address.parse(target), plan, lambda _: None)
    with server.client(2) as there:
        assert {there.hget(key, FIELD.decode()) for key in records if there.exists(key)} == {own}


def _is_record(family: KeyFamily, entry: Entry) -> bool:
    return any(fact.kind is FactKind.RECORD for fact in family.facts(entry, family.default_prefix))
