"""Plots of a report's sections, as the plain data that Plotly's script draws.

Names come from messages, and Plotly reads some of HTML in its labels, so each is escaped before it gets there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from html import escape
from typing import Any

from fairlane.report.sections import Report, Section

Figure = dict[str, Any]
Row = dict[str, Any]
Draw = Callable[[str, list[Row]], Figure]

TENANTS_MAX = 20
QUEUES_MAX = 8
_PAIRS_MAX = 15
_COLOURS = {
    "turn_ms": "#4c78a8",
    "throttled_ms": "#f58518",
    "capped_ms": "#e45756",
    "paused_ms": "#b279a2",
    "backoff_ms": "#9d755d",
    "delayed_ms": "#bab0ac",
}
_ENTITLED, _ACTUAL, _GOOD, _LATE, _MISSED = "#bab0ac", "#4c78a8", "#54a24b", "#f58518", "#e45756"


def figures_of(report: Report) -> dict[str, list[Figure]]:
    """Return the plots of each section that has some, by its name."""
    drawn = {
        "shares": _each_queue(report.section("shares"), _shares),
        "waits": _each_queue(report.section("waits"), _waits) + _each_queue(report.section("waits"), _reasons),
        "neighbours": _each_queue(report.section("neighbours"), _neighbours),
        "usage": _usage(report.section("usage")),
        "deadlines": _each_queue(report.section("deadlines"), _deadlines),
        "timeline": _each_queue(report.section("timeline"), _timeline),
    }
    return {name: [figure for figure in figures if figure["data"]] for name, figures in drawn.items()}


def _each_queue(section: Section, draw: Draw) -> list[Figure]:
    by_queue: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in section.dicts():
        by_queue[str(row["queue"])].append(row)
    return [draw(queue, rows) for queue, rows in list(by_queue.items())[:QUEUES_MAX]]


def _shares(queue: str, rows: list[Row]) -> Figure:
    rows = rows[:TENANTS_MAX]
    names = [_safe(row["key"]) for row in rows]
    bars = [
        _bar(names, [row["entitled_share"] for row in rows], "entitled by weight", _ENTITLED),
        _bar(names, [row["share"] for row in rows], "served", _ACTUAL),
    ]
    return _figure(f"Shares of {queue}", bars, yaxis={"tickformat": ".0%", "rangemode": "tozero"}, barmode="group")


def _waits(queue: str, rows: list[Row]) -> Figure:
    rows = rows[:TENANTS_MAX]
    names = [_safe(row["key"]) for row in rows]
    bars = [
        _bar(names, [_seconds(row["wait_p50_ms"]) for row in rows], "p50", _ENTITLED),
        _bar(names, [_seconds(row["wait_p99_ms"]) for row in rows], "p99", _ACTUAL),
    ]
    axis = {"title": {"text": "seconds"}, "rangemode": "tozero"}
    return _figure(f"How long messages of {queue} waited", bars, yaxis=axis, barmode="group")


def _reasons(queue: str, rows: list[Row]) -> Figure:
    rows = rows[:TENANTS_MAX]
    names = [_safe(row["key"]) for row in rows]
    titles = {
        "turn_ms": "for its turn",
        "throttled_ms": "throttled",
        "capped_ms": "at its cap",
        "paused_ms": "paused",
        "backoff_ms": "backing off",
        "delayed_ms": "delayed as wished",
    }
    bars = [
        _bar(names, [_seconds(row[name]) for row in rows], title, _COLOURS[name])
        for name, title in titles.items()
        if any(row[name] for row in rows)
    ]
    return _figure(
        f"Why messages of {queue} waited", bars, yaxis={"title": {"text": "seconds, all messages"}}, barmode="stack"
    )


def _neighbours(queue: str, rows: list[Row]) -> Figure:
    delays = {(row["victim"], row["neighbour"]): row["delay_ms"] for row in rows}
    victims = list(dict.fromkeys(victim for victim, _ in delays))[:_PAIRS_MAX]
    noisy = list(dict.fromkeys(neighbour for _, neighbour in delays))[:_PAIRS_MAX]
    heat = {
        "type": "heatmap",
        "x": [_safe(name) for name in noisy],
        "y": [_safe(name) for name in victims],
        "z": [[_seconds(delays.get((victim, neighbour))) for neighbour in noisy] for victim in victims],
        "colorscale": "Oranges",
        "colorbar": {"title": {"text": "seconds"}},
        "hovertemplate": "%{y} waited %{z:.1f} s behind %{x}<extra></extra>",
    }
    axes = {
        "xaxis": {"title": {"text": "served meanwhile"}, "type": "category"},
        "yaxis": {"title": {"text": "waited"}, "type": "category"},
    }
    return _figure(f"Who made whom wait in {queue}", [heat] if delays else [], **axes)


def _usage(section: Section) -> list[Figure]:
    rows = section.dicts()[:TENANTS_MAX]
    bar = _bar([_safe(row["key"]) for row in rows], [row["cost_true"] for row in rows], "cost", _ACTUAL)
    return [_figure("What each tenant used", [bar] if rows else [], yaxis={"title": {"text": "cost"}})]


def _deadlines(queue: str, rows: list[Row]) -> Figure:
    rows = rows[:TENANTS_MAX]
    names = [_safe(row["key"]) for row in rows]
    bars = [
        _bar(names, [row[name] for row in rows], name, colour)
        for name, colour in (("met", _GOOD), ("late", _LATE), ("missed", _MISSED))
    ]
    return _figure(f"Deadlines in {queue}", bars, yaxis={"title": {"text": "messages"}}, barmode="stack")


def _timeline(queue: str, rows: list[Row]) -> Figure:
    # Lines keep their value until the next point, so one is drawn at the end of a time with work.
    ends = [*[row["from_ms"] for row in rows[1:]], None]
    drawn = [each for row, after in zip(rows, ends, strict=True) for each in _until(row, after)]
    instants = [row["from_ms"] for row in drawn]
    lines = [
        _line(instants, [row["waiting_cost"] for row in drawn], "work there was", _ENTITLED),
        _line(instants, [row["served_cost"] for row in drawn], "served", _ACTUAL),
        _line(instants, [row["jain"] for row in drawn], "Jain index", _GOOD) | {"yaxis": "y2"},
    ]
    axes = {
        "xaxis": {"type": "date"},
        "yaxis": {"title": {"text": "cost"}, "rangemode": "tozero"},
        "yaxis2": {
            "title": {"text": "Jain index"},
            "range": [0, 1.05],
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
        },
    }
    return _figure(f"{queue} over time", lines, **axes)


def _until(row: Row, after: int | None) -> list[Row]:
    """Return a row, and one without work at its end if no other row follows at once."""
    if after is not None and after <= row["until_ms"]:
        return [row]
    return [row, {"from_ms": row["until_ms"], "waiting_cost": 0, "served_cost": 0, "jain": None}]


def _bar(names: list[str], values: list[Any], title: str, colour: str) -> dict[str, Any]:
    return {"type": "bar", "x": names, "y": values, "name": title, "marker": {"color": colour}}


def _line(instants: list[int], values: list[Any], title: str, colour: str) -> dict[str, Any]:
    line = {"color": colour, "shape": "hv"}
    return {"type": "scatter", "mode": "lines", "x": instants, "y": values, "name": title, "line": line}


def _figure(title: str, data: list[dict[str, Any]], **layout: object) -> Figure:
    names = {"xaxis": {"type": "category"}} if "xaxis" not in layout else {}
    return {"data": data, "layout": {"title": {"text": _safe(title)}, **names, **layout}}


def _safe(text: object) -> str:
    return escape(str(text), quote=False)


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1_000
