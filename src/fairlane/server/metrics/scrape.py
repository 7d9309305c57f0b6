"""All metrics of a server, collected when Prometheus scrapes it.

The number of labels is bounded, whatever tenants do: see ``fold`` for queues and ``keys`` for fairness keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from fairlane import __version__
from fairlane.errors import FullError, QueueNotFound
from fairlane.gateway.protocol import Observed
from fairlane.model.message import Key
from fairlane.model.names import is_dlq
from fairlane.model.views import QueueView
from fairlane.server.connections import REASONS, Connections
from fairlane.server.metrics.broker import broker_families
from fairlane.server.metrics.calls import CallCounts
from fairlane.server.metrics.families import OTHERS, Exemplar, Family, Sums, by, histogram_samples, labelled, single
from fairlane.server.metrics.fold import MetricsFold, QueueCounts
from fairlane.server.metrics.keys import CONSIDERED_MAX, KeyLabels, KeyRow
from fairlane.server.metrics.process import process_families
from fairlane.server.watchdog import CAUSES, Watchdog

QUEUES_MAX: Final = 200
KEYS_MAX: Final = 10
_KEY_LABELS_MAX: Final = 1_000
"""The limit on key labels of all queues together. It decides how many queues get key metrics."""
_LIMIT_CODES: Final = tuple(kind.code for kind in FullError.__subclasses__())
WAIT_REASONS: Final = ("turn", "throttled", "capped", "paused", "delayed")
_QUEUE_GAUGES: Final = (
    ("waiting", "waiting", "Messages that are not leased, including delayed ones."),
    ("leased", "leased", "Messages in flight."),
    ("size", "bytes", "Payload bytes."),
    ("dead", "dead", "Dead letters."),
    ("consumers", "consumers", "Attached streaming consumers."),
    ("waiters", "waiters", "Waiting long-poll consumers."),
    ("claimed", "claimed", "Messages claimed by registered consumers."),
    ("staged", "staged", "Messages in batches that are not published yet."),
    ("is_paused", "paused", "1 while the queue is paused."),
)
"""Field of a queue's view, name of the metric, description."""


class Metrics:
    """Everything a server counts for metrics, except the calls of its interfaces."""

    def __init__(
        self, broker: Observed, *, watchdog: Watchdog, queues_max: int = QUEUES_MAX, keys_max: int = KEYS_MAX
    ) -> None:
        self._broker = broker
        self._watchdog = watchdog
        self._queues_max = queues_max
        self._keys_max = keys_max
        self._labels: dict[str, KeyLabels] = {}
        self._exemplars: dict[str, dict[int, Exemplar]] = {}
        self.fold = MetricsFold(broker.waited, queues_max=queues_max, counts_keys=keys_max > 0)

    def note_exemplar(self, queue: str, exemplar: Exemplar) -> None:
        """Remember a trace in which a message was delivered; the exemplar's value is its wait in seconds."""
        waits = self.fold.of(queue).waits
        label = queue if queue in self.fold.queues else OTHERS
        at = next((at for at, bound in enumerate(waits.bounds) if exemplar.value <= bound), len(waits.bounds))
        self._exemplars.setdefault(label, {})[at] = exemplar

    async def families(self, counts: CallCounts, connections: Connections) -> list[Family]:
        """Return all metrics as of now."""
        broker = self._broker
        queues = await broker.queues()
        self._exemplars = {name: found for name, found in self._exemplars.items() if name in self.fold.queues}
        rows = await self._rows(queues, self.fold.take_served())
        return [
            *process_families(),
            *_call_families(counts),
            *_connection_families(connections),
            *broker_families(broker.measured()),
            *_loop_families(self._watchdog),
            *_queue_families(queues, self._queues_max, broker.now_ms()),
            *_record_families(self.fold.queues, self._exemplars),
            *_key_families(rows, self._labels),
        ]

    async def _rows(
        self, queues: list[QueueView], served: dict[str, tuple[dict[Key, int], int]]
    ) -> dict[str, tuple[QueueView, list[KeyRow]]]:
        """Return the labelled keys of the queues with the largest backlogs, by queue."""
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
                continue  # deleted while this scrape looked at other queues
            fresh, others = served.get(name, ({}, 0))
            weight_of = partial(self._broker.weight_of, name)
            rows = self._labels[name].rows(view, Counter(fresh), others, weight_of, self._broker.now_ms())
            found[name] = (view, rows)
        return found


def _loop_families(watchdog: Watchdog) -> Iterator[Family]:
    none = dict.fromkeys(CAUSES, 0.0)  # so that the first stall of a cause is an increase
    stalls, stalled_s = by("cause", none | watchdog.stalls), by("cause", none | watchdog.stalled_s)
    longest = single(watchdog.longest_s)
    description = "Times the event loop was blocked for more than 50 ms, by cause."
    yield Family("fairlane_loop_stalls_total", "counter", description, stalls)
    yield Family("fairlane_loop_stalled_seconds_total", "counter", "Duration of these stalls.", stalled_s)
    yield Family("fairlane_loop_longest_stall_seconds", "gauge", "The longest of these stalls.", longest)


def _call_families(counts: CallCounts) -> Iterator[Family]:
    yield Family("fairlane_info", "gauge", "Always 1; the label has the version.", by("version", {__version__: 1}))
    yield Family("fairlane_calls_total", "counter", "Calls by verb.", by("verb", counts.calls))
    yield Family("fairlane_errors_total", "counter", "Refused requests by error code.", by("code", counts.errors))
    description = "Requests without a valid API key where one is required."
    yield Family("fairlane_auth_failures_total", "counter", description, single(counts.auth_failures))
    description = "Messages sent to streaming consumers and HTTP subscriptions."
    yield Family("fairlane_streamed_total", "counter", description, single(counts.delivered))
    yield Family("fairlane_streams", "gauge", "Open stream connections.", single(counts.streams))
    yield Family("fairlane_subscriptions", "gauge", "Open HTTP subscriptions.", single(counts.subscriptions))


def _connection_families(connections: Connections) -> Iterator[Family]:
    description = "Open connections over HTTP and the stream."
    yield Family("fairlane_connections", "gauge", description, single(len(connections)))
    closed = {reason: connections.closed[reason] for reason in REASONS}
    description = "Connections that the server refused or closed, by reason."
    yield Family("fairlane_connections_closed_total", "counter", description, by("reason", closed))


def _queue_families(queues: list[QueueView], queues_max: int, now_ms: int) -> Iterator[Family]:
    yield Family("fairlane_queues", "gauge", "Queues, including dead-letter queues.", single(len(queues)))
    ranked = sorted(queues, key=lambda queue: -(queue.waiting + queue.leased))
    for field, name, description in _QUEUE_GAUGES:
        values: Counter[str] = Counter()
        for at, queue in enumerate(ranked):
            values[queue.name if at < queues_max else OTHERS] += int(getattr(queue, field))
        yield Family(f"fairlane_queue_{name}", "gauge", description, by("queue", values))
    ages = {
        queue.name: max(0, now_ms - queue.oldest_ms) / 1000
        for queue in ranked[:queues_max]
        if queue.oldest_ms is not None
    }
    description = "Age of the oldest message, leased or not."
    yield Family("fairlane_queue_oldest_seconds", "gauge", description, by("queue", ages))


def _record_families(
    queues: Mapping[str, QueueCounts], exemplars: Mapping[str, dict[int, Exemplar]]
) -> Iterator[Family]:
    events = {(queue, *event): count for queue, counts in queues.items() for event, count in _events(counts)}
    labels = ("queue", "event", "reason")
    yield Family("fairlane_messages_total", "counter", "Messages by event and reason.", labelled(labels, events))
    refused = {(queue, code): counts.refused[code] for queue, counts in queues.items() for code in _LIMIT_CODES}
    description = "Messages refused because of a limit, by error code."
    yield Family("fairlane_refused_total", "counter", description, labelled(("queue", "code"), refused))
    ticks = {(queue, outcome): count for queue, counts in queues.items() for outcome, count in counts.ticks.items()}
    description = "Ticks of schedules, by outcome."
    yield Family("fairlane_schedule_ticks_total", "counter", description, labelled(("queue", "outcome"), ticks))
    sizes = {queue: counts.size for queue, counts in queues.items()}
    yield Family("fairlane_enqueued_bytes_total", "counter", "Payload bytes enqueued.", by("queue", sizes))
    yield from _wait_families(queues, exemplars)


def _wait_families(queues: Mapping[str, QueueCounts], exemplars: Mapping[str, dict[int, Exemplar]]) -> Iterator[Family]:
    waits = [
        sample
        for queue, counts in sorted(queues.items())
        if counts.waits.count
        for sample in histogram_samples(counts.waits, (("queue", queue),), exemplars.get(queue))
    ]
    description = "Time from when a message became due until it was leased."
    yield Family("fairlane_delivery_wait_seconds", "histogram", description, waits)
    reasons = {
        (queue, reason): getattr(counts, f"{reason}_ms") / 1000
        for queue, counts in queues.items()
        for reason in WAIT_REASONS
    }
    description = "Time that leased messages had waited, by reason."
    yield Family("fairlane_wait_seconds_total", "counter", description, labelled(("queue", "reason"), reasons))


def _events(counts: QueueCounts) -> Iterator[tuple[tuple[str, str], int]]:
    yield ("enqueued", ""), counts.enqueued
    yield ("leased", ""), counts.leased
    yield ("acked", ""), counts.acked
    yield from counts.events.items()


def _key_families(
    found: Mapping[str, tuple[QueueView, list[KeyRow]]], labels: Mapping[str, KeyLabels]
) -> Iterator[Family]:
    active = {queue: view.active_keys or 0 for queue, (view, _) in found.items()}
    yield Family("fairlane_queue_active_keys", "gauge", "Keys that have messages.", by("queue", active))
    served: Sums = defaultdict(float)
    for queue, (_, rows) in found.items():
        for row in rows:
            served[queue, row.key] += row.served
        served[queue, OTHERS] += labels[queue].others
    description = "Cost of leased messages by key; an estimate."
    yield Family("fairlane_key_served_total", "counter", description, labelled(("queue", "key"), served))
    for name, description, value_of in _KEY_GAUGES:
        values: Sums = defaultdict(float)
        for queue, (_, rows) in found.items():
            for row in rows:
                values[queue, row.key] += value_of(row)
        yield Family(name, "gauge", description, labelled(("queue", "key"), values))


def _p99_s(row: KeyRow) -> float:
    return 0.0 if row.view is None or row.view.wait_p99_ms is None else row.view.wait_p99_ms / 1000


def _field(field: str) -> Callable[[KeyRow], float]:
    return lambda row: 0 if row.view is None else int(getattr(row.view, field))


_KEY_GAUGES: Final[tuple[tuple[str, str, Callable[[KeyRow], float]], ...]] = (
    ("fairlane_key_messages", "Messages of the key, leased or not.", _field("messages")),
    ("fairlane_key_leased", "Messages of the key in flight.", _field("leased")),
    ("fairlane_key_paused", "1 while the key or one above it is paused.", _field("is_paused")),
    ("fairlane_key_weight", "Weight of the key.", _field("weight")),
    ("fairlane_key_deficit", "Deficit that the key may still spend in its turn.", _field("deficit")),
    ("fairlane_key_wait_p99_seconds", "Recent 99th percentile of the key's waits.", _p99_s),
    ("fairlane_key_share_ratio", "Share of the service that the key received.", lambda row: row.share),
    ("fairlane_key_entitled_share_ratio", "Share that the key was entitled to.", lambda row: row.entitled),
)
