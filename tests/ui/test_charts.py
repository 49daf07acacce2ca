"""Charts: whole numbers of any size on a readable axis, gaps where nothing is known, the same as a table."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from ferryman.cli.ui.charts import Chart, Line, histogram, nice_top, over_time

STARTS = [1_700_000_000_000 + 60_000 * at for at in range(60)]


def _elements(chart: Chart, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart.svg).iter(name))


@pytest.mark.parametrize(("highest", "top"), [(0, 1), (1, 1), (3, 4), (7, 8), (99, 100), (120, 200), (4.2e9, 5e9), (0.03, 0.04)])
def test_an_axis_ends_at_a_round_number(highest: float, top: float) -> None:
    assert math.isclose(nice_top(highest), top)


def test_a_line_has_a_point_for_each_step_and_stays_inside() -> None:
    chart = over_time("Depth", STARTS, 60_000, [Line("waiting", "waiting", list(range(60)))])
    (line,) = _elements(chart, "polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert len(points) == 60
    assert all(0 <= x <= 640 and 0 <= y <= 150 for x, y in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert chart.rows[0][1] == "59"


def test_what_is_not_known_is_a_gap() -> None:
    chart = over_time("Depth", STARTS[:5], 60_000, [Line("waiting", "waiting", [1, 2, None, 3, 4])])
    assert len(_elements(chart, "polyline")) == 2
    assert chart.rows[2][1] == "–"


@pytest.mark.parametrize("values", [[], [0.0], [None, None], [1e300, 0]])
def test_odd_numbers_make_a_chart_all_the_same(values: list[float | None]) -> None:
    ElementTree.fromstring(over_time("Depth", STARTS[: len(values)], 60_000, [Line("w", "w", values)]).svg)


def test_a_histogram_shows_the_buckets_that_have_jobs() -> None:
    counts = [0] * 29
    counts[10], counts[12] = 30, 4
    chart = histogram("Waits", [float(2**at) for at in range(28)] + [math.inf], counts, "waiting", "p95 1 s")
    assert len(_elements(chart, "rect")) == 2
    assert [row[1] for row in chart.rows] == ["0", "30", "0", "4", "0"]
    assert not histogram("Waits", [1.0], [0], "waiting", "").svg
