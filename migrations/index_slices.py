"""IndexSlices: a long zset, cut for several tasks so that each finds neighbours together.

A zset stands in the order of scores, and of members where these are the same. Where members are ids and scores a few priorities,
each priority has a run of rising ids. A slice is what lies between two ids in all runs, and has a part of each: whoever reads
these side by side meets ids that follow one another.

    score 0   | 1 2 | 5 6 | 9
    score 1   | 3   | 7   | 10 11
    score 2   |     | 4 8 |

Only reads. Called by ``spark/index_scan.py``.
"""

from __future__ import annotations

from bisect import bisect_left

from ..schema.connection.pipeline import PipelineConnection
from .key_splits import Border, KeySplit, between, borders_at, length_in
from .long_keys import CHUNK

SAMPLES = 128
"""Members for each slice by which is known how the others stand."""
MOST_RUNS = 16
"""With more runs of members that rise, a slice is a range of ranks instead: of more parts each is too small."""

IndexSlice = list[KeySplit]


def cut_slices(pipe: PipelineConnection, key: bytes, number: int) -> list[IndexSlice]:
    """At most so many slices of a zset, one where there are few members. Together they have all; the last part has no end."""
    length = length_in(pipe.call([("ZCARD", key)])[0])
    number = min(number, length // CHUNK)
    ranks, samples = _samples(pipe, key, length, number * SAMPLES)
    if not samples:
        return [between(key, "zset", None, [0, length], [(), ()])]
    at = [len(samples) * index_slice // number for index_slice in range(1, number)]
    members = [member for member, _score in samples]
    in_order = sorted(members)
    limits = [in_order[index] for index in at]
    index_slices = [bisect_left(limits, member) for member in members]
    ends = [
        index
        for index in range(len(samples) - 1)
        if index_slices[index + 1] != index_slices[index] or members[index + 1] < members[index]
    ]
    if len(ends) >= MOST_RUNS * number:
        ends, index_slices = at, [bisect_left(at, index) for index in range(len(samples))]
    offsets = [0, *(ranks[index] for index in ends), length]
    splits = between(key, "zset", None, offsets, [(), *(samples[index] for index in ends), ()])
    found: list[IndexSlice] = [[] for _ in range(number)]
    for split, end in zip(splits, [*ends, -1], strict=True):
        found[index_slices[end]].append(split)
    return list(filter(None, found))


def _samples(pipe: PipelineConnection, key: bytes, length: int, number: int) -> tuple[list[int], list[Border]]:
    """About so many members, at even distances, and the ranks behind them."""
    ranks = range(length // number, length, length // number) if number else ()
    found = {border: rank for rank, border in zip(ranks, borders_at(pipe, key, "zset", ranks), strict=True) if border}
    # The zset may have changed meanwhile.
    return sorted(found.values()), sorted(found, key=lambda border: (float(border[1]), border[0]))
