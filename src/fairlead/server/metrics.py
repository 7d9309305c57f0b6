"""What is counted, as Prometheus reads it. Labels are bounded: verbs, codes, and the queues with the most messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.model.views import QueueView
from fairlead.server.doors import Tally

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
QUEUES_MAX: Final = 200
_OTHERS: Final = "_others"


def metrics_text(tally: Tally, queues: list[QueueView]) -> str:
    """Return all metrics."""
    lines: list[str] = []
    lines += _family("fairlead_calls_total", "counter", "Calls by verb.", _labelled("verb", tally.calls))
    lines += _family("fairlead_errors_total", "counter", "Refused calls by code.", _labelled("code", tally.errors))
    lines += _family(
        "fairlead_streamed_total", "counter", "Messages sent to channels and subscriptions.", [("", tally.delivered)]
    )
    lines += _family("fairlead_commits_total", "counter", "Commits of the store.", [("", tally.commits)])
    lines += _family("fairlead_streams", "gauge", "Open connections of the stream.", [("", tally.streams)])
    lines += _family("fairlead_subscriptions", "gauge", "Open HTTP subscriptions.", [("", tally.subscriptions)])
    lines += _family("fairlead_queues", "gauge", "Queues.", [("", len(queues))])
    for name, told, values in _by_queue(queues):
        lines += _family(f"fairlead_queue_{name}", "gauge", told, _labelled("queue", values))
    return "\n".join(lines) + "\n"


def _by_queue(queues: list[QueueView]) -> Iterable[tuple[str, str, Mapping[str, int]]]:
    ranked = sorted(queues, key=lambda queue: -(queue.waiting + queue.leased))
    shown, others = ranked[:QUEUES_MAX], ranked[QUEUES_MAX:]
    for name, told in (
        ("waiting", "Messages that are not leased."),
        ("leased", "Messages that are leased."),
        ("bytes", "Bytes of payload."),
        ("consumers", "Consumers that stay."),
        ("waiters", "Consumers that wait."),
    ):
        field = "size" if name == "bytes" else name
        values = {queue.name: int(getattr(queue, field)) for queue in shown}
        if others:
            values[_OTHERS] = sum(int(getattr(queue, field)) for queue in others)
        yield name, told, values


def _labelled(label: str, values: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(f'{{{label}="{name}"}}', value) for name, value in sorted(values.items())]


def _family(name: str, kind: str, told: str, samples: Iterable[tuple[str, int]]) -> list[str]:
    return [
        f"# HELP {name} {told}",
        f"# TYPE {name} {kind}",
        *(f"{name}{labels} {value}" for labels, value in samples),
    ]
