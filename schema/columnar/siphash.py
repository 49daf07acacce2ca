"""SipHash: a digest of 128 bits with a key, of thousands of texts at once. Needs the extra ``columnar``.

Who does not know the key can't make two texts with the same digest, and by chance it takes some 2^64 texts until two have one.
For a text of some hundred bytes it takes a quarter of the time of hashlib's quickest, which must be called for each. SipHash-2-4
with 128 bits, by Jean-Philippe Aumasson and Daniel J. Bernstein (2012, 2014);
tests/schema/columnar/test_siphash.py has their own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .binary_views import BinaryViews
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_WORDS, WORD, helper, kernel

KEY_BYTES = 16
DIGEST_BYTES = 16


def siphash(texts: BinaryViews, key: bytes) -> pa.Array:
    """The digest of each text (binary). ``key``: of KEY_BYTES."""
    found = _digests(texts, key)
    offsets = np.arange(len(texts) + 1, dtype=np.int32) * DIGEST_BYTES
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(found)])


def siphash_of(text: bytes, key: bytes) -> bytes:
    """That of one text."""
    digest: bytes = _digests(
        BinaryViews(np.frombuffer(text, np.uint8), np.zeros(1, np.int64), np.array([len(text)])), key
    ).tobytes()
    return digest


def _digests(texts: BinaryViews, key: bytes) -> Any:
    found = np.empty(2 * len(texts), "<u8")
    first, second = np.frombuffer(key, "<u8", 2)
    _hash(texts.data, texts.starts, texts.sizes, first, second, found)
    return found


_ONE, _TWO, _THREE, _FOUR = (np.uint64(int.from_bytes(word)) for word in (b"somepseu", b"dorandom", b"lygenera", b"tedbytes"))
_LONG, _SECOND = np.uint64(0xEE), np.uint64(0xDD)
_13, _16, _17, _21, _32 = map(np.uint64, (13, 16, 17, 21, 32))


@helper
def _turned(word: Any, bits: Any) -> Any:
    return (word << bits) | (word >> (np.uint64(64) - bits))


@helper
def _round(one: Any, two: Any, three: Any, four: Any) -> Any:
    one += two
    three += four
    two, four = _turned(two, _13) ^ one, _turned(four, _16) ^ three
    one = _turned(one, _32) + four
    three += two
    four, two = _turned(four, _21) ^ one, _turned(two, _17) ^ three
    return one, two, _turned(three, _32), four


@helper
def _word(data: Any, at: int) -> Any:
    """The eight bytes from a position on."""
    first = np.uintp(at)  # as it is unsigned, nobody asks whether it is negative, and all this is one instruction
    word = np.uint64(data[first])
    for index in range(1, 8):
        word |= np.uint64(data[first + np.uintp(index)]) << np.uint64(8 * index)
    return word


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, WORD, WORD, OUT_WORDS)
def _hash(data: Any, starts: Any, sizes: Any, first: Any, second: Any, found: Any) -> None:
    for row in range(len(starts)):
        one, two, three, four = _ONE ^ first, _TWO ^ second ^ _LONG, _THREE ^ first, _FOUR ^ second
        at, end = starts[row], starts[row] + sizes[row]
        while at + 8 <= end:
            word = _word(data, at)
            four ^= word
            for _ in range(2):
                one, two, three, four = _round(one, two, three, four)
            one ^= word
            at += 8
        word = np.uint64(sizes[row]) << np.uint64(56)
        for index in range(end - at):
            word |= np.uint64(data[at + index]) << np.uint64(8 * index)
        four ^= word
        for _ in range(2):
            one, two, three, four = _round(one, two, three, four)
        one ^= word
        three ^= _LONG
        for _ in range(4):
            one, two, three, four = _round(one, two, three, four)
        found[2 * row] = one ^ two ^ three ^ four
        two ^= _SECOND
        for _ in range(4):
            one, two, three, four = _round(one, two, three, four)
        found[2 * row + 1] = one ^ two ^ three ^ four
