"""A comparison as a self-contained page: waits of each key under the original settings and under the scenarios."""

from __future__ import annotations

from html import escape

from fairlane.spark.whatif.comparison import Comparison
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures
from fairlane.spark.whatif.tasks import ORIGINAL_AT

try:
    import plotly.graph_objects as go
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs
except ImportError as error:
    raise ImportError("Plots need the package plotly: install fairlane[report].") from error

_KEYS_MAX = 30
_MEASURES = (("wait_p50_ms", "median wait"), ("wait_p99_ms", "99th percentile"))
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}h1,h2{font-weight:600}"
)


def page_of(found: Comparison, *, title: str = "What if") -> str:
    """Return a comparison as HTML, with its plots and the script that draws them inside."""
    parts = [f"<h1>{escape(title)}</h1>", _listed(found)]
    for queue in found.queues:
        parts.append(f"<h2>Queue {escape(queue)}</h2>")
        for measure, words in _MEASURES:
            figure = _waits(found, queue, measure, words)
            parts.append(to_html(figure, full_html=False, include_plotlyjs=False, default_height="26rem"))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    script = f"<script>{get_plotlyjs()}</script>"
    return f'<!doctype html><html lang="en"><head>{head}{script}</head><body>{"".join(parts)}</body></html>'


def _listed(found: Comparison) -> str:
    names = "".join(f"<li>{escape(scenario.name)}</li>" for scenario in found.scenarios)
    return f"<p>The same messages under:</p><ol>{names}</ol>"


def _waits(found: Comparison, queue: str, measure: str, words: str) -> go.Figure:
    """Return a plot of one measure, key by key, the largest first."""
    original = found.of(ORIGINAL_AT, queue)
    keys = sorted((key for key in original if key != ALL_KEYS), key=lambda key: (-original[key].messages, key))
    keys = [ALL_KEYS, *keys[:_KEYS_MAX]]
    figure = go.Figure()
    for at, scenario in enumerate(found.scenarios):
        here = found.of(at, queue)
        figure.add_bar(
            name=scenario.name, x=[key or "all keys" for key in keys], y=[_seconds(here[k], measure) for k in keys]
        )
    figure.update_layout(
        title=words, barmode="group", yaxis_title="seconds", xaxis_type="category", template="plotly_white"
    )
    return figure


def _seconds(one: KeyMeasures, measure: str) -> float:
    return float(getattr(one, measure)) / 1000
