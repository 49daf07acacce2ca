"""Columns: what a Voucher says of many keys, as arrays. Needs numpy, which comes with Spark.

Called by spark/traces.py, and by families that have something better than asking about each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .fact import Entry
from .voucher import Columns, Home, Sound, Standings, Vouched, Voucher


class OneByOne(Columns):
    """For families that have nothing better: asks about each key."""

    def __init__(self, voucher: Voucher) -> None:
        self._voucher = voucher

    def vouch(self, keys: Sequence[bytes], names: Sequence[tuple[bytes, ...]], values: Sequence[Sequence[bytes]]) -> Vouched:
        found = Found()
        numbers = numbers_of(self._voucher, keys)
        for row in np.flatnonzero(numbers >= 0).tolist():
            sound = self._voucher.vouch(dict(zip(names[row], values[row], strict=True)))
            if sound is not None:
                found.add(row, sound)
        return found.vouched(numbers, self._voucher.width)

    def standings(self, entry: Entry) -> Standings | None:
        standing = self._voucher.standing(entry)
        return None if standing is None else Standings(standing.place, _array(standing.numbers), standing.home)


def numbers_of(voucher: Voucher, keys: Sequence[bytes]) -> Any:
    """The jobs whose records these are; -1 for keys that are none."""
    return _array(list(map(voucher.record, keys)))


def _array(numbers: Sequence[int | None]) -> Any:
    return np.array([-1 if number is None else number for number in numbers], np.int64)


class Found:
    """The jobs for which a family vouches, as they are found."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._at_home: list[int] = []
        self._homes: dict[Any, int] = {}
        self._scores: list[Any] = []
        self._created_at: list[int] = []

    def add(self, row: int, sound: Sound) -> None:
        """One."""
        self.add_all([row], [sound.home], [sound.scores], [sound.created_at])

    def add_all(self, rows: Sequence[int], homes: Sequence[Home | None], scores: Any, created_at: Sequence[int]) -> None:
        """Some; all have a home. ``scores``: a row for each."""
        known = self._homes
        self._rows += rows
        self._at_home += [known.setdefault(home, len(known)) for home in homes]
        self._scores += [scores]
        self._created_at += created_at

    def vouched(self, numbers: Any, width: int) -> Vouched:
        """All. ``numbers``: those of the jobs of all rows."""
        rows = np.array(self._rows, np.int64)
        scores = np.concatenate(self._scores) if self._scores else np.empty((0, width))
        at_home = np.array(self._at_home, np.int64)
        return Vouched(rows, numbers[rows], list(self._homes), at_home, scores, np.array(self._created_at, np.int64))
