"""Measure: what is measured, and which figure was promised. Pure values; ``__main__`` runs them and ``table`` shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from statistics import median
from typing import Literal

from attrs import frozen

from ..brokers import Broker
from ..server import Server


@frozen
class Target:
    """What ferryman promises: a bound for its figure, or for the ratio of its figure to that of ``redis://``."""

    of: Literal["ratio", "value"]
    bound: float
    at_least: bool

    def met(self, value: float, ratio: float) -> bool:
        """Whether a figure keeps the promise."""
        number = ratio if self.of == "ratio" else value
        return number >= self.bound if self.at_least else number <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{' x' if self.of == 'ratio' else ''}"


def ratio_at_least(bound: float) -> Target:
    """So many times the figure of ``redis://``, or more."""
    return Target("ratio", bound, at_least=True)


def ratio_at_most(bound: float) -> Target:
    """So many times the figure of ``redis://``, or less."""
    return Target("ratio", bound, at_least=False)


def at_most(bound: float) -> Target:
    """This figure or less, whatever ``redis://`` does."""
    return Target("value", bound, at_least=False)


@frozen
class Figure:
    """One number that a measure gives."""

    name: str
    unit: str
    target: Target | None = None


@frozen
class Measure:
    """``run`` gives one value for each figure, on a server whose databases are empty."""

    name: str
    figures: tuple[Figure, ...]
    run: Callable[[Broker, Server], Sequence[float]]
    repeats: int | None = None
    """How often at most; for measures that take minutes and hardly vary."""
    has_floor: bool = False
    """Whether kombu's ``memory://`` can do it too."""
    has_rival: bool = True
    """Whether ``redis://`` can do it too."""


@frozen
class Result:
    """The medians of one figure."""

    figure: Figure
    redis: float
    ferryman: float
    floor: float | None

    @property
    def ratio(self) -> float:
        """ferryman's figure in terms of that of ``redis://``."""
        return self.ferryman / self.redis if self.redis else float("inf")

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.figure.target is None else self.figure.target.met(self.ferryman, self.ratio)


def results(
    measure: Measure, redis: Sequence[Sequence[float]], ferryman: Sequence[Sequence[float]], floor: Sequence[Sequence[float]]
) -> list[Result]:
    """The medians of repeated runs, one Result a figure; NaN for a broker that did not run."""
    return [
        Result(
            figure,
            median(run[at] for run in redis) if redis else nan,
            median(run[at] for run in ferryman),
            median(run[at] for run in floor) if floor else None,
        )
        for at, figure in enumerate(measure.figures)
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share (0 to 1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
