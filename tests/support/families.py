"""The installed families, for tests that every family must pass: new ones are met as soon as they are registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ferryman.schema.errors import UsageError
from ferryman.schema.family import family_names, get_family

from .mending import NOW


def _generates(name: str) -> bool:
    try:
        next(get_family(name).generate(1, 1, NOW))
    except UsageError:
        return False
    return True


GENERATING = [name for name in family_names() if _generates(name)]
"""Those that can make a keyspace."""


def assert_in_shares(values: Iterable[object], shares: Iterable[tuple[object, float]], within: float = 4) -> None:
    """Each value stands among these about as often as it should, in percent."""
    found = Counter(values)
    for value, share in shares:
        assert abs(100 * found[value] / found.total() - share) < within, value
