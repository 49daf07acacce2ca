"""Charts: lines over time and histograms as inline SVG, readable without colours, and each with its numbers as a table beside.

Pure: numbers in, markup out; no text of Redis' is in it. Called by ``queue.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from attrs import field, frozen
from markupsafe import Markup

from .render import age, number

WIDTH, HEIGHT = 640, 150
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 20
"""Room for the axes."""
MOST_LABELS = 6

Text = Callable[[float], str]


@frozen
class Line:
    """One line of a chart. ``style``: the class of the state whose colour it has, or ``second`` …"""

    name: str
    style: str
    values: Sequence[float | None]
    """None: not known there; the line has a gap."""
    is_area: bool = False


@frozen
class Chart:
    """Something to be shown: the drawing, and what is in it."""

    title: str
    svg: Markup
    lines: Sequence[tuple[str, str]] = field(factory=tuple)
    """Names and styles, for the legend."""
    columns: Sequence[str] = field(factory=tuple)
    rows: Sequence[Sequence[str]] = field(factory=tuple)
    """The same as a table, the newest first."""
    summary: str = ""


def over_time(
    title: str, starts_ms: Sequence[int], step_ms: int, lines: Sequence[Line], shown: Text = lambda each: _short(each)
) -> Chart:
    """Lines over time. ``shown``: how a value reads on the axis and in the table."""
    known = [value for line in lines for value in line.values if value is not None]
    top = nice_top(max(known, default=0.0))
    pieces = [*_grid(top, shown), *_times(starts_ms, step_ms)]
    for line in lines:
        pieces += _line(line, top)
    last = ", ".join(f"{line.name} {shown(line.values[-1] or 0)}" for line in lines if line.values)
    stamps = [_stamp(start, step_ms, whole=True) for start in starts_ms]
    cells = [
        (stamp, *("–" if line.values[at] is None else shown(line.values[at] or 0.0) for line in lines))
        for at, stamp in enumerate(stamps)
    ]
    return Chart(
        title,
        _svg(f"{title}: at last {last}" if last else title, pieces),
        [(line.name, line.style) for line in lines],
        ["From", *(line.name for line in lines)],
        cells[::-1],
    )


def histogram(title: str, bounds_ms: Sequence[float], counts: Sequence[int], style: str, summary: str) -> Chart:
    """How many jobs took how long: a bar for each bucket from the first that has any to the last."""
    used = [at for at, count in enumerate(counts) if count]
    if not used:
        return Chart(title, Markup(""), summary=summary)
    first, last = max(0, used[0] - 1), min(len(counts) - 1, used[-1] + 1)
    chosen = range(first, last + 1)
    top = nice_top(max(counts))
    pieces = list(_grid(top, _short))
    width = (WIDTH - LEFT - RIGHT) / len(chosen)
    every = math.ceil(len(chosen) / MOST_LABELS)
    for place, at in enumerate(chosen):
        height = (HEIGHT - TOP - BOTTOM) * counts[at] / top
        x = LEFT + place * width
        if counts[at]:
            pieces.append(
                Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"></rect>').format(
                    style, x + 1, HEIGHT - BOTTOM - height, max(1.0, width - 2), max(1.0, height)
                )
            )
        if place % every == 0:
            pieces.append(_text(x + width, HEIGHT - 6, _bound(bounds_ms[at]), "end"))
    rows = [(f"up to {_bound(bounds_ms[at])}", number(counts[at])) for at in chosen]
    return Chart(title, _svg(f"{title}: {summary}", pieces), columns=["Time", "Jobs"], rows=rows, summary=summary)


def nice_top(highest: float) -> float:
    """The end of an axis: 1, 2 or 5 times a power of ten, or 4 of these steps."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * step for step in (1, 2, 4, 5, 8, 10) if power * step >= highest)


def _svg(label: str, pieces: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(pieces)
    )


def _grid(top: float, shown: Text) -> Iterator[Markup]:
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        yield Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"></line>').format(LEFT, WIDTH - RIGHT, y, y)
        yield _text(LEFT - 5, y + 3.5, shown(top * share), "end")


def _times(starts_ms: Sequence[int], step_ms: int) -> Iterator[Markup]:
    every = max(1, math.ceil(len(starts_ms) / MOST_LABELS))
    for at in range(0, len(starts_ms), every):
        x = _x(at, len(starts_ms))
        yield _text(x, HEIGHT - 6, _stamp(starts_ms[at], step_ms * len(starts_ms)), "start" if at == 0 else "middle")


def _line(line: Line, top: float) -> Iterator[Markup]:
    run: list[tuple[float, float]] = []
    for at, value in enumerate((*line.values, None)):
        if value is not None:
            run.append((_x(at, len(line.values)), HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.0, value / top)))
        elif run:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
            if line.is_area:
                base = HEIGHT - BOTTOM
                yield Markup('<polygon class="area {}" points="{:.1f},{} {} {:.1f},{}"></polygon>').format(
                    line.style, run[0][0], base, points, run[-1][0], base
                )
            yield Markup('<polyline class="line {}" points="{}"></polyline>').format(line.style, points)
            run = []


def _x(at: int, of: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at / (of - 1) if of > 1 else 0.5)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _stamp(ms: int, span_ms: int, *, whole: bool = False) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    if whole:
        return f"{at:%Y-%m-%d %H:%M}"
    return f"{at:%m-%d}" if span_ms > 3 * 86_400_000 else f"{at:%H:%M}"


def _short(value: float) -> str:
    """A number in few characters."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def _bound(ms: float) -> str:
    return "more" if math.isinf(ms) else age(ms)
