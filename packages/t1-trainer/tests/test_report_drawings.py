"""Drawings of the report: what is drawn is where its number is."""

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from t1_trainer.report.forest import Row, forest, interval_text
from t1_trainer.report.lines import line_chart
from t1_trainer.report.scale import Scale, spanning, ticks
from t1_trainer.report.series import Measure, Series, read, smoothed, smoothing_window
from t1_trainer.report.stacks import remainder, stack_chart

NUMBERS = st.floats(-1e6, 1e6)
NAN = float("nan")


def series(*values: float | None, label: str = "a") -> Series:
    return Series(label, tuple(range(1, len(values) + 1)), values)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", path)]


def of_class(svg: str, name: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(svg).iter() if name in e.get("class", "").split()]


@given(NUMBERS, st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_are_few_round_and_inside(low, size, count):
    high = low + size
    found = ticks(low, high, count)
    assert 1 <= len(found) <= count + 1
    air = 1e-6 * size
    assert all(low - air <= tick <= high + air for tick in found)
    spacings = {f"{b - a:.3g}" for a, b in pairwise(found)}
    assert len(spacings) <= 1
    assert all(f"{float(s):.0e}"[0] in "125" for s in spacings)


@given(st.lists(NUMBERS, min_size=1), st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=2))
def test_a_span_holds_every_number_and_has_a_size(values, include):
    low, high = spanning(values, include=include)
    assert low < high
    assert all(low <= value <= high for value in [*values, *include])


def test_numbers_that_are_not_negative_get_no_negative_axis():
    assert spanning([0.001, 1.0])[0] == 0.0
    assert spanning([-0.001, 1.0])[0] < -0.001
    assert spanning([0.0], include=[0.0]) == (0.0, 0.5)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_a_line_goes_through_its_numbers(values):
    svg = line_chart([series(*values)], "label", "unit")
    (line,) = of_class(svg, "smooth")
    drawn = [y for _, y in points(line.get("d"))]
    low, high = spanning(values)
    # the plot is 164 high and drawn to a tenth
    shares = [(184 - y) / 164 for y in drawn]
    for share, value in zip(shares, values, strict=True):
        assert low + share * (high - low) == pytest.approx(value, abs=(high - low) / 1000)


def test_a_missing_number_is_no_point():
    (line,) = of_class(line_chart([series(1.0, None, 3.0)], "label", ""), "smooth")
    assert len(points(line.get("d"))) == 2


def test_a_lone_number_is_visible():
    (line,) = of_class(line_chart([series(None, 2.0)], "label", ""), "smooth")
    assert line.get("d").endswith("h8")


def test_nothing_measured_is_no_drawing():
    assert line_chart([series(None, None), series()], "label", "") == ""
    assert stack_chart([series(None)], "label", "s") == ""


def test_a_series_keeps_its_colour_when_another_was_not_measured():
    svg = line_chart([series(None, None), series(1.0, 2.0)], "label", "")
    assert [line.get("class") for line in of_class(svg, "line")] == ["line smooth s1"]


def test_numbers_below_the_end_of_the_axis_lie_at_its_end():
    svg = line_chart([series(-80.0, 0.5)], "label", "", hold=(0.0,), least=-1.0)
    (line,) = of_class(svg, "smooth")
    (_, lowest), _ = points(line.get("d"))
    assert lowest == 184
    assert "step 1\na: -80" in svg


def test_the_line_at_zero_is_drawn_even_at_the_end_of_the_axis():
    (zero,) = of_class(line_chart([series(0.25, 0.5)], "label", "", hold=(0.0,)), "zero")
    assert zero.get("d").startswith("M52,184.0 ")


def test_percentages_are_shown_as_such():
    svg = line_chart([series(0.0, 1.0)], "label", "%", percent=True, hold=(0, 1))
    assert ">100<" in svg
    assert "a: 100 %" in svg


def test_text_is_escaped():
    assert "&lt;a&gt;" in line_chart([series(1.0, label="<a>")], '"', "")


@given(st.lists(st.none() | NUMBERS, min_size=1, max_size=40), st.sampled_from([1, 3, 9]))
def test_a_smoothed_number_is_the_mean_of_its_neighbours(values, window):
    found = smoothed(series(*values), window).values
    reach = window // 2
    for i, (value, mean) in enumerate(zip(values, found, strict=True)):
        near = [v for v in values[max(0, i - reach) : i + reach + 1] if v is not None]
        assert (mean is None) == (value is None)
        assert mean is None or mean == pytest.approx(math.fsum(near) / len(near), abs=1e-6)


def test_the_window_is_odd_and_grows_with_the_run():
    assert [smoothing_window(n) for n in (0, 15, 16, 64, 640)] == [1, 1, 3, 9, 81]


def test_a_measure_divides_where_there_is_something_to_divide_by():
    records = [{"step": 1, "a": 6, "b": 3}, {"step": 2, "a": 6, "b": 0}, {"step": 3, "b": 1}]
    assert read(records, Measure("label", "a", per="b")).values == (2.0, None, None)
    assert read(records, Measure("label", "a")).values == (6, 6, None)


@given(st.lists(st.tuples(*[st.floats(0.1, 100)] * 3), min_size=1, max_size=6))
def test_the_bars_of_a_stack_are_as_high_as_their_numbers(bars):
    parts = [
        series(*column, label=name)
        for name, column in zip("abc", zip(*bars, strict=True), strict=True)
    ]
    svg = stack_chart(parts, "label", "s")
    unit = 164 / (1.05 * max(map(sum, bars)))
    for n, part in enumerate(parts):
        heights = [float(r.get("height")) for r in of_class(svg, f"s{n}")]
        expected = [value * unit for value in part.values]
        # a bar lower than a tenth is not drawn
        assert sum(heights) == pytest.approx(sum(expected), abs=0.15 * len(bars))
    total = sum(float(r.get("height")) for r in of_class(svg, "part"))
    assert total == pytest.approx(unit * sum(map(sum, bars)), abs=0.15 * len(bars))


def test_the_rest_of_a_step_is_what_no_part_accounts_for():
    rest = remainder(
        series(5.0, None, 3.0), [series(1.0, 1.0, None), series(2.0, 2.0, 2.5)], "rest"
    )
    assert rest.values == (2.0, None, 0.5)


@given(NUMBERS, st.floats(1e-3, 1e6), st.floats(0, 1))
def test_a_scale_places_in_proportion_and_never_outside(low, size, share):
    high = low + size
    assume(low < high)
    scale = Scale(low, high, 100, 300)
    assert scale(low + share * size) == pytest.approx(100 + 200 * share, abs=0.06)
    assert (scale(low - size), scale(high + size)) == (100, 300)


def interval(mean: float, low: float | None, high: float | None) -> dict:
    return {"mean": mean, "low": low, "high": high}


def test_a_forest_draws_each_interval_where_its_numbers_are():
    rows = [
        Row("Heading"),
        Row("x", interval(0.5, 0.25, 0.75)),
        Row("y", interval(1, NAN, NAN), 6, False),
    ]
    svg = forest(rows, "label", "%", hold=(0, 1))
    dots, (whisker,) = of_class(svg, "dot"), of_class(svg, "whisker")
    # the plot is 308 wide
    assert [float(dot.get("cx")) for dot in dots] == [118 + 154, 118 + 308]
    assert [dot.get("class") for dot in dots] == ["dot", "dot hollow"]
    assert whisker.get("d").startswith(f"M{118 + 77.0},")
    assert f"H{118 + 231.0} " in whisker.get("d")


def test_an_interval_without_ends_says_so():
    expected = "+100.0 points (one task: no interval)"
    assert interval_text(interval(1.0, NAN, NAN), "points") == expected
    assert interval_text(interval(1.0, None, None), "points") == expected
    assert interval_text(interval(0.5, 0.25, 0.75), "%", signed=False) == "50.0 (25.0 to 75.0) %"
