"""The installed families, for tests that every family must pass: new ones are met as soon as they are registered."""

from __future__ import annotations

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
