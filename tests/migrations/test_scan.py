from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import redis
from ferryman.migrations.globs import Selection
from ferryman.migrations.scan import EVERYTHING, Cursors, entries, node, position, ranges, same_server, scan_range, split
from ferryman.schema.errors import ServerError
from hypothesis import given
from hypothesis import strategies as st

from ..support.toy import Toy


def fill(client: redis.Redis, number: int) -> set[bytes]:
    """Stores this many keys ``toy:<n>``."""
    pipeline = client.pipeline(transaction=False)
    for index in range(number):
        pipeline.set(f"toy:{index}", index)
    pipeline.execute()
    return {b"toy:%d" % index for index in range(number)}


def test_a_position_is_its_own_inverse() -> None:
    assert [position(position(cursor)) for cursor in (0, 1, 5, (1 << 64) - 1)] == [0, 1, 5, (1 << 64) - 1]


@given(st.integers(1, 2000))
def test_ranges_cover_every_position_once(number: int) -> None:
    spans = ranges(number)
    assert len(spans) == number
    assert spans[0].lo == EVERYTHING.lo
    assert spans[-1].hi == EVERYTHING.hi
    assert all(first.hi == second.lo for first, second in pairwise(spans))


@pytest.mark.parametrize("number", [1, 2, 3, 7, 16])
def test_ranges_together_name_every_key(client: redis.Redis, number: int) -> None:
    keys = fill(client, 5000)
    found = [key for span in ranges(number) for page in scan_range(client, span, ["toy:*"]) for key in page]
    assert set(found) == keys
    assert len(found) < 1.6 * len(keys)


def test_ranges_miss_no_key_that_stays_while_the_table_grows_and_shrinks(client: redis.Redis) -> None:
    keys = fill(client, 2000)
    found: set[bytes] = set()
    for step, span in enumerate(ranges(8)):
        for page in scan_range(client, span, ["toy:*"], count=20):
            found.update(page)
            if step % 2:
                client.delete(*(f"other:{index}" for index in range(20_000)))
            else:
                client.mset({f"other:{index}": 1 for index in range(20_000)})
    assert found == keys


def test_a_small_database_is_not_split(client: redis.Redis) -> None:
    fill(client, 100)
    assert split(client, 64) == [EVERYTHING]


def test_a_large_database_is_split_as_asked(client: redis.Redis) -> None:
    fill(client, 20_000)
    assert split(client, 2) == ranges(2)
    assert len(split(client, 64)) == 3


def test_a_key_named_by_a_glob_without_wildcard_is_found_without_a_scan(client: redis.Redis) -> None:
    client.mset({"lock": 1, "other": 2})
    first, second = ranges(2)
    assert list(scan_range(client, first, ["lock"])) == [[b"lock"]]
    assert list(scan_range(client, second, ["lock"])) == []


def test_only_keys_that_a_glob_fits_are_named(client: redis.Redis) -> None:
    client.mset(dict.fromkeys(["q:a", "q:b", "qq", "r:a", "r:b", "s"], 1))
    found = Counter(key for page in scan_range(client, EVERYTHING, ["q:*", "r:[a]", "s"]) for key in page)
    assert found == Counter([b"q:a", b"q:b", b"r:a", b"s"])


def test_a_scan_yields_every_key_once(client: redis.Redis) -> None:
    keys = fill(client, 3000)
    assert sorted(entry.key for batch in entries(client, Toy(), "toy") for entry in batch) == sorted(keys)


def test_a_scan_that_another_process_answers_is_an_error(client: redis.Redis) -> None:
    with pytest.raises(ServerError, match="restarted or failed over"), same_server(client, "another run"):
        pass


def test_a_server_knows_its_run(client: redis.Redis) -> None:
    assert node(client).run_id
    assert node(client).cursors is Cursors.POSITIONS


@pytest.mark.parametrize(
    ("globs", "exact", "match"),
    [
        (["q:*"], [], "q:*"),
        ([r"q\*x"], [b"q*x"], None),
        (["q:*", "lock"], [b"lock"], "q:*"),
        (["unacked*", "unbound:?"], [], "un*"),
        (["a*", "*"], [], "*"),
        ([r"a\[1:*", r"a\[2:*"], [], r"a\[*"),
    ],
)
def test_globs_become_one_pattern_and_exact_keys(globs: list[str], exact: list[bytes], match: str | None) -> None:
    selection = Selection.of(globs)
    assert list(selection.exact) == exact
    assert selection.match == match


@pytest.mark.parametrize(
    ("glob", "fits", "other"),
    [
        ("h?llo", [b"hello", b"h\nllo"], [b"hllo", b"heello"]),
        ("h*llo", [b"hllo", b"heeeello\xff\nllo"], [b"xhllo"]),
        ("h[ae]llo", [b"hallo"], [b"hillo"]),
        ("h[^e]llo", [b"hallo"], [b"hello"]),
        ("h[a-c]llo", [b"hbllo"], [b"hdllo"]),
        (r"h\*llo*", [b"h*llo!"], [b"hallo!"]),
    ],
)
def test_a_key_is_wanted_as_redis_would_want_it(client: redis.Redis, glob: str, fits: list[bytes], other: list[bytes]) -> None:
    selection = Selection.of([glob, "never*"])
    client.mset(dict.fromkeys([*fits, *other], 1))
    assert set(selection.wanted([*fits, *other])) == set(fits) == set(client.keys(glob))
