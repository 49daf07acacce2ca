"""Draw: what generated jobs of every family are drawn from, so that the same seed gives the same jobs on any machine.

Jobs come in lots. Each lot has random numbers of its own, so that several processes make different lots of one keyspace, and
every lot is dealt from the same deck, so that each knows how many jobs of a queue the lots before it have. Called by each
family's ``generate.py``, and by ``migrations/generate.py``.
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

LOT = 1000
"""So many jobs are one lot; the last may have fewer."""

TEXT = 'lorem ipsum dolor Grüße façade 東京 мир naïve back\\slash "quoted" tab\tend 🙂 delta gamma'


@frozen
class Lots:
    """Which lots of a keyspace are meant: from ``first`` on every ``step``-th."""

    first: int = 0
    step: int = 1

    def of(self, jobs: int, seed: int) -> Iterator[tuple[range, Random]]:
        """The lots of a keyspace of so many jobs: the numbers of its jobs, from 0 on, and what they are drawn with."""
        for start in range(self.first * LOT, jobs, self.step * LOT):
            yield range(start, min(start + LOT, jobs)), Random(f"{seed}:{start}")


EVERY_LOT = Lots()


class Deck(Generic[T]):
    """What the jobs of each lot are, one card a job. Every whole lot has all cards, in an order of its own."""

    def __init__(self, draw: Callable[[], T]) -> None:
        self.cards: Sequence[T] = [draw() for _ in range(LOT)]

    def deal(self, numbers: range, random: Random) -> list[T]:
        """The cards of a lot."""
        return random.sample(self.cards, len(numbers))

    def before(self, numbers: range, kind: Callable[[T], K]) -> Counter[K]:
        """How many cards of each kind all lots before this one have."""
        lots = numbers.start // LOT
        return Counter({each: lots * count for each, count in Counter(map(kind, self.cards)).items()})


def shares(random: Random, pairs: Sequence[tuple[T, int]]) -> Callable[[], T]:
    """Draws values in proportion to their shares, each time it is called."""
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
