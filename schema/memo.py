"""Memo: a function's values, each found once; thousands of records share a few names. Called by prefilters and Spark's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST = 100_000
"""Values that are remembered at once."""


class Memo(dict[Any, Any]):
    """The values by argument. Forgets all of them when there are too many: names may be different for each job."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __missing__(self, argument: Any) -> Any:
        if len(self) >= MOST:
            self.clear()
        value = self[argument] = self._function(argument)
        return value
