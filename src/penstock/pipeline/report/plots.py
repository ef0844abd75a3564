"""Plots as SVG: lines over time, without a library, a script or anything from elsewhere.

A line is drawn where there are values; a point that stands alone is drawn as one. Whoever points at a step is told all
values of it, by the `title` that browsers show; screen readers are told what the plot is about by its label.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import floor, log, log10

WIDTH, HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 32
_TICKS = 4
_LABELS = 6
_DAY = 86400
#: Marks above the lowest on an axis; what is below that is too small to matter beside what is above.
_MARKS_MAX = 6
#: Room that a label of the time axis needs on either side of its tick.
_LABEL_HALF = 34


@dataclass(slots=True, frozen=True)
class Line:
    """A name, a colour of the page's, and a value for each step; None where there is none."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(slots=True, frozen=True)
class Times:
    """When the steps begin: the first, and the seconds between two."""

    start: float
    step: int


def plot(
    label: str,
    lines: Sequence[Line],
    times: Times,
    written: Callable[[float], str],
    *,
    filled: bool = False,
    marks: Sequence[float] | None = None,
) -> str:
    """Return a plot of lines.

    `filled`: the area below the first of them is. `marks`: what may stand at the grid's lines, where values are so
    different that their ratios count; None: from nought evenly to a round number.
    """
    scale = _scale(lines, marks)
    parts = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">']
    parts += _value_axis(scale, written)
    parts += _time_axis(scale, times)
    if filled:
        parts.append(_area(lines[0], scale))
    for line in lines:
        parts += _drawn(line, scale)
    parts += _hints(lines, scale, times, written)
    parts.append("</svg>")
    return "".join(parts)


def legend(lines: Sequence[Line]) -> str:
    """Return the names of lines with their colours."""
    items = "".join(
        f'<li title="{escape(line.name)}"><i class="{line.colour}"></i>{escape(line.name)}</li>' for line in lines
    )
    return f'<ul class="legend">{items}</ul>'


class _Scale:
    """Where values and steps are in the drawing: values from nought to a round number, divided evenly."""

    def __init__(self, count: int, most: float) -> None:
        self.count = count
        self.top = _nice_top(most)
        self.width = (WIDTH - _LEFT - _RIGHT) / max(count - 1, 1)

    @property
    def ticks(self) -> Sequence[float]:
        return [self.top * tick / _TICKS for tick in range(_TICKS + 1)]

    def x(self, step: float) -> float:
        return _LEFT + step * self.width if self.count > 1 else (WIDTH + _LEFT - _RIGHT) / 2

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - self.share(value) * (HEIGHT - _TOP - _BOTTOM)

    def share(self, value: float) -> float:
        return value / self.top


class _MarkedScale(_Scale):
    """Values between two marks, by their ratios; what is smaller than the lower one is drawn on it."""

    def __init__(self, count: int, values: Sequence[float], marks: Sequence[float]) -> None:
        super().__init__(count, 0.0)
        most, least = max(values, default=0.0), min((value for value in values if value > 0), default=0.0)
        last = max(1, next((place for place, mark in enumerate(marks) if mark >= most), len(marks) - 1))
        first = max((place for place, mark in enumerate(marks) if mark <= least), default=0)
        self._marks = marks[max(min(first, last - 1), last - _MARKS_MAX) : last + 1]

    @property
    def ticks(self) -> Sequence[float]:
        return self._marks

    def share(self, value: float) -> float:
        first, last = self._marks[0], self._marks[-1]
        return log(value / first) / log(last / first) if value > first else 0.0


def _scale(lines: Sequence[Line], marks: Sequence[float] | None) -> _Scale:
    count = max(len(line.values) for line in lines)
    values = [value for line in lines for value in line.values if value is not None]
    return _Scale(count, max(values, default=0.0)) if marks is None else _MarkedScale(count, values, marks)


def _nice_top(value: float) -> float:
    """Return the next number that divides well into the ticks."""
    if value <= 0:
        return 1.0
    unit: float = 10.0 ** floor(log10(value))
    return next(unit * factor for factor in (1, 2, 4, 6, 8, 10) if unit * factor >= value)


def _value_axis(scale: _Scale, written: Callable[[float], str]) -> list[str]:
    parts = []
    for value in scale.ticks:
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{written(value)}</text>')
    return parts


def _time_axis(scale: _Scale, times: Times) -> list[str]:
    span = times.step * scale.count
    form = (
        "%d %b"
        if span > _LABELS * _DAY
        else "%d %b %H:%M"
        if span > _DAY
        else "%H:%M:%S"
        if times.step < 60
        else "%H:%M"
    )
    apart = max(1, -(-scale.count // _LABELS))
    parts = []
    for step in range(0, scale.count, apart):
        text = datetime.fromtimestamp(times.start + step * times.step, UTC).strftime(form)
        x = min(max(scale.x(step), _LABEL_HALF), WIDTH - _LABEL_HALF)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>')
    return parts


def _runs(line: Line) -> list[list[tuple[int, float]]]:
    """Return the stretches in which there are values."""
    runs: list[list[tuple[int, float]]] = [[]]
    for step, value in enumerate(line.values):
        if value is not None:
            runs[-1].append((step, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _drawn(line: Line, scale: _Scale) -> list[str]:
    parts = []
    for run in _runs(line):
        points = [(scale.x(step), scale.y(value)) for step, value in run]
        if len(points) == 1:
            parts.append(f'<circle class="dot {line.colour}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.5"/>')
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline class="line {line.colour}" points="{path}"/>')
    return parts


def _area(line: Line, scale: _Scale) -> str:
    paths = []
    for run in _runs(line):
        points = " ".join(f"{scale.x(step):.1f},{scale.y(value):.1f}" for step, value in run)
        first, last = scale.x(run[0][0]), scale.x(run[-1][0])
        paths.append(f"{first:.1f},{scale.y(0):.1f} {points} {last:.1f},{scale.y(0):.1f}")
    return "".join(f'<polygon class="area {line.colour}" points="{path}"/>' for path in paths)


def _hints(lines: Sequence[Line], scale: _Scale, times: Times, written: Callable[[float], str]) -> list[str]:
    parts = []
    for step in range(scale.count):
        told = [(line.name, line.values[step]) for line in lines if step < len(line.values)]
        values = [f"{name}: {written(value)}" for name, value in told if value is not None]
        time = datetime.fromtimestamp(times.start + step * times.step, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        left = scale.x(step) - scale.width / 2
        parts.append(
            f'<rect class="hint" x="{left:.1f}" y="{_TOP}" width="{scale.width:.1f}" height="{HEIGHT - _TOP - _BOTTOM}">'
            f"<title>{escape(chr(10).join([time, *values]))}</title></rect>"
        )
    return parts
