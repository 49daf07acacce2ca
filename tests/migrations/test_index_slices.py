"""Strips of a zset: together all of it, once, and each with the members between two of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import redis
from ferryman.migrations import index_slices
from ferryman.migrations.index_slices import IndexSlice, cut_slices
from ferryman.migrations.key_splits import read_split
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.effort import examples

pytestmark = pytest.mark.in_turn

KEY = b"index"


def fill(client: redis.Redis, members: int, score: str) -> None:
    """Members ``<n>``, n in [0, members), each with the score that this Lua expression makes of n."""
    client.eval(f"for n = 0, ARGV[1] - 1 do redis.call('zadd', KEYS[1], {score}, string.format('%08d', n)) end", 1, KEY, members)


def members(pipe: PipelineConnection, index_slice: IndexSlice) -> list[list[int]]:
    """Those of each part."""
    return [[int(member) for entry in read_split(pipe, split) for member, _ in entry.value] for split in index_slice]


def flat(found: list[list[int]]) -> list[int]:
    return [member for split in found for member in split]


@pytest.mark.parametrize("number", [1, 4, 5])
def test_a_strip_has_the_ids_between_two_of_every_priority(client: redis.Redis, number: int) -> None:
    fill(client, 60_000, "n % 100 == 0 and -1.5 or n % 3")
    with open_pipeline(client) as pipe:
        found = [members(pipe, index_slice) for index_slice in cut_slices(pipe, KEY, number)]
    assert sorted(flat([flat(index_slice) for index_slice in found])) == list(range(60_000))
    assert [len(index_slice) for index_slice in found] == [4] * number
    bounds = [60_000 * index_slice // number for index_slice in range(number + 1)]
    for index_slice, (first, end) in zip(found, pairwise(bounds), strict=True):
        assert sum(first <= member < end for member in flat(index_slice)) > 0.95 * len(flat(index_slice))
        # Those before the first border of a score may be the last of the score before.
        assert sum(member > following for split in index_slice for member, following in pairwise(split)) <= len(index_slice)


def test_with_too_many_runs_a_slice_is_a_range_of_ranks(client: redis.Redis) -> None:
    fill(client, 45_000, "n * 7919 % 45000")
    with open_pipeline(client) as pipe:
        found = cut_slices(pipe, KEY, 8)
        assert [len(index_slice) for index_slice in found] == [1] * 4
        ranked = list(map(int, client.zrange(KEY, 0, -1)))
        assert flat([flat(members(pipe, index_slice)) for index_slice in found]) == ranked
    assert all(10_000 < index_slice[0].count < 12_500 for index_slice in found)


@pytest.mark.parametrize("count", [0, 3, 9_000])
def test_a_zset_of_few_members_is_one_slice_which_has_no_end(client: redis.Redis, count: int) -> None:
    fill(client, count, "n % 5")
    with open_pipeline(client) as pipe:
        ((split,),) = cut_slices(pipe, KEY, 4)
    assert (split.offset, split.count, split.after, split.until) == (0, count, (), ())


def test_a_key_that_is_no_zset_any_more_is_an_empty_slice(client: redis.Redis) -> None:
    client.set(KEY, "text")
    with open_pipeline(client) as pipe:
        ((split,),) = cut_slices(pipe, KEY, 4)
        assert members(pipe, [split]) == [[]]


@given(
    st.lists(st.integers(0, 3) | st.integers(0, 1000), max_size=150),
    st.integers(1, 6),
    st.lists(st.integers(0, 149), max_size=60),
)
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_each_member_that_stays_is_in_one_part_whatever_goes(
    client: redis.Redis, scores: list[int], number: int, gone: list[int]
) -> None:
    client.delete(KEY)
    if scores:
        client.zadd(KEY, {f"{n:08}": score for n, score in enumerate(scores)})
    with pytest.MonkeyPatch.context() as patch, open_pipeline(client) as pipe:
        patch.setattr(index_slices, "CHUNK", 10)
        patch.setattr(index_slices, "SAMPLES", 5)
        cut = cut_slices(pipe, KEY, number)
        if gone:
            client.zrem(KEY, *(f"{n:08}" for n in gone))
        found = flat([flat(members(pipe, index_slice)) for index_slice in cut])
    assert sorted(found) == [n for n in range(len(scores)) if n not in gone]
    assert len(cut) <= max(1, min(number, len(scores) // 10))
