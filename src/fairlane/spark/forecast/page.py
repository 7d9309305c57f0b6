"""A forecast as a self-contained page: how sure it is, when targets break, consumers by hour, and the largest tenants.

Everything that comes from messages is escaped, also in plots: Plotly reads some of HTML in its labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from fairlane.spark.forecast.backtest import ERROR_MAX, ArrivalsError
from fairlane.spark.forecast.forecast import ForecastHour, QueueForecast, TenantForecast
from fairlane.spark.whatif.accuracy import ModelError
from fairlane.spark.whatif.page import STYLE, timespan
from fairlane.spark.whatif.targets import target_of

try:
    import plotly.graph_objects as go
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs
except ImportError as error:
    raise ImportError("Plots need the package plotly: install fairlane[report].") from error

TENANTS_SHOWN = 20
_ACTUAL, _EXPECTED, _BAD, _GOOD = "#8a94a0", "#2a5d9c", "#e45756", "#54a24b"
_BAND, _HIGH = "rgba(42,93,156,0.18)", "#7fa6d6"


def page_of(found: Sequence[QueueForecast], *, title: str = "Forecast") -> str:
    """Return forecasts as HTML, with their plots and the script that draws them inside."""
    parts = [f"<h1>{escape(title)}</h1>", "<p>Expected arrivals by hour, played through the broker's scheduler with a"]
    parts.append(" model of the consumers. Hours are in UTC. Waits are those of the messages that come in an hour.</p>")
    for one in found:
        parts.append(f"<h2>Queue {escape(one.queue)}</h2>")
        parts += [_verdict(one), _certainty(one), _arrivals_plot(one)]
        if not one.declined:
            parts += [_waits_plot(one, place) for place in range(len(one.targets))]
            parts += [_consumers_plot(one), _days_table(one)]
        parts.append(_tenants_table(one.tenants))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    script = f"<script>{get_plotlyjs()}</script>"
    return f'<!doctype html><html lang="en"><head>{head}{script}</head><body>{"".join(parts)}</body></html>'


# ------------------------------------------------------------------------------------------------------------- in words


def _verdict(found: QueueForecast) -> str:
    if found.declined:
        return f'<p class="warning">No advice. {escape(found.declined)}</p>'
    facts = [
        f"{one.target} breaks at {one.at} with {found.consumers_now} consumers ({timespan(round(one.value))}), "
        f"in {one.hours} of {len(found.hours)} hours."
        for one in found.breaks
    ] or [f"With {found.consumers_now} consumers all targets hold in all {len(found.hours)} hours."]
    if found.consumers is None:
        facts.append("In some hours no number of consumers that was tried meets the targets.")
    else:
        busiest = max(found.hours, key=lambda hour: hour.consumers or 0)
        facts.append(f"{found.consumers} consumers are needed at most, at {busiest.at}.")
    return f"<ul>{''.join(f'<li><strong>{escape(fact)}</strong></li>' for fact in facts)}</ul>"


def _certainty(found: QueueForecast) -> str:
    facts = [] if found.arrivals_error is None else [_arrivals_fact(found.arrivals_error)]
    facts += [] if found.model_error is None else [_model_fact(found.model_error)]
    return f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in facts)}</ul>" if facts else ""


def _arrivals_fact(error: ArrivalsError) -> str:
    limit = f" Above {ERROR_MAX:.0%} nothing is advised." if error.error > ERROR_MAX else ""
    left_out = f" {error.days_left_out} incomplete days are left out." if error.days_left_out else ""
    held_out = f"{error.days_held_out} held-out day{'' if error.days_held_out == 1 else 's'}"
    return (
        f"Error of the arrivals on {held_out}: {error.error:.0%} by hour, {error.tenants:.0%} "
        f"by tenant; repeating the last {error.season} would be {error.naive:.0%} off.{limit} The model has "
        f"{error.days:.0f} days of history, by hour of the {error.season}.{left_out}"
    )


def _model_fact(error: ModelError) -> str:
    waits = f"p99 {timespan(error.journal_p99_ms)} recorded, {timespan(error.model_p99_ms)} in the model"
    return f"Error of the simulation on recent traffic: {error.error:.0%} ({waits})."


# ------------------------------------------------------------------------------------------------------------ as tables


def _days_table(found: QueueForecast) -> str:
    days: dict[str, list[ForecastHour]] = {}
    for hour in found.hours:
        days.setdefault(hour.at[:10], []).append(hour)
    rows = [_day_row(day, hours) for day, hours in days.items()]
    return _table("Each day", ["day", "arrivals", "fewest consumers", "most consumers", "at", "if high"], rows)


def _day_row(day: str, hours: list[ForecastHour]) -> list[str]:
    arrivals = f"{sum(hour.arrivals for hour in hours):,.0f}"
    needed = [hour.consumers for hour in hours if hour.consumers is not None]
    if len(needed) < len(hours):
        return [day, arrivals, "", "none is enough", "", ""]
    top = max(hours, key=lambda hour: hour.consumers or 0)
    high = max((hour.consumers_high or 0 for hour in hours), default=0)
    return [day, arrivals, f"{min(needed):,}", f"{max(needed):,}", top.at[11:16], f"{high:,}"]


def _tenants_table(tenants: Sequence[TenantForecast]) -> str:
    """Return the largest tenants, and all others as one row."""
    shown, others = tenants[:TENANTS_SHOWN], tenants[TENANTS_SHOWN:]
    rows = [_tenant_row(one.tenant, one.arrivals, one.before) for one in shown]
    if others:
        sums = sum(one.arrivals for one in others), sum(one.before for one in others)
        rows.append(_tenant_row(f"{len(others):,} others", *sums))
    return _table("Tenants", ["tenant", "expected", "as long before", "change"], rows) if rows else ""


def _tenant_row(name: str, expected: float, before: float) -> list[str]:
    change = f"{round(expected / before - 1, 2) + 0.0:+.0%}" if before else "new"  # never -0 %
    return [name, f"{expected:,.0f}", f"{before:,.0f}", change]


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


# ------------------------------------------------------------------------------------------------------------- as plots


def _arrivals_plot(found: QueueForecast) -> str:
    figure = go.Figure()
    figure.add_scatter(
        name="came",
        x=[_time(at_ms) for at_ms, _ in found.past],
        y=[count for _, count in found.past],
        line_color=_ACTUAL,
    )
    times = [_time(hour.at_ms) for hour in found.hours]
    if times:
        figure.add_scatter(
            name="four of five hours are expected here",
            x=[*times, *times[::-1]],
            y=[*(hour.high for hour in found.hours), *(hour.low for hour in found.hours[::-1])],
            fill="toself",
            fillcolor=_BAND,
            line_width=0,
            hoverinfo="skip",
        )
        figure.add_scatter(name="expected", x=times, y=[hour.arrivals for hour in found.hours], line_color=_EXPECTED)
    return _drawn(figure, "Arrivals by hour", "messages an hour")


def _waits_plot(found: QueueForecast, place: int) -> str:
    target = target_of(found.targets[place])
    values = [hour.values[place] / 1000 for hour in found.hours]
    figure = go.Figure()
    figure.add_bar(
        name=f"with {found.consumers_now} consumers",
        x=[_time(hour.at_ms) for hour in found.hours],
        y=values,
        marker_color=[_BAD if value * 1000 > target.bound else _GOOD for value in values],
    )
    figure.add_hline(y=target.bound / 1000, line_dash="dash", line_color=_BAD)
    return _drawn(figure, f"{target.text} with {found.consumers_now} consumers", "seconds")


def _consumers_plot(found: QueueForecast) -> str:
    times = [_time(hour.at_ms) for hour in found.hours]
    figure = go.Figure()
    lines = (("if high", "consumers_high", _HIGH, "dot"), ("needed", "consumers", _EXPECTED, "solid"))
    for name, field, colour, dash in lines:
        values = [getattr(hour, field) for hour in found.hours]
        figure.add_scatter(name=name, x=times, y=values, line={"shape": "hv", "color": colour, "dash": dash})
    if found.consumers_now is not None:
        today = {"annotation_text": "today", "annotation_position": "right"}  # next to the plot, clear of its lines
        figure.add_hline(y=found.consumers_now, line_dash="dash", line_color=_ACTUAL, **today)
    return _drawn(figure, "Consumers needed in each hour", "consumers")


def _drawn(figure: go.Figure, title: str, unit: str) -> str:
    figure.update_layout(title=escape(title), template="plotly_white", legend_orientation="h", legend_y=-0.2)
    figure.update_xaxes(type="date")
    figure.update_yaxes(title=unit, rangemode="tozero")
    return str(to_html(figure, full_html=False, include_plotlyjs=False, default_height="24rem"))


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
