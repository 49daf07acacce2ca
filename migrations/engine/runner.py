"""Runner: who does the parts of a step, wherever they run. Pure of any engine: a step is a task and a number of parts.

A task takes the number of a part, leaves files in a folder that all parts share, and returns one text, a summary in JSON. It may
be done again, or twice at once: only what the returned text names counts, so an attempt that was given up leaves nothing behind
that anybody reads. Implementations: InProcess, ProcessRunner (processes.py), and ferryman.spark.runner.SparkRunner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from . import Progress, silent
from .failures import located

S = TypeVar("S")
T = TypeVar("T")

Task = Callable[[int], str]
"""Does the part of this number, from 0 on; returns its summary."""


class Runner(Protocol):
    """Does parts."""

    @property
    def cores(self) -> int:
        """How many parts are done side by side."""

    def run(self, task: Task, parts: int, phase: str, progress: Progress = silent, *, light: bool = False) -> list[str]:
        """Does all parts; returns what each has returned, in their order.

        ``light``: a part takes little time, so several may go to a worker at once. Raises the FerrymanError that a part has
        raised, when all its attempts have failed, with the phase and the part in it. Interrupted, it ends what is running.
        """

    def together(self, first: Callable[[Progress], S], second: Callable[[Progress], T], progress: Progress) -> tuple[S, T]:
        """Does two things that each run steps, side by side if that is any faster."""


class InProcess:
    """Does one part after the other, here."""

    cores = 1

    def run(self, task: Task, parts: int, phase: str, progress: Progress = silent, *, light: bool = False) -> list[str]:
        """See Runner.run."""
        found = []
        for part in range(parts):
            progress(phase, part, parts)
            with located(part_name(phase, part)):
                found.append(task(part))
        progress(phase, parts, parts)
        return found

    def together(self, first: Callable[[Progress], S], second: Callable[[Progress], T], progress: Progress) -> tuple[S, T]:
        """See Runner.together."""
        return first(progress), second(progress)


def part_name(phase: str, part: int) -> str:
    """What a part is called in errors."""
    return f"{phase}, part {part + 1}"
