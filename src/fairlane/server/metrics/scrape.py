"""What is counted, as Prometheus reads it. Labels are bounded: see ``metrics_fold`` and ``metrics_keys``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from fairlane import __version__
from fairlane.cluster.groups import Looking
from fairlane.errors import QueueNotFound
from fairlane.model.message import Key
from fairlane.model.names import is_dlq
from fairlane.model.views import QueueView
from fairlane.server.metrics.broker import of_broker
from fairlane.server.metrics.families import Exemplar, Family, Sample, Sums, labelled, of_histogram, single
from fairlane.server.metrics.fold import OTHERS, MetricsFold, QueueCounts
from fairlane.server.metrics.keys import CONSIDERED_MAX, KeyLabels, KeyRow

if TYPE_CHECKING:
    from fairlane.server.doors import Tally

QUEUES_MAX: Final = 200
KEYS_MAX: Final = 10
_KEY_LABELS_MAX: Final = 1_000
"""Keys of so many queues are told that there are no more labels of keys than this."""
WAIT_REASONS: Final = ("turn", "throttled", "capped", "paused", "delayed")
_GAUGES: Final = (
    ("waiting", "Messages that are not leased."),
    ("leased", "Messages that are leased."),
    ("size", "Bytes of payload."),
    ("dead", "Dead letters of the queue."),
    ("consumers", "Consumers that stay."),
    ("waiters", "Consumers that wait."),
    ("claimed", "Messages that registered consumers have claimed."),
    ("staged", "Messages that wait for their batch to be published."),
    ("is_paused", "Whether the queue is paused."),
)
_NAMES: Final = {"size": "bytes", "is_paused": "paused"}


class Metrics:
    """Everything that a server counts for metrics, beside the tally of its doors."""

    def __init__(self, broker: Looking, *, queues_max: int = QUEUES_MAX, keys_max: int = KEYS_MAX) -> None:
        self._broker = broker
        self._queues_max = queues_max
        self._keys_max = keys_max
        self._labels: dict[str, KeyLabels] = {}
        self._exemplars: dict[str, dict[int, Exemplar]] = {}
        self.fold = MetricsFold(broker.waited, queues_max=queues_max, tells_keys=keys_max > 0)

    def note_exemplar(self, queue: str, exemplar: Exemplar) -> None:
        """Note a trace in which a message was delivered that had waited so many seconds."""
        waits = self.fold.of(queue).waits
        label = queue if queue in self.fold.queues else OTHERS
        at = next((at for at, bound in enumerate(waits.bounds) if exemplar.value <= bound), len(waits.bounds))
        self._exemplars.setdefault(label, {})[at] = exemplar

    async def families(self, tally: Tally) -> list[Family]:
        """Return all metrics, now."""
        broker = self._broker
        queues = await broker.queues()
        self._exemplars = {name: found for name, found in self._exemplars.items() if name in self.fold.queues}
        rows = await self._rows(queues, self.fold.take_served())
        return [
            *_of_doors(tally),
            *of_broker(broker.measured()),
            *_of_queues(queues, self._queues_max, broker.now_ms()),
            *_of_records(self.fold.queues, self._exemplars),
            *_of_keys(rows, self._labels),
        ]

    async def _rows(
        self, queues: list[QueueView], served: dict[str, tuple[dict[Key, int], int]]
    ) -> dict[str, tuple[QueueView, list[KeyRow]]]:
        """Return those keys that have labels, by queue, of the fullest queues."""
        if not self._keys_max:
            return {}
        named = [view for view in queues if not is_dlq(view.name)]
        named.sort(key=lambda view: -(view.waiting + view.leased))
        chosen = [view.name for view in named[: min(self._queues_max, _KEY_LABELS_MAX // self._keys_max)]]
        self._labels = {name: self._labels.get(name) or KeyLabels(self._keys_max) for name in chosen}
        found = {}
        for name in chosen:
            try:
                view, _ = await self._broker.look_at(name, keys_max=CONSIDERED_MAX)
            except QueueNotFound:
                continue  # it went while we looked at others
            fresh, others = served.get(name, ({}, 0))
            weight_of = partial(self._broker.weight_of, name)
            rows = self._labels[name].rows(view, Counter(fresh), others, weight_of, self._broker.now_ms())
            found[name] = (view, rows)
        return found


def _of_doors(tally: Tally) -> Iterator[Family]:
    yield Family("fairlane_info", "gauge", "The version of the server.", [Sample((("version", __version__),), 1)])
    calls = {(verb,): count for verb, count in tally.calls.items()}
    yield Family("fairlane_calls_total", "counter", "Calls by verb.", labelled(("verb",), calls))
    errors = {(code,): count for code, count in tally.errors.items()}
    yield Family("fairlane_errors_total", "counter", "Refused calls by code.", labelled(("code",), errors))
    yield Family(
        "fairlane_streamed_total", "counter", "Messages sent to channels and subscriptions.", single(tally.delivered)
    )
    yield Family("fairlane_streams", "gauge", "Open connections of the stream.", single(tally.streams))
    yield Family("fairlane_subscriptions", "gauge", "Open HTTP subscriptions.", single(tally.subscriptions))


def _of_queues(queues: list[QueueView], queues_max: int, now_ms: int) -> Iterator[Family]:
    yield Family("fairlane_queues", "gauge", "Queues, those of dead letters included.", single(len(queues)))
    ranked = sorted(queues, key=lambda queue: -(queue.waiting + queue.leased))
    for field, told in _GAUGES:
        values: Sums = defaultdict(float)
        for at, queue in enumerate(ranked):
            values[(queue.name if at < queues_max else OTHERS,)] += int(getattr(queue, field))
        yield Family(f"fairlane_queue_{_NAMES.get(field, field)}", "gauge", told, labelled(("queue",), values))
    ages = {
        (queue.name,): max(0, now_ms - queue.oldest_ms) / 1000
        for queue in ranked[:queues_max]
        if queue.oldest_ms is not None
    }
    told = "Age of the oldest message, leased or not."
    yield Family("fairlane_queue_oldest_seconds", "gauge", told, labelled(("queue",), ages))


def _of_records(queues: Mapping[str, QueueCounts], exemplars: Mapping[str, dict[int, Exemplar]]) -> Iterator[Family]:
    events = {(queue, *event): count for queue, counts in queues.items() for event, count in _events(counts)}
    yield Family(
        "fairlane_messages_total",
        "counter",
        "Messages by what happened to them, and why.",
        labelled(("queue", "event", "reason"), events),
    )
    sizes = {(queue,): counts.size for queue, counts in queues.items()}
    yield Family("fairlane_enqueued_bytes_total", "counter", "Bytes of payload enqueued.", labelled(("queue",), sizes))
    waits = [
        sample
        for queue, counts in sorted(queues.items())
        if counts.waits.count
        for sample in of_histogram(counts.waits, (("queue", queue),), exemplars.get(queue))
    ]
    told = "How long messages waited from when they could go until they were handed out."
    yield Family("fairlane_delivery_wait_seconds", "histogram", told, waits)
    reasons = {
        (queue, reason): getattr(counts, f"{reason}_ms") / 1000
        for queue, counts in queues.items()
        for reason in WAIT_REASONS
    }
    yield Family(
        "fairlane_wait_seconds_total",
        "counter",
        "How long messages waited that were handed out, by what for.",
        labelled(("queue", "reason"), reasons),
    )


def _events(counts: QueueCounts) -> Iterator[tuple[tuple[str, str], int]]:
    yield ("enqueued", ""), counts.enqueued
    yield ("leased", ""), counts.leased
    yield ("acked", ""), counts.acked
    yield from counts.events.items()


def _of_keys(found: Mapping[str, tuple[QueueView, list[KeyRow]]], labels: Mapping[str, KeyLabels]) -> Iterator[Family]:
    active = {(queue,): view.active_keys or 0 for queue, (view, _) in found.items()}
    yield Family("fairlane_queue_active_keys", "gauge", "Keys that have messages.", labelled(("queue",), active))
    served: Sums = defaultdict(float)
    for queue, (_, rows) in found.items():
        for row in rows:
            served[queue, row.key] += row.served
        served[queue, OTHERS] += labels[queue].others
    told = "Cost handed out by key; an estimate."
    yield Family("fairlane_key_served_total", "counter", told, labelled(("queue", "key"), served))
    for name, told, value_of in _KEY_GAUGES:
        values: Sums = defaultdict(float)
        for queue, (_, rows) in found.items():
            for row in rows:
                values[queue, row.key] += value_of(row)
        yield Family(name, "gauge", told, labelled(("queue", "key"), values))


def _p99_s(row: KeyRow) -> float:
    return 0.0 if row.view is None or row.view.wait_p99_ms is None else row.view.wait_p99_ms / 1000


def _seen(field: str) -> Callable[[KeyRow], float]:
    return lambda row: 0 if row.view is None else getattr(row.view, field)


_KEY_GAUGES: Final[tuple[tuple[str, str, Callable[[KeyRow], float]], ...]] = (
    ("fairlane_key_messages", "Messages of a key, leased or not.", _seen("messages")),
    ("fairlane_key_leased", "Messages of a key that are leased.", _seen("leased")),
    ("fairlane_key_weight", "The weight of a key.", _seen("weight")),
    ("fairlane_key_deficit", "What a key may still take of its turn.", _seen("deficit")),
    ("fairlane_key_wait_p99_seconds", "How long messages of a key waited of late.", _p99_s),
    ("fairlane_key_share_ratio", "The share of what was served that went to a key.", lambda row: row.share),
    ("fairlane_key_fair_share_ratio", "The share that would have been fair.", lambda row: row.fair_share),
)
