"""A scheduler's statistics for Prometheus. Needs the extra ``fairlane[prometheus]``."""

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
    "dropped": "Tasks pushed out by a newcomer",
    "expired": "Tasks past their deadline",
    "cancelled": "Tasks taken back",
    "cost": "Cost handed out",
}


class SchedulerCollector(Collector):
    """Reads a scheduler's statistics whenever Prometheus asks: ``REGISTRY.register(SchedulerCollector(scheduler))``.

    The keys that were handed out most have series of their own, and all are in the totals, so that the number of series
    stays bounded however many tenants there are. The names of a path are joined by ``/``.
    """

    def __init__(self, scheduler: FrontEnd[Any], *, namespace: str = "fairlane_scheduler", keys_max: int = 20) -> None:
        """Prepare to read a scheduler.

        Args:
            scheduler: a ``Scheduler`` or ``AsyncScheduler``.
            namespace: what the names of all series begin with.
            keys_max: how many keys have series of their own.
        """
        self._scheduler = scheduler
        self._namespace = namespace
        self._keys_max = keys_max

    def collect(self) -> Iterator[Metric]:
        """Yield the series as they are now."""
        stats = self._scheduler.stats()
        for happening in Happening:
            counted = happening.name.lower()
            name = f"{self._namespace}_{counted}"
            yield CounterMetricFamily(name, _HELP[counted], value=getattr(stats.total, counted))
        yield GaugeMetricFamily(f"{self._namespace}_waiting", "Tasks waiting", value=stats.total.waiting)
        if stats.waiting_max is not None:
            yield GaugeMetricFamily(f"{self._namespace}_waiting_max", "Most that may wait", value=stats.waiting_max)
        yield self._wait_histogram(stats.total.wait)
        yield from self._by_key(stats)

    def _wait_histogram(self, wait: WaitTimes) -> Metric:
        buckets = [(str(bound), wait.count_up_to(round(bound * _SECOND_NS))) for bound in _BOUNDS_SECONDS]
        return HistogramMetricFamily(
            f"{self._namespace}_wait_seconds",
            "How long tasks waited",
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
