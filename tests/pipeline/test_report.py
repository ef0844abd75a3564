"""The page of the report: it draws what it is told, in a real browser, wide and narrow, whatever queues are called."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.browser import told_by

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from penstock.pipeline.report.figures import ChannelFigures, DeadLetterFigures, Figures, Percentiles, Step
from penstock.pipeline.report.page import number, page, seconds
from penstock.pipeline.report.plots import Line, Times, plot

SINCE = datetime(2026, 11, 19, 22, 50, 30, tzinfo=UTC)
NAMES = ["orders{eu}", "orders{us,fast,priority,with-a-very-long-tag}", '<b onclick="x">&amp;', "Aufträge/" + "ü" * 100]
ALL = Percentiles(0.02, 0.2, 3.4)


def figures(count: int, step_seconds: int, scale: int) -> Figures:
    """Return figures of so many steps, with a gap, large numbers and names that are not easy to show."""
    busy = [Step(900 * scale, 870 * scale, number % 3, number % 2, ALL, ALL) for number in range(count)]
    steps = [Step() if count > 9 and number in {4, 5} else step for number, step in enumerate(busy)]
    until = SINCE + timedelta(seconds=step_seconds * count)
    headers = {"original-queue": "orders", "trace": "4bf92f3577b34da6" * 4}
    return Figures(
        SINCE,
        until,
        step_seconds,
        steps,
        {name: [scale * (place + 1)] * count for place, name in enumerate(NAMES)},
        [ChannelFigures("topic", name, 10**6 * scale, 9, 8, 7, 10**5 * scale, ALL, None) for name in NAMES],
        [
            DeadLetterFigures(name, "<value> is " + "x" * 250, scale, SINCE, until, "cold", 17, 3, headers, "<i>\n")
            for name in NAMES
        ],
        ALL,
        None,
    )


#: Added to a page that has no script of its own: measures what a person would stumble over.
MEASURE = """
<pre id="told"></pre><script type="module">
const boxes = selector => [...document.querySelectorAll(selector)].map(one => one.getBoundingClientRect());
const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
const overlaps = [...document.querySelectorAll("svg")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].filter(one => one.textContent);
  return texts.flatMap((one, at) => texts.slice(at + 1).filter(
    two => !apart(one.getBoundingClientRect(), two.getBoundingClientRect())).map(
    two => `${svg.getAttribute("aria-label")}: ${one.textContent} / ${two.textContent}`));
});
document.querySelector("#told").textContent = JSON.stringify({
  plots: boxes("svg").filter(box => box.width > 300 && box.height > 80).length,
  lines: boxes("svg polyline").filter(box => box.width > 100).length,
  overlaps,
  spilt: [...document.querySelectorAll(".tile b, h2, section > p, .legend li")].filter(
    one => one.getBoundingClientRect().right > one.parentElement.getBoundingClientRect().right + 1).map(
    one => one.textContent),
  sideways: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  requests: performance.getEntriesByType("resource").map(one => one.name),
  bold: [...document.querySelectorAll("b[onclick], i:empty + i")].length,
  shown: document.body.innerText.includes('<b onclick="x">&amp;'),
});
</script>"""


@pytest.mark.parametrize(
    ("width", "shape"), [(1000, (90, 60, 4)), (500, (119, 86400, 10**7))], ids=["wide", "narrow, large and long"]
)
def test_it_draws_in_a_browser(tmp_path: Path, width: int, shape: tuple[int, int, int]) -> None:
    """All plots with their lines; nothing overlaps, sticks out or is fetched, and names are no markup."""
    file = tmp_path / "report.html"
    file.write_text(page(figures(*shape), "a lake").replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    assert told_by(file.as_uri(), tmp_path, width) == {
        "plots": 5, "lines": 14, "overlaps": [], "spilt": [], "sideways": False, "requests": [], "bold": 0, "shown": True,
    }  # fmt: skip


def test_little_is_shown_too() -> None:
    """One step with nothing in it is a page, with plots that say nought."""
    empty = replace(figures(1, 1, 1), steps=[Step()], depths={}, channels=[], dead_letters=[], wait=None, work=None)
    text = page(empty, "a lake")
    assert text.count("<svg") == 4
    assert "nan" not in text
    assert "<p>None.</p>" in text


def ticks(values: list[float], marks: list[float] | None) -> dict[str, float]:
    """Return what stands at the lines of the grid, and how high."""
    drawn = plot("x", [Line("y", "blue", values)], Times(0, 1), "{:g}".format, marks=marks)
    parts = [part for part in drawn.split('<text class="tick" ') if 'text-anchor="end"' in part]
    return {part.split(">")[1].partition("<")[0]: float(part.split('y="')[1].partition('"')[0]) for part in parts}


MARKS = [0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0]


@pytest.mark.parametrize(
    ("values", "marks", "expected"),
    [
        ([0.0, 7.0], None, ["0", "2", "4", "6", "8"]),
        ([0.0], None, ["0", "0.25", "0.5", "0.75", "1"]),
        ([0.05, 11.0], MARKS, ["0.01", "0.1", "1", "10", "60"]),
        ([5.0], MARKS, ["1", "10"]),
        ([1.0, 10.0], MARKS, ["1", "10"]),
        ([0.0], MARKS, ["0.01", "0.1"]),
        ([0.02, 80000.0], MARKS, ["1", "10", "60", "600", "3600", "21600", "86400"]),
        ([0.001, 10.0**7], MARKS, ["1", "10", "60", "600", "3600", "21600", "86400"]),
    ],
)
def test_lines_of_the_grid(values: list[float], marks: list[float] | None, expected: list[str]) -> None:
    """Round numbers up to the largest value, each higher than the one before."""
    found = ticks(values, marks)
    assert list(found) == expected
    assert list(found.values()) == sorted(found.values(), reverse=True)


def heights(values: list[float], marks: list[float]) -> list[float]:
    """Return how high the points of a line are drawn, from below."""
    drawn = plot("x", [Line("y", "blue", values)], Times(0, 1), str, marks=marks)
    points = drawn.split('<polyline class="line blue" points="')[1].partition('"')[0].split()
    return [-float(point.split(",")[1]) for point in points]


def test_ratios_are_drawn_as_they_are() -> None:
    """Ten times as much is as far up, wherever it begins; nought lies on the lowest line."""
    nought, low, middle, high = heights([0.0, 0.01, 0.1, 1.0], MARKS)
    assert nought == low
    assert middle - low == pytest.approx(high - middle, abs=0.2)
    assert high > middle > low


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (number(0), "0"),
        (number(999_999), "999,999"),
        (number(1_060_000), "1.06 M"),
        (number(25e9), "25 bn"),
        (number(0.25), "0.25"),
        (seconds(0), "0"),
        (seconds(0.0004), "400 µs"),
        (seconds(90), "1.5 min"),
        (seconds(864000), "10 d"),
    ],
)
def test_numbers_are_short(written: str, expected: str) -> None:
    """With a unit that leaves few digits."""
    assert written == expected
