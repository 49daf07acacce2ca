"""Layout: which columns of a table a terminal has room for, and how wide each of them is. Pure. Called by ``output.py``.

Half of a number or of an id is worse than none: such columns are whole or not there. Words give way to an ellipsis, long texts go
on in further lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

LEAST_WORD = 6
"""Cells of a column of words that is cut, at least."""
LEAST_TEXT = 16
"""The same of a column whose texts may take several lines, on a terminal."""
LEAST_TEXT_IN_PIPE = 60
"""And in a file, where a line may be as long as it likes."""
BESIDE = 3
"""Cells beside each column: a space on either side, and what stands between two columns."""


@frozen
class Column:
    """One column of a table."""

    name: str
    natural: int
    """How wide its widest cell is."""
    is_whole: bool = False
    """Whether it must not be cut."""
    folds: bool = False
    """Whether its texts may take several lines."""

    def least(self, text: int = LEAST_TEXT) -> int:
        """How narrow it may get. ``text``: if it folds."""
        if self.is_whole:
            return self.natural
        return min(self.natural, max(len(self.name), text if self.folds else LEAST_WORD))


def fitting(columns: Sequence[Column], spare: Sequence[str], room: int) -> list[Column]:
    """The columns that are shown in ``room`` cells: without those of ``spare``, the first first, for which there is none."""
    shown = list(columns)
    for name in spare:
        if _taken(shown) <= room:
            break
        shown = [column for column in shown if column.name != name]
    return shown


def widths(columns: Sequence[Column], room: int) -> list[int]:
    """The width of each column in ``room`` cells; in a smaller room than they can have, the whole ones must fold."""
    found = [column.least() for column in columns]
    left = room - _taken(columns)
    if left < 0:
        widest = max(range(len(found)), key=found.__getitem__)
        found[widest] = max(LEAST_WORD, found[widest] + left)
        return found
    # Words first: a text that has less room takes more lines, and nothing of it is lost.
    for index in sorted(range(len(found)), key=lambda index: columns[index].folds):
        more = min(left, columns[index].natural - found[index])
        found[index] += more
        left -= more
    return found


def widest(columns: Sequence[Column]) -> int:
    """The room in which nothing is cut, and long texts have as much as can be read."""
    return _taken([_unfolded(column) for column in columns])


def _unfolded(column: Column) -> Column:
    return Column(column.name, column.least(LEAST_TEXT_IN_PIPE) if column.folds else column.natural, is_whole=True)


def _taken(columns: Sequence[Column]) -> int:
    return sum(column.least() for column in columns) + BESIDE * len(columns) - 1
