"""A comparison as a self-contained page: how sure it is, numbers, and plots of the waits of each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fairlane.spark.whatif.accuracy import ERROR_MAX, ModelError
from fairlane.spark.whatif.comparison import Comparison
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures
from fairlane.spark.whatif.tasks import ORIGINAL_AT

try:
    import plotly.graph_objects as go
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs
except ImportError as error:
    raise ImportError("Plots need the package plotly: install fairlane[report].") from error

_KEYS_IN_PLOTS = 20
_KEYS_IN_TABLES = 100
_SCENARIOS_SHOWN = 8
"""The number of scenarios that are compared key by key; the summary has all."""
_MEASURES = (("wait_p50_ms", "Median wait"), ("wait_p99_ms", "99th percentile of waits"))
_COLOURS = ("#8a94a0", "#2a5d9c", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d")
"""The first is that of the original settings."""
_SECOND_MS, _MINUTE_MS = 1_000, 60_000
_LABELS_MAX = 30
"""With more bars than this, numbers would overlap; they are still shown under the pointer."""
_CHANGE, _CHANGE_MS = 0.1, 100
_CHANGED = f"<p>A key is better or worse if its p99 wait differs by over {_CHANGE:.0%} and {_CHANGE_MS} ms.</p>"
STYLE = """
:root{color-scheme:light;--ink:#1d2733;--faint:#5b6773;--line:#d9dee3}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:#fff;max-width:72rem;margin:0 auto;padding:1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem}p,li{color:var(--faint);max-width:50rem}.wide{overflow-x:auto}
.warning{color:#7a1f1f;background:#fdecec;border-left:4px solid #e45756;padding:.5rem 1rem}
table{border-collapse:collapse;font-size:.875rem;margin:1rem 0}caption{text-align:left;font-weight:600}
th,td{padding:.25rem .75rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;max-width:24rem}
"""


def page_of(found: Comparison, *, title: str = "What if") -> str:
    """Return a comparison as HTML, with its plots and the script that draws them inside."""
    parts = [f"<h1>{escape(title)}</h1>", "<p>The same messages under each scenario, replayed with a model of the"]
    parts.append(" consumers. Waits are from enqueue, or from the due time, to the first lease.</p>")
    for queue, error in zip(found.queues, found.errors, strict=True):
        parts.append(f"<h2>Queue {escape(queue)}</h2>")
        parts += [_accuracy(error), _notes(found, queue), _summary(found, queue)]
        parts += [_plot(found, queue, measure, words) for measure, words in _MEASURES]
        parts.append(_by_key(found, queue))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    script = f"<script>{get_plotlyjs()}</script>"
    return f'<!doctype html><html lang="en"><head>{head}{script}</head><body>{"".join(parts)}</body></html>'


def _accuracy(error: ModelError) -> str:
    waits = f"p99 {timespan(error.journal_p99_ms)} in the journal, {timespan(error.model_p99_ms)} in the model"
    worst = "" if error.worst_key is None else f" Worst key: {escape(error.worst_key)}, {error.worst:.0%}."
    told = f"Error of the model on this journal: {error.error:.0%} ({waits}).{worst}"
    if error.error <= ERROR_MAX:
        return f"<p>{told}</p>"
    return f'<p class="warning">{told} Above {ERROR_MAX:.0%} these forecasts are not reliable.</p>'


def _notes(found: Comparison, queue: str) -> str:
    facts = [f"Consumers in the journal: {_kind(kind)}." for kind in found.kinds_of(queue)]
    facts.append(f"Played by {found.played_by(queue)}.")
    for notes in found.notes:
        if notes.unknown.get(queue):
            facts.append(f"{notes.unknown[queue]:,} messages from before the journal begins are left out.")
        if notes.assumed and queue in notes.consumers:
            facts.append(f"{notes.assumed:,} attempts have no end in the journal and last as long as usual.")
    return f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in facts)}</ul>"


def _kind(kind: ConsumerKind) -> str:
    leases = "1 lease" if kind.holds == 1 else f"up to {kind.holds} leases"
    return f"up to {kind.most}, each with {leases}, {kind.works} at work at a time"


def _summary(found: Comparison, queue: str) -> str:
    columns = ["scenario", "messages", "p50", "p99", "longest", "throttled", "capped", "paused", "missed", "left"]
    rows = []
    original = found.of(ORIGINAL_AT, queue)
    for at, scenario in enumerate(found.scenarios):
        here = found.of(at, queue)
        one = here[ALL_KEYS]
        waits = [one.wait_p50_ms, one.wait_p99_ms, one.wait_max_ms, one.throttled_ms, one.capped_ms, one.paused_ms]
        keys = [f"{_shorter(original, here):,}", f"{_shorter(here, original):,}"]
        numbers = [f"{one.misses:,}", f"{one.left:,}"]
        rows.append([scenario.name, f"{one.messages:,}", *map(timespan, waits), *numbers, *keys])
    return _table("All keys together", [*columns, "keys better", "worse"], rows) + _CHANGED


def _shorter(before: dict[str, KeyMeasures], after: dict[str, KeyMeasures]) -> int:
    """Return how many keys have a p99 wait after that is clearly shorter than before."""
    pairs = [(one.wait_p99_ms, after[key].wait_p99_ms) for key, one in before.items() if key and key in after]
    return sum(old - new > max(_CHANGE_MS, _CHANGE * max(old, new)) for old, new in pairs)


def _by_key(found: Comparison, queue: str) -> str:
    shown = range(min(_SCENARIOS_SHOWN, len(found.scenarios)))
    measures = [found.of(at, queue) for at in shown]
    keys = _largest(measures[ORIGINAL_AT])
    rows = [
        [key, f"{measures[ORIGINAL_AT][key].messages:,}", *(_wait(here.get(key)) for here in measures)]
        for key in keys[:_KEYS_IN_TABLES]
    ]
    more = f" (the largest {_KEYS_IN_TABLES} of {len(keys):,})" if len(keys) > _KEYS_IN_TABLES else ""
    columns = ["key", "messages", *(found.scenarios[at].name for at in shown)]
    return _table(f"p99 wait of each key{more}", columns, rows)


def _largest(keys: dict[str, KeyMeasures]) -> list[str]:
    return sorted((key for key in keys if key != ALL_KEYS), key=lambda key: (-keys[key].messages, key))


def _wait(one: KeyMeasures | None) -> str:
    return "-" if one is None or not one.leased else timespan(one.wait_p99_ms)


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _plot(found: Comparison, queue: str, measure: str, words: str) -> str:
    """Return a plot of one measure, key by key, the largest first. Bars have numbers, and the axis begins at 0."""
    keys = [ALL_KEYS, *_largest(found.of(ORIGINAL_AT, queue))[:_KEYS_IN_PLOTS]]
    figure = go.Figure()
    highest = 0
    for at, scenario in enumerate(found.scenarios[:_SCENARIOS_SHOWN]):
        here = found.of(at, queue)
        values = [getattr(here[key], measure) if key in here else 0 for key in keys]
        highest = max(highest, *values)
        figure.add_bar(
            name=escape(scenario.name),
            x=[escape(key) or "all keys" for key in keys],
            y=[value / _SECOND_MS for value in values],
            text=[timespan(value) for value in values],
            marker_color=_COLOURS[at],
        )
    numbers = "outside" if len(keys) * len(figure.data) <= _LABELS_MAX else "none"
    figure.update_traces(hovertemplate="%{x}: %{text}<extra>%{fullData.name}</extra>", textposition=numbers)
    title = _title(found, queue, words)
    figure.update_layout(title=title, barmode="group", template="plotly_white", legend_orientation="h", legend_y=-0.3)
    figure.update_xaxes(type="category", tickangle=-30, automargin=True)
    # Where nothing waits at all, the axis would go below zero, and have no numbers that mean anything.
    top = highest / _SECOND_MS * 1.15 or 1.0
    figure.update_yaxes(title="seconds", range=[0, top], tickformat="~s" if top >= 1 else ".3~f")
    return str(to_html(figure, full_html=False, include_plotlyjs=False, default_height="28rem"))


def _title(found: Comparison, queue: str, words: str) -> str:
    count = len(found.of(ORIGINAL_AT, queue)) - 1
    return words if count <= _KEYS_IN_PLOTS else f"{words}, the {_KEYS_IN_PLOTS} largest keys of {count:,}"


def timespan(span_ms: int) -> str:
    """Return a timespan for people."""
    if span_ms < _SECOND_MS:
        return f"{span_ms} ms"
    return f"{span_ms / _SECOND_MS:.2f} s" if span_ms < _MINUTE_MS else f"{span_ms / _MINUTE_MS:.1f} min"
