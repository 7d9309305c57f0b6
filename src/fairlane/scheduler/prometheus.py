"""The statistics of a scheduler for Prometheus. Needs the extra ``fairlane[prometheus]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlane.scheduler.frontend import FrontEnd
from fairlane.scheduler.item import Key, path_of
from fairlane.scheduler.statistics import Happening, KeyCounts, Statistics, WaitTimes

_BOUNDS_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_SECOND_NS = 1_000_000_000
_COUNTED_BY_KEY = ("enqueued", "dequeued", "rejected", "cost")
_HELP = {
    "enqueued": "Tasks accepted",
    "dequeued": "Tasks handed out",
    "rejected": "Tasks refused because of a limit",
    "dropped": "Tasks dropped for a newer task",
    "expired": "Tasks that passed their deadline",
    "cancelled": "Tasks cancelled by the caller",
    "cost": "Total cost of the tasks handed out",
}


class SchedulerCollector(Collector):
    """Reads the statistics of a scheduler at each scrape: ``REGISTRY.register(SchedulerCollector(scheduler))``.

    Only the busiest keys have series of their own, so the number of series is bounded for any number of tenants. All
    keys count towards the totals. The names of a path are joined with ``/``.
    """

    def __init__(self, scheduler: FrontEnd[Any], *, namespace: str = "fairlane_scheduler", keys_max: int = 20) -> None:
        """Create a collector for a scheduler.

        Args:
            scheduler: a ``Scheduler`` or ``AsyncScheduler``.
            namespace: the prefix of all series names.
            keys_max: how many keys have series of their own.
        """
        self._scheduler = scheduler
        self._namespace = namespace
        self._keys_max = keys_max

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        stats = self._scheduler.stats()
        for happening in Happening:
            counted = happening.name.lower()
            name = f"{self._namespace}_{counted}"
            yield CounterMetricFamily(name, _HELP[counted], value=getattr(stats.total, counted))
        yield GaugeMetricFamily(f"{self._namespace}_waiting", "Tasks waiting", value=stats.total.waiting)
        if stats.waiting_max is not None:
            yield GaugeMetricFamily(f"{self._namespace}_waiting_max", "Limit on waiting tasks", value=stats.waiting_max)
        yield self._wait_histogram(stats.total.wait)
        yield from self._by_key(stats)

    def _wait_histogram(self, wait: WaitTimes) -> Metric:
        buckets = [(str(bound), wait.count_up_to(round(bound * _SECOND_NS))) for bound in _BOUNDS_SECONDS]
        return HistogramMetricFamily(
            f"{self._namespace}_wait_seconds",
            "Time that tasks waited before they were handed out",
            buckets=[*buckets, ("+Inf", wait.count)],
            sum_value=wait.sum_ns / _SECOND_NS,
        )

    def _by_key(self, stats: Statistics) -> Iterator[Metric]:
        top = stats.top_keys(self._keys_max)
        for counted in _COUNTED_BY_KEY:
            name = f"{self._namespace}_key_{counted}"
            family = CounterMetricFamily(name, f"{_HELP[counted]}, by key", labels=["key"])
            _add(family, top, counted)
            yield family
        waiting = GaugeMetricFamily(f"{self._namespace}_key_waiting", "Tasks waiting, by key", labels=["key"])
        _add(waiting, top, "waiting")
        yield waiting


def _add(family: CounterMetricFamily | GaugeMetricFamily, top: list[tuple[Key, KeyCounts]], name: str) -> None:
    for key, counts in top:
        label = "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in path_of(key))
        family.add_metric([label], getattr(counts, name))
