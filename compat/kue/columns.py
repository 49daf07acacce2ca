"""Sound kue jobs at a glance, thousands at a time: what ``voucher.py`` says of each, at a third of the cost.

Records with the same fields make a table, whose columns are looked at as a whole. Both always agree:
tests/compat/kue/test_columns.py. Needs numpy. Called by ``voucher.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from ...schema.columns import Found, numbers_of
from ...schema.fact import Entry
from ...schema.job import State
from ...schema.text import is_json
from ...schema.voucher import Columns, Standings, Vouched
from ..digits import ZERO, numbers_in
from .voucher import KueVoucher, priority_of

FEW = 8
"""So few records are no table."""

Values = Sequence[Sequence[bytes]]


class KueColumns(Columns):
    """The keyspace of a KueVoucher."""

    def __init__(self, voucher: KueVoucher) -> None:
        self._voucher = voucher

    def vouch(self, keys: Sequence[bytes], names: Sequence[tuple[bytes, ...]], values: Values) -> Vouched:
        voucher, found = self._voucher, Found()
        numbers = numbers_of(voucher, keys)
        tables: dict[tuple[bytes, ...], list[int]] = {}
        for row, shape in enumerate(names):
            if numbers[row] >= 0:
                tables.setdefault(shape, []).append(row)
        for shape, rows in tables.items():
            if len(rows) >= FEW and voucher.needed.issubset(shape):
                self._together(shape, rows, values, found)
            else:
                for row in rows:
                    sound = voucher.vouch(dict(zip(shape, values[row], strict=True)))
                    if sound is not None:
                        found.add(row, sound)
        return found.vouched(numbers, voucher.width)

    def standings(self, entry: Entry) -> Standings | None:
        place = self._voucher.place(entry)
        if place is None:
            return None
        members = [member for member, _ in entry.value]
        sizes = np.fromiter(map(len, members), np.int64, len(members)) - 3
        # As ``padded`` writes them: how many digits in two digits, a bar, no zero in front.
        first, second, bar, digit = np.array(members, "S4").view(np.uint8).reshape(len(members), 4).astype(np.int64).T
        told = np.where((first >= ZERO) & (second >= ZERO) & (second <= ZERO + 9), (first - ZERO) * 10 + second - ZERO, -1)
        is_padded = (told == sizes) & (sizes <= self._voucher.most_digits) & (bar == ord("|")) & ((digit != ZERO) | (sizes == 1))
        return Standings(place, np.where(is_padded, numbers_in(members, 3), -1))

    def _together(self, shape: tuple[bytes, ...], rows: Sequence[int], values: Values, found: Found) -> None:
        """Looks at records that have the same fields."""
        voucher, size = self._voucher, len(rows)
        column = dict(zip(shape, zip(*(values[row] for row in rows), strict=True), strict=True))
        created_at, updated_at, due_at = (numbers_in(column[name]) for name in voucher.times)
        allowed = numbers_in(column[b"max_attempts"])
        made = numbers_in(column[b"attempts"]) if b"attempts" in column else np.zeros(size, np.int64)
        homes = list(map(voucher.home, column[b"type"], column[b"state"]))
        scores = list(map(priority_of, column[b"priority"]))
        state = np.array([-1 if home is None else _CODES[home.state] for home in homes])
        fits = np.array([score is not None for score in scores]) & (state >= 0)
        for name in voucher.texts:
            if name in column:
                fits &= np.fromiter(map(is_json, column[name]), bool, size)
        fits &= (created_at >= 0) & (created_at <= updated_at) & (updated_at <= voucher.latest)
        fits &= (created_at <= due_at) & (due_at <= voucher.latest)
        fits &= (made >= 0) & (made <= allowed) & (allowed >= 1)
        fits &= (state != SCHEDULED) | (due_at >= voucher.late)
        progress, gone = (column.get(name, repeat(b"", size)) for name in (b"progress", b"removeOnComplete"))
        is_whole = np.array([done == b"100" and not each for done, each in zip(progress, gone, strict=True)])
        fits &= (state != COMPLETED) | ((made >= 1) & is_whole)
        fits &= (state != FAILED) | ((made == allowed) & (b"failed_at" in column and b"error" in column))
        there = np.flatnonzero(fits).tolist()
        score = np.array([scores[index] for index in there], np.float64)
        by_state = np.where(state[there] == SCHEDULED, due_at[there].astype(np.float64), score)
        found.add_all(
            [rows[index] for index in there],
            [homes[index] for index in there],
            np.stack([score, by_state, score], axis=1),
            created_at[there].tolist(),
        )


_CODES: dict[State | None, int] = {state: code for code, state in enumerate(State)}
SCHEDULED, COMPLETED, FAILED = (_CODES[state] for state in (State.SCHEDULED, State.COMPLETED, State.FAILED))
