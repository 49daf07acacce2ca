"""``python -m benchmarks.intrinsics``: what the instructions that ``schema/columnar/jit.py`` writes by hand save beside loops.

Both are compiled by numba and do the same with the same bytes, one after the other; the best of some rounds counts. Where a plain
loop is as quick, the instruction is to go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from ferryman.schema.columnar.jit import WIDTH, copy, plain_bytes, same
from numba import njit
from rich.console import Console
from rich.table import Table

ROUNDS = 7
JOBS = 20_000
HEAD = b'{"to":"user@example.com","subject":"dolor sit amet, consectetur adipiscing","n":[1,2,3],"html":"'
SMALL, LARGE = (HEAD + b"x" * size + b'"}' for size in (160, 4_000))
"""What jobs of a mail queue may look like."""


@njit
def copied(data: Any, target: Any, step: int, size: int) -> int:
    for start in range(0, len(data) - size, step):
        copy(target, start, data, start, size)
    return int(target[0])


@njit
def copied_by_bytes(data: Any, target: Any, step: int, size: int) -> int:
    for start in range(0, len(data) - size, step):
        for index in range(size):
            target[start + index] = data[start + index]
    return int(target[0])


@njit
def compared(data: Any, _: Any, step: int, size: int) -> int:
    equal = 0
    for start in range(0, len(data) - step - size, step):
        equal += same(data, start, data, start + step, size)
    return equal


@njit
def compared_by_bytes(data: Any, _: Any, step: int, size: int) -> int:
    equal = 0
    for start in range(0, len(data) - step - size, step):
        differs = False
        for index in range(size):
            if data[start + index] != data[start + step + index]:
                differs = True
                break
        equal += not differs
    return equal


@njit
def skipped(data: Any, _: Any, step: int, __: int) -> int:
    """How many quotation marks there are, as the check of JSON finds them."""
    quotes = 0
    for start in range(0, len(data), step):
        at, end = start, start + step
        while at < end:
            while at + WIDTH <= end:
                plain = plain_bytes(data, at)
                at += plain
                if plain < WIDTH:
                    break
            if at < end:
                quotes += data[at] == 34
                at += 1
    return quotes


@njit
def skipped_by_bytes(data: Any, _: Any, step: int, __: int) -> int:
    quotes = 0
    for start in range(0, len(data), step):
        at, end = start, start + step
        while at < end:
            while at < end and data[at] >= 32 and data[at] < 128 and data[at] != 34 and data[at] != 92:
                at += 1
            if at < end:
                quotes += data[at] == 34
                at += 1
    return quotes


CASES = (
    ("copy", copied, copied_by_bytes, SMALL, 24),
    ("copy", copied, copied_by_bytes, SMALL, 200),
    ("same", compared, compared_by_bytes, SMALL, 12),
    ("same", compared, compared_by_bytes, SMALL, 40),
    ("plain_bytes", skipped, skipped_by_bytes, SMALL, 0),
    ("plain_bytes", skipped, skipped_by_bytes, LARGE, 0),
)
"""The instruction, what uses it, the plain loop, a job, and how many of its bytes are copied or compared; 0: looks at all."""


def _best(function: Callable[..., int], *given: Any) -> tuple[float, int]:
    """Nanoseconds a job, and what came of it."""
    result = function(*given)  # compiles it
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        function(*given)
        seconds.append(time.perf_counter() - started)
    return min(seconds) / JOBS * 1e9, result


@click.command()
def main() -> None:
    """Measures each hand-written instruction beside a plain loop."""
    table = Table("instruction", "bytes a job", "by hand: ns a job", "plain loop: ns a job", "ratio")
    for name, fast, plain, job, size in CASES:
        data = np.frombuffer(job * JOBS, np.uint8)
        target = np.zeros_like(data)
        ours, found = _best(fast, data, target, len(job), size)
        theirs, expected = _best(plain, data, target, len(job), size)
        if found != expected:
            raise click.ClickException(f"{name}: {found} and {expected} are not the same")
        table.add_row(name, str(size or len(job)), f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
