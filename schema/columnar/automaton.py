"""Automaton: which of thousands of texts are of some form, told byte by byte from a table, and where their parts stand.

    builder = Builder()                         states are numbers; a rule says what follows a state and a byte
    builder.go(state, b"0123456789", other)
    accepted, marks = builder.build(start).run(data, starts, sizes, deepest)

A pushdown automaton: a rule may do something besides leading to the next state, as to open a bracket or to note a position. All
forms share one compiled loop, and a form is a table that is made when its module is loaded: as code, with branches for each
case, each would take numba a second to compile. Called by json_check.py, tagged_json_check.py and ../native/columnar/overflow.py,
whose tests compare each with Python's reader of that form. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from attrs import field, frozen

from .jit import BYTE_ARRAY, INT, INT_ARRAY, OUT_BOOLS, OUT_INTS, OUT_TABLE, STATE_ARRAY, WIDTH, kernel, plain_bytes, same, signed

Following = int
"""What follows a state and a byte: the next state, from FIRST_RULE on a rule, or ERROR."""
FIRST_RULE, ERROR = 1 << 12, (1 << 16) - 1
PUSH, POP, MARK, NAME_BEGINS, NAME_ENDS = range(5)
"""What rules do: see the methods of Builder."""

DIGITS = b"0123456789"
MOST_NAMES = 64
"""Of all brackets that are open at once."""
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PRINTABLE = bytes(byte for byte in range(32, 127) if byte not in b'"\\')
"""The bytes that ``plain_bytes`` passes: a state for which they lead back to it can be one of the first, and is fast then."""


@frozen(eq=False)
class Automaton:
    """A form of texts."""

    _following: Any
    """Of each state, what follows it with each of 256 bytes (uint16)."""
    _rules: Any
    """Of each rule what it does, its argument, and the state that follows (int64)."""
    _may_end: Any
    """In which states (bool) a text may end."""
    _start: int
    _texts: int
    """The states before this one are inside of texts."""
    _marks: int

    def run(self, data: Any, starts: Any, sizes: Any, deepest: int) -> tuple[Any, Any]:
        """Which values (as in BinaryViews) are of this form (bool); and a row for each mark with the position behind it in each.

        The position is 0 where the value has no such part, and in values of another form. Those with more than ``deepest``
        brackets open at once count as such.
        """
        accepted, marks = np.empty(len(starts), np.bool_), np.zeros((self._marks, len(starts)), np.int64)
        table = (self._following, self._rules, self._may_end, self._start, self._texts)
        stack, names = np.empty((2, deepest), np.int64), np.empty((2, MOST_NAMES), np.int64)
        _run(data, starts, sizes, *table, *stack, *names, marks, accepted)
        return accepted, marks


@frozen(eq=False)
class Builder:
    """The table of an automaton while it is made. What a state or a rule leads to may be made later, but for ``otherwise``."""

    texts: int = 0
    """So many states, from 0 on, are inside of texts: PRINTABLE leads back to each."""
    _rows: list[Any] = field(factory=list, init=False)
    _rules: list[tuple[int, int, int]] = field(factory=list, init=False)
    _ends: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        for text in range(self.texts):
            self.go(self.new(), PRINTABLE, text)

    def new(self) -> int:
        """One more state, after which every byte is an error."""
        self._rows.append(np.full(256, ERROR, np.uint16))
        return len(self._rows) - 1

    def push(self, later: int, following: int) -> Following:
        """A bracket opens; ``later`` follows when it has been closed."""
        return self._rule(PUSH, later, following)

    def pop(self) -> Following:
        """A bracket closes."""
        return self._rule(POP, 0, 0)

    def mark(self, mark: int, following: int) -> Following:
        """The position behind this byte is noted as that of a mark."""
        return self._rule(MARK, mark, following)

    def name_begins(self, following: int) -> Following:
        """The name of a member begins behind this byte."""
        return self._rule(NAME_BEGINS, 0, following)

    def name_ends(self, following: int) -> Following:
        """The name has ended before this byte. It is an error if this bracket has had it already, or there are too many."""
        return self._rule(NAME_ENDS, 0, following)

    def _rule(self, *rule: int) -> Following:
        self._rules.append(rule)  # type: ignore[arg-type]
        return FIRST_RULE + len(self._rules) - 1

    def go(self, state: int, values: Iterable[int], following: Following) -> None:
        """What follows a state and each of these bytes."""
        self._rows[state][list(values)] = following

    def ends(self, state: int) -> None:
        """A text may end in this state."""
        self._ends.add(state)

    def is_also(self, state: int, other: int) -> None:
        """What follows ``other`` follows this state too, where nothing else does; and a text may end here, if it may there."""
        self._rows[state] = np.where(self._rows[state] == ERROR, self._rows[other], self._rows[state])
        if other in self._ends:
            self.ends(state)

    def words(self, state: int, words: Iterable[tuple[bytes, Following]], otherwise: int | None = None) -> None:
        """What follows a state and some bytes one after the other: none of them may be how another begins.

        ``otherwise``: what the states between are also, as far as it is made by now.
        """
        made: dict[frozenset[tuple[bytes, Following]], int] = {}

        def spell(state: int, words: Iterable[tuple[bytes, Following]]) -> None:
            for first in {word[0] for word, _ in words}:
                rests = frozenset((word[1:], following) for word, following in words if word[0] == first)
                ends = [following for rest, following in rests if not rest]
                if not ends and rests not in made:
                    made[rests] = self.new()
                    if otherwise is not None:
                        self.is_also(made[rests], otherwise)
                    spell(made[rests], rests)
                self.go(state, [first], ends[0] if ends else made[rests])

        spell(state, list(words))

    def digits(self, state: int, first: bytes, most: int) -> list[int]:
        """From a state on, up to so many digits, the first of them one of these; the states behind each."""
        states = [self.new() for _ in range(most)]
        self.go(state, first, states[0])
        for one, other in pairwise(states):
            self.go(one, DIGITS, other)
        return states

    def whole_number(self, state: int, most: int, *, signed: bool) -> list[int]:
        """From a state on, a number of up to so many digits, as it is written; the states behind each digit."""
        self.go(state, b"0", zero := self.new())
        states = self.digits(state, b"123456789", most)
        if signed:
            self.go(state, b"-", minus := self.new())
            self.go(minus, b"123456789", states[0])
        return [zero, *states]

    def base64(self, state: int, following: Following) -> None:
        """From a state on, bytes in base64 as an encoder writes them, and a quotation mark.

        What is left over of a last character is zeros (RFC 4648, section 3.5).
        """
        last_of = [BASE64[::step] for step in (16, 4)]
        second, third, third_or_end, fourth, fourth_or_end, padding, end = (self.new() for _ in range(7))
        for one, characters, other in (
            (state, BASE64, second),
            (second, BASE64, third),
            (second, last_of[0], third_or_end),
            (third, BASE64, fourth),
            (third, last_of[1], fourth_or_end),
            (fourth, BASE64, state),
            (third_or_end, b"=", padding),
            (fourth_or_end, b"=", end),
            (padding, b"=", end),
            (end, b'"', following),
            (state, b'"', following),
        ):
            self.go(one, characters, other)
        self.is_also(third_or_end, third)
        self.is_also(fourth_or_end, fourth)

    def build(self, start: int) -> Automaton:
        """The automaton that begins in this state."""
        may_end = np.zeros(len(self._rows), np.bool_)
        may_end[list(self._ends)] = True
        marks = 1 + max((mark for what, mark, _ in self._rules if what == MARK), default=-1)
        rules = np.array(self._rules, np.int64).reshape(-1)
        return Automaton(np.concatenate(self._rows), rules, may_end, start, self.texts, marks)


@kernel(
    *(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, STATE_ARRAY, OUT_INTS, OUT_BOOLS, INT, INT),
    *(OUT_INTS, OUT_INTS, OUT_INTS, OUT_INTS, OUT_TABLE, OUT_BOOLS),
)
def _run(
    data: Any,
    starts: Any,
    sizes: Any,
    following: Any,
    rules: Any,
    may_end: Any,
    start: int,
    texts: int,
    stack: Any,
    outer: Any,
    names: Any,
    lengths: Any,
    marks: Any,
    accepted: Any,
) -> None:
    """``stack``: of each bracket that is open, what follows when it has been closed; ``outer``: how many names stand in those
    around it. ``names``: where each name of open brackets stands; ``lengths``: its size."""
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        state, depth, name, named = start, 0, 0, 0
        while at < end:
            while state < texts and at + WIDTH <= end:
                plain = plain_bytes(data, at)
                at += plain
                if plain < WIDTH:
                    break
            if at == end:
                break
            # Of a signed index numba asks whether it counts from the end, which takes a quarter of the time.
            state = signed(following[np.uint64(state) << np.uint64(8) | np.uint64(data[at])])
            at += 1
            if state < FIRST_RULE:
                continue
            if state == ERROR:
                break
            rule = 3 * (state - FIRST_RULE)
            what, argument, state = rules[rule], rules[rule + 1], rules[rule + 2]
            if what == MARK:
                marks[argument, row] = at
            elif what == NAME_BEGINS:
                name = at
            elif what == NAME_ENDS:
                size = at - 1 - name
                is_new = named < len(names)
                for other in range(outer[depth - 1], named):
                    if lengths[other] == size and same(data, names[other], data, name, size):
                        is_new = False
                if not is_new:
                    state = ERROR
                    break
                names[named], lengths[named] = name, size
                named += 1
            elif what == PUSH and depth < len(stack):
                stack[depth], outer[depth] = argument, named
                depth += 1
            elif what == POP and depth > 0:
                depth -= 1
                state, named = stack[depth], outer[depth]
            else:
                state = ERROR
                break
        accepted[row] = state < FIRST_RULE and may_end[state]
        if not accepted[row]:
            for mark in range(len(marks)):
                marks[mark, row] = 0
