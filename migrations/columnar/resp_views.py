"""RESP views: what a server answers to many commands at once, as slices of the bytes that came (binary_views.py).

hiredis makes an object of every word, which takes longer than the server needs to send it. Here compiled kernels find the words
of arrays, and numbers; any other reply (an error, most likely) is left to hiredis and to callers, who ask again in another way.
Only for RESP2, which clients of connection/connect.py speak. Called by hashes.py and zsets.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.build import resp_commands
from ...schema.columnar.jit import BYTE_ARRAY, INT, OUT_INTS, helper, kernel
from ...schema.connection.pipeline import PipelineConnection
from ...schema.family import Command

FIRST_BYTES = 1 << 18
"""Bytes of a new buffer."""
MOST_BYTES = 8 << 20
"""Bytes of a buffer that is replaced by one as large."""
FIRST_WORDS = 1 << 12
"""Strings for which a new buffer has room."""


class UnexpectedReply(Exception):
    """A reply is of another type than expected. All replies have been read."""


class RespReader:
    """What comes over one wire. Bytes go into one buffer again and again, as new memory costs more than to copy them."""

    def __init__(self, pipe: PipelineConnection, *, no_ttls: bool = False) -> None:
        self.pipe = pipe
        self.no_ttls = no_ttls
        """No key has a time to live."""
        self._data: Any = np.empty(FIRST_BYTES, np.uint8)
        self._first = self._at = self._filled = 0
        """Where the replies begin that are asked for, and those at which nobody has looked yet, and where all bytes end."""
        self._starts, self._sizes = np.empty((2, FIRST_WORDS), np.int64)
        self._words = 0
        self._awaited = 0

    def ask(self, keys: BinaryViews, *commands: Sequence[bytes]) -> None:
        """Sends each of these commands about every key, which comes after a command's first word."""
        self.pipe.send_packed(*(resp_commands(keys, *command) for command in commands))
        self._awaited += len(keys) * len(commands)

    def transaction(self, *commands: Command) -> list[BinaryViews]:
        """The words of the array that each of these commands answers, in one MULTI and EXEC.

        Raises UnexpectedReply if one answers no array.
        """
        number = len(commands)
        self.pipe.send([("MULTI",), *commands, ("EXEC",)])
        self._awaited += number + 2
        self._skip(b"+OK\r\n" + number * b"+QUEUED\r\n" + b"*%d\r\n" % number)
        self._awaited -= 2  # what is left are the elements of the last reply
        counts, words = self.arrays(number)
        ends = np.cumsum(counts).tolist()
        return [words.slice(end - count, end) for count, end in zip(counts.tolist(), ends, strict=True)]

    def _skip(self, expected: bytes) -> None:
        """Skips these bytes. Raises UnexpectedReply if others come."""
        self._first, size = self._at, len(expected)
        while self._filled - self._at < size:
            self._receive(MORE)
        if bytes(self._data[self._at : self._at + size]) != expected:
            self._receive(UNEXPECTED)
        self._at += size

    def arrays(self, number: int) -> tuple[Any, BinaryViews]:
        """The next replies, all of them arrays of texts and nulls: the number of words of each (int64), and all words.

        Raises UnexpectedReply if one is something else.
        """
        return self.counts(number), self.words()

    def counts(self, number: int) -> Any:
        """The same, but ``words`` is what gives the words: those of all that was counted since it was asked."""
        counts = np.empty(number, np.int64)
        self._first, done, before = self._at, 0, self._words
        while True:
            state = _find_arrays(self._data, self._at, self._filled, counts, self._starts, self._sizes, done, self._words)
            self._at, done, self._words, needed = state
            if done == number:
                break
            if needed == FULL:
                self._starts, self._sizes = _grown(self._starts), _grown(self._sizes)
                continue
            try:
                self._receive(needed)
            except UnexpectedReply:
                self._words = before
                raise
        self._awaited -= number
        return counts

    @property
    def held_bytes(self) -> int:
        """About how many bytes have come with the words that ``words`` would give."""
        return self._at if self._words else 0

    def words(self) -> BinaryViews:
        """The words of all arrays counted so far, and not given yet."""
        data, starts, sizes = self._data[: self._at], self._starts[: self._words], self._sizes[: self._words]
        if len(data) < len(self._data) // 2:  # a copy of what is little keeps less memory than all of the buffer
            data, starts, sizes = data.copy(), starts.copy(), sizes.copy()
        else:
            rest = self._data[self._at : self._filled]
            self._data = np.empty(max(len(self._data) if len(self._data) <= MOST_BYTES else FIRST_BYTES, 2 * len(rest)), np.uint8)
            self._data[: len(rest)] = rest
            self._at, self._filled = 0, len(rest)
            self._starts, self._sizes = np.empty((2, len(self._starts)), np.int64)
        self._words = 0
        return BinaryViews(data, starts, sizes)

    def integers(self, number: int) -> Any:
        """The next replies, all of them whole numbers (int64). Raises UnexpectedReply if one is none."""
        numbers = np.empty(number, np.int64)
        self._first, done = self._at, 0
        while True:
            self._at, done, state = _find_integers(self._data, self._at, self._filled, numbers, done)
            if done == number:
                break
            self._receive(state)
        self._awaited -= number
        return numbers

    def _receive(self, state: int) -> None:
        """Takes more bytes. Raises UnexpectedReply when that would not help: then all that is awaited has been read."""
        if state == UNEXPECTED:
            self.pipe.feed(bytes(self._data[self._first : self._filled]))
            self.pipe.replies(self._awaited)
            self._at = self._filled = self._first
            self._awaited = 0
            raise UnexpectedReply
        if self._first and not self._words:
            rest = self._data[self._first : self._filled].copy()
            self._data[: len(rest)] = rest
            self._first, self._at, self._filled = 0, self._at - self._first, len(rest)
        if self._filled == len(self._data):
            self._data = _grown(self._data)
        self._filled += self.pipe.receive(memoryview(self._data)[self._filled :])


def _grown(array: Any) -> Any:
    wider = np.empty(2 * len(array), array.dtype)
    wider[: len(array)] = array
    return wider


MORE, UNEXPECTED, FULL = 0, 1, 2
"""What a kernel needs at its end: more bytes; nothing, as a reply is unexpected; room for more strings."""


@helper
def _integer_line(data: Any, at: int, end: int) -> Any:
    """The number here, which ends its line, and the position after that: -1 where the line is cut, -2 for no number."""
    sign = 1
    if at < end and data[at] == 45:
        sign = -1
        at += 1
    number, first = 0, at
    while at < end and 48 <= data[at] <= 57:
        number = number * 10 + (data[at] - 48)
        at += 1
    if at + 1 >= end:
        return 0, (-1 if at - first <= 18 else -2)
    if at == first or at > first + 18 or data[at] != 13 or data[at + 1] != 10:
        return 0, -2
    return sign * number, at + 2


@kernel(BYTE_ARRAY, INT, INT, OUT_INTS, OUT_INTS, OUT_INTS, INT, INT)
def _find_arrays(
    data: Any, at: int, end: int, counts: Any, starts: Any, sizes: Any, rows: int, words: int
) -> tuple[int, int, int, int]:
    while rows < len(counts):
        if at >= end:
            return at, rows, words, MORE
        if data[at] != 42:
            return at, rows, words, UNEXPECTED
        count, after = _integer_line(data, at + 1, end)
        if after < 0 or count < 0:
            return at, rows, words, MORE if after == -1 else UNEXPECTED
        if words + count > len(starts):
            return at, rows, words, FULL
        for word in range(words, words + count):
            # Most have less than a hundred bytes. Asking for these first, and here, takes half of the time.
            if after + 5 <= end and data[after] == 36 and 48 <= data[after + 1] <= 57:
                size = np.int64(data[after + 1]) - 48
                if data[after + 2] == 13 and data[after + 3] == 10:
                    starts[word], sizes[word] = after + 4, size
                    after += size + 6
                    continue
                digit = np.int64(data[after + 2]) - 48
                if 0 <= digit <= 9 and data[after + 3] == 13 and data[after + 4] == 10:
                    size = 10 * size + digit
                    starts[word], sizes[word] = after + 5, size
                    after += size + 7
                    continue
            if after >= end:
                return at, rows, words, MORE
            if data[after] != 36:
                return at, rows, words, UNEXPECTED
            size, after = _integer_line(data, after + 1, end)
            if after < 0 or size < -1:
                return at, rows, words, MORE if after == -1 else UNEXPECTED
            starts[word], sizes[word] = after, size
            if size >= 0:
                after += size + 2
        if after > end:
            return at, rows, words, MORE
        counts[rows] = count
        rows += 1
        words += count
        at = after
    return at, rows, words, MORE


@kernel(BYTE_ARRAY, INT, INT, OUT_INTS, INT)
def _find_integers(data: Any, at: int, end: int, numbers: Any, done: int) -> tuple[int, int, int]:
    while done < len(numbers) and at < end:
        if data[at] != 58:
            return at, done, UNEXPECTED
        number, after = _integer_line(data, at + 1, end)
        if after < 0:
            return at, done, MORE if after == -1 else UNEXPECTED
        numbers[done] = number
        done += 1
        at = after
    return at, done, MORE
