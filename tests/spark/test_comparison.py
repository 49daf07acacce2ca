"""Digests are compared as columns; what comes out is what a look at each of them gives."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from ferryman.migrations.engine.comparison import _match_task
from ferryman.migrations.engine.groups import Groups
from ferryman.migrations.engine.job_digests import DIGESTS, JobDigest
from ferryman.migrations.engine.job_selection import BY_PART, Mismatch
from ferryman.migrations.engine.order_check import SCHEMA
from ferryman.migrations.engine.shuffle import ShuffleFile, read_bucket
from ferryman.migrations.engine.tables import decode_text
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ..support.effort import examples

digests = st.builds(
    JobDigest,
    number=st.integers(0, 5),
    queue=st.sampled_from(["mail", "mail ü", "\udc80"]),
    id=st.sampled_from(["1", "2"]),
    position=st.none() | st.integers(0, 3),
    scope=st.just(""),
    subject=st.sampled_from(["1", "2"]),
    part=st.sampled_from(["0", "sound-1"]),
    digest=st.sampled_from([b"", b"a", b"b"]),
)


def matched_by_tasks(folder: Path, sides: list[list[JobDigest]], buckets: int) -> tuple[Counter[object], Counter[object], int]:
    """What the tasks for all buckets say: rows, positions, and how many jobs are the same on both sides."""
    paths = []
    for number, side in enumerate(sides):
        path = str(folder / str(number))
        file = ShuffleFile(path, DIGESTS.arrow, buckets)
        file.write(DIGESTS.batch(side))
        file.close()
        paths.append([path])
    summaries = [json.loads(_match_task(*paths, buckets, str(folder))(bucket)) for bucket in range(buckets)]
    mismatches = Groups(BY_PART, tuple(file for summary in summaries for file in summary["mismatches"]), buckets)
    rows = Counter[object](row for bucket in range(buckets) for row in mismatches.rows(bucket))
    positions: Counter[object] = Counter()
    files = [file for summary in summaries for file in summary["positions"]]
    for bucket in range(buckets):
        for each in read_bucket(files, bucket, buckets, SCHEMA):
            positions.update((decode_text(row.pop("queue")), *row.values()) for row in each.drop_columns(["number"]).to_pylist())
    return rows, positions, sum(summary["matched"] for summary in summaries)


def expected(sides: list[list[JobDigest]]) -> tuple[Counter[object], Counter[object], int]:
    """The same, one job after the other; jobs that share a number by chance are looked at again.

    A refused one that is not at the target either is as it should be.
    """
    there = {digest.number for digest in sides[1]}
    sides = [[digest for digest in sides[0] if digest.digest or digest.number in there], sides[1]]
    shared = Counter(number for number, *_ in {digest[:3] for side in sides for digest in side})
    rows, positions, matched = Counter[object](), Counter[object](), 0
    for name in {(digest.queue, digest.id) for side in sides for digest in side}:
        ours, theirs = ([digest for digest in side if (digest.queue, digest.id) == name] for side in sides)
        for one in ours:
            for other in theirs:
                if one.position is not None and other.position is not None:
                    positions[*name, one.position, other.position] += 1
        if len(ours) == len(theirs) == 1 and ours[0].digest == theirs[0].digest and shared[ours[0].number] == 1:
            matched += 1
            continue
        for is_expected, those in ((True, ours), (False, theirs)):
            for each in those:
                rows[Mismatch(each.scope, each.subject, each.part, is_expected)] += 1
    return rows, positions, matched


@settings(max_examples=examples(200))
@given(st.lists(digests, max_size=8), st.lists(digests, max_size=8), st.data())
def test_digests_are_compared_as_each_of_them_would_be(ours, theirs, data) -> None:
    # As digests have it: jobs of one name have one number, and others may have the same by chance.
    numbers = {}

    def numbered(digest: JobDigest) -> JobDigest:
        return digest._replace(number=numbers.setdefault((digest.queue, digest.id), digest.number))

    sides = [list(map(numbered, side)) for side in (ours, theirs)]
    with tempfile.TemporaryDirectory() as folder:
        found = matched_by_tasks(Path(folder), sides, data.draw(st.integers(1, 3)))
    event(f"matched: {min(found[-1], 1)}")
    assert found == expected(sides)
