"""The page of the report: one HTML file, light or dark as its reader's system is, with nothing loaded from elsewhere."""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from penstock.pipeline.report.figures import ChannelFigures, DeadLetterFigures, Figures, Percentiles
from penstock.pipeline.report.plots import Line, Times, legend, plot

_COLOURS = ("blue", "orange", "green", "purple")
_HEADERS_MAX = 12
_WAITS = "From when a message could be handed out until somebody first got it."
_WORK = "How long messages were in the hands of those who worked on them, all attempts together."
_BY_RATIO = "Each line of the grid stands for six to ten times as long as the one below."
_DURATIONS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0, 864000.0, 8640000.0)


def page(figures: Figures, lake: str) -> str:
    """Return the report."""
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    body = "\n".join(
        [
            _head(figures, lake),
            _tiles(figures),
            _throughput(figures),
            _retries(figures),
            _depths(figures),
            _durations(figures, "Waits", _WAITS, "wait"),
            _durations(figures, "Work", _WORK, "work"),
            _channels(figures.channels),
            _dead_letters(figures.dead_letters),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Penstock report</title><style>{style}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


# Sections.


def _head(figures: Figures, lake: str) -> str:
    return (
        f"<header><h1>What went through the broker</h1><p>{_moment(figures.since)} to {_moment(figures.until)}, "
        f"from the lake <code>{escape(lake)}</code>. All times are UTC. Point at a plot to read its values.</p></header>"
    )


def _tiles(figures: Figures) -> str:
    channels = figures.channels
    tiles = [
        ("published", number(sum(step.published for step in figures.steps)), "messages accepted"),
        ("finished", number(sum(step.finished for step in figures.steps)), "settled with success"),
        ("retried", number(sum(step.failed for step in figures.steps)), "failures that were tried again"),
        ("dead letters", number(sum(step.dead_lettered for step in figures.steps)), "given up and put aside"),
        ("unsettled", number(sum(one.unsettled for one in channels)), "waiting or being worked on at the end"),
        ("wait", _short(figures.wait, "p50"), f"for half of all; for 99 of 100 below {_short(figures.wait, 'p99')}"),
        ("work", _short(figures.work, "p50"), f"for half of all; for 99 of 100 below {_short(figures.work, 'p99')}"),
    ]
    items = "".join(
        f'<li class="tile{" bad" if name == "dead letters" and value != "0" else ""}"><h2>{name}</h2><b>{value}</b>'
        f"<span>{told}</span></li>"
        for name, value, told in tiles
    )
    return f'<ul class="tiles">{items}</ul>'


def _throughput(figures: Figures) -> str:
    lines = [
        Line("published", "blue", _rates(figures, "published")),
        Line("finished", "green", _rates(figures, "finished")),
    ]
    told = "Messages a second. Where less is finished than published, queues grow."
    return _plotted(figures, "Throughput", told, lines, _per_second)


def _retries(figures: Figures) -> str:
    lines = [
        Line("failed, tried again", "orange", [step.failed for step in figures.steps]),
        Line("dead letters", "red", [step.dead_lettered for step in figures.steps]),
    ]
    told = f"Failures in each step of {seconds(figures.step_seconds)}."
    return _plotted(figures, "Retries and dead letters", told, lines, _whole)


def _depths(figures: Figures) -> str:
    lines = [
        Line(name, colour, depths) for (name, depths), colour in zip(figures.depths.items(), _COLOURS, strict=False)
    ]
    told = (
        "Messages that are waiting or being worked on, in the queues and topics that became deepest. "
        "On a topic each subscriber counts."
    )
    return _plotted(figures, "Depth", told, lines, _whole, filled=False) if lines else ""


def _durations(figures: Figures, title: str, told: str, what: str) -> str:
    found: list[Percentiles | None] = [getattr(step, what) for step in figures.steps]
    names = {"p99": ("99 of 100 below", "red"), "p90": ("9 of 10 below", "orange"), "p50": ("half below", "blue")}
    lines = [
        Line(name, colour, [None if one is None else getattr(one, share) for one in found])
        for share, (name, colour) in names.items()
    ]
    return _plotted(figures, title, f"{told} {_BY_RATIO}", lines, seconds, filled=False, marks=_DURATIONS)


def _channels(channels: list[ChannelFigures]) -> str:
    most = max((one.published for one in channels), default=0)
    rows = "".join(
        f"<tr><th scope=row>{escape(one.name)}{'<small>topic</small>' if one.type == 'topic' else ''}</th>"
        f"<td>{_bar(one.published, most)}{number(one.published)}</td><td>{number(one.finished)}</td>"
        f"<td>{_alarm(one.failed, 'warn')}</td><td>{_alarm(one.dead_lettered, 'bad')}</td><td>{number(one.unsettled)}</td>"
        f"<td>{_short(one.wait, 'p50')}</td><td>{_short(one.wait, 'p99')}</td>"
        f"<td>{_short(one.work, 'p50')}</td><td>{_short(one.work, 'p99')}</td></tr>"
        for one in channels
    )
    return (
        "<section><h2>Queues and topics, the worst first</h2><p>Those with dead letters stand first, then those with "
        "failures, then those whose messages wait longest. On a topic each subscriber counts.</p>"
        '<div class="wide"><table><thead><tr><th scope=col rowspan=2>name</th><th scope=col rowspan=2>published</th>'
        "<th scope=col rowspan=2>finished</th><th scope=col rowspan=2>retried</th><th scope=col rowspan=2>dead letters</th>"
        "<th scope=col rowspan=2>unsettled</th><th scope=colgroup colspan=2>wait</th><th scope=colgroup colspan=2>work</th>"
        "</tr><tr><th>half</th><th>99 of 100</th><th>half</th><th>99 of 100</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _dead_letters(groups: list[DeadLetterFigures]) -> str:
    if not groups:
        return "<section><h2>Dead letters</h2><p>None.</p></section>"
    most = max(one.number for one in groups)
    items = "".join(_dead_letter(one, most) for one in groups)
    return (
        "<section><h2>Dead letters by what they died of</h2><p>Reasons that differ in numbers, ids, times and quoted "
        "values alone are one signature. The latest message of each is shown as an example; "
        "<code>penstock pipeline replay --from dead_letters</code> sends them again.</p>"
        f'<ol class="deaths">{items}</ol></section>'
    )


def _dead_letter(one: DeadLetterFigures, most: int) -> str:
    headers = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in sorted(one.headers.items())[:_HEADERS_MAX]
    )
    return (
        f'<li><div class="death"><b>{number(one.number)}</b><div>{_bar(one.number, most)}'
        f"<code>{escape(one.signature)}</code><p>{escape(one.queue)}, {_moment(one.first_at)} to {_moment(one.last_at)}</p>"
        f"<details><summary>an example</summary><p>Message {one.sequence}, after {number(one.attempts)} "
        f"{'attempt' if one.attempts == 1 else 'attempts'}: {escape(one.reason)}</p>"
        f"<table>{headers}</table><pre>{escape(one.excerpt)}</pre></details></div></div></li>"
    )


# Parts of sections.


def _plotted(
    figures: Figures,
    title: str,
    told: str,
    lines: list[Line],
    written: Callable[[float], str],
    *,
    filled: bool = True,
    marks: Sequence[float] | None = None,
) -> str:
    start = figures.since.timestamp() // figures.step_seconds * figures.step_seconds
    drawn = plot(title, lines, Times(start, figures.step_seconds), written, filled=filled, marks=marks)
    return f"<section><h2>{title}</h2><p>{told}</p>{legend(lines)}{drawn}</section>"


def _rates(figures: Figures, what: str) -> list[float]:
    return [getattr(step, what) / figures.step_seconds for step in figures.steps]


def _bar(value: int, most: int) -> str:
    share = 100 * value / most if most else 0
    return f'<span class="bar" style="width:{share:.0f}%"></span>'


def _alarm(value: int, kind: str) -> str:
    return f'<b class="{kind}">{number(value)}</b>' if value else "0"


def _short(found: Percentiles | None, share: str) -> str:
    return "–" if found is None else seconds(getattr(found, share))


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


# Numbers as people read them.

_LARGE = {"tn": 10**12, "bn": 10**9, "M": 10**6}


def number(value: float) -> str:
    """Return a count."""
    unit, size = next(((unit, size) for unit, size in _LARGE.items() if value >= size), ("", 1))
    if unit:
        return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2g}"


def _whole(value: float) -> str:
    """Return a count; there is no half a message, so a line of the grid there has no number."""
    return number(value) if value == int(value) else ""


def _per_second(value: float) -> str:
    return f"{number(value) if value >= 100 else format(value, '.3g')}/s"


def seconds(value: float) -> str:
    """Return a length of time."""
    unit, length = _unit_of(value)
    return f"{value / length:.3g} {unit}" if value else "0"


def _unit_of(value: float) -> tuple[str, float]:
    units = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}
    return next(((unit, length) for unit, length in units.items() if value >= length), ("µs", 1e-6))
