"""Notices: what an action has done, shown once on the next page of the same visitor. In memory, and few."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from attrs import define, field, frozen

MOST_VISITORS = 200
MOST_EACH = 10


@frozen
class Notice:
    """One sentence."""

    kind: Literal["fine", "warning", "error"]
    text: str


@define(eq=False)
class Notices:
    """What is still to be shown, by session."""

    _left: OrderedDict[str, list[Notice]] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def leave(self, nonce: str, notices: Iterable[Notice]) -> None:
        """For the next page of this session."""
        with self._lock:
            self._left[nonce] = [*self._left.pop(nonce, ()), *notices][-MOST_EACH:]
            while len(self._left) > MOST_VISITORS:
                self._left.popitem(last=False)

    def taken(self, nonce: str) -> list[Notice]:
        """What is to be shown now, and never again."""
        with self._lock:
            return self._left.pop(nonce, [])
