"""Sampling: what generated jobs of every family are drawn from, so that the same seed gives the same jobs on any machine.

Jobs are made in blocks. Each block has random numbers of its own, so that several processes make different blocks of one
keyspace, and every block draws its kinds of jobs from the same stratified sample, so that each knows how many jobs of a queue
the blocks before it have. Called by each family's ``generate.py``, and by ``migrations/generate.py``.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

from attrs import frozen

VARIANTS = "89ab" * 4

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

BLOCK_SIZE = 1000
"""Jobs; the last block may have fewer."""

TEXT = 'lorem ipsum dolor Grüße façade 東京 мир naïve back\\slash "quoted" tab\tend 🙂 delta gamma'


@frozen
class Shard:
    """A process's share of a keyspace: of ``count`` shards the one with this index, which has every ``count``-th block."""

    index: int = 0
    count: int = 1

    def blocks(self, jobs: int, seed: int) -> Iterator[tuple[range, Random]]:
        """Its blocks of a keyspace of so many jobs: the numbers of the jobs, from 0 on, and what they are drawn with."""
        for start in range(self.index * BLOCK_SIZE, jobs, self.count * BLOCK_SIZE):
            yield range(start, min(start + BLOCK_SIZE, jobs)), Random(f"{seed}:{start}")


UNSHARDED = Shard()
"""All blocks."""


class StratifiedSample(Generic[T]):
    """The kinds of jobs in a block, one for each job. Every whole block has the same ones, in an order of its own."""

    def __init__(self, draw: Callable[[], T]) -> None:
        self.kinds: Sequence[T] = [draw() for _ in range(BLOCK_SIZE)]

    def draw(self, numbers: range, random: Random) -> list[T]:
        """The kinds of the jobs of a block."""
        return random.sample(self.kinds, len(numbers))

    def counts_before(self, numbers: range, stratum_of: Callable[[T], K]) -> Counter[K]:
        """How many jobs of each stratum all blocks before this one have."""
        blocks = numbers.start // BLOCK_SIZE
        return Counter({each: blocks * count for each, count in Counter(map(stratum_of, self.kinds)).items()})


def weighted(random: Random, pairs: Sequence[tuple[T, int]]) -> Callable[[], T]:
    """Draws values in proportion to their weights, each time it is called."""
    values = [value for value, _ in pairs]
    ends = list(accumulate(share for _, share in pairs))
    return lambda: values[bisect(ends, random.random() * ends[-1])]


def uuid(random: Random) -> str:
    """A UUID of version 4; its own class takes three times as long."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{VARIANTS[int(digits[16], 16)]}{digits[17:20]}-{digits[20:]}"


def text(random: Random) -> str:
    """Mostly some hundred characters, now and then many thousand, of many alphabets."""
    return " ".join(random.choices(TEXT.split(" "), k=int(random.paretovariate(0.8)) % 3000 + 8))
