"""The statistics of schedulers for Prometheus. Needs the extra ``fairlane[prometheus]``."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    "enqueued": "{} accepted",
    "dequeued": "{} handed out",
    "rejected": "{} refused because of a limit",
    "dropped": "{} dropped for a newer one",
    "expired": "{} that passed their deadline",
    "cancelled": "{} cancelled by the caller",
    "cost": "Total cost of {}",
    "waiting": "{} waiting",
    "wait_seconds": "Time that {} waited before they were handed out",
}


class StatisticsCollector(Collector, ABC):
    """Reads statistics at each scrape.

    Only the busiest keys have series of their own, so the number of series is bounded for any number of tenants. All
    keys count towards the totals. The names of a path are joined with ``/``.
    """

    def __init__(self, *, namespace: str, noun: str, keys_max: int) -> None:
        """Create a collector.

        Args:
            namespace: the prefix of all series names.
            noun: what is counted, such as ``Tasks``.
            keys_max: how many keys have series of their own.
        """
        self._namespace = namespace
        self._noun = noun
        self._keys_max = keys_max

    @abstractmethod
    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""

    def families(self, stats: Statistics) -> Iterator[Metric]:
        """Yield counters, gauges and histograms of wait times, in total and by key."""
        for happening in Happening:
            counted = happening.name.lower()
            yield CounterMetricFamily(self.named(counted), self._help(counted), value=getattr(stats.total, counted))
        yield GaugeMetricFamily(self.named("waiting"), self._help("waiting"), value=stats.total.waiting)
        if stats.waiting_max is not None:
            limit = f"Limit on waiting {self._noun.lower()}"
            yield GaugeMetricFamily(self.named("waiting_max"), limit, value=stats.waiting_max)
        waits = HistogramMetricFamily(self.named("wait_seconds"), self._help("wait_seconds"))
        _add_waits(waits, [], stats.total.wait)
        yield waits
        yield from self._by_key(stats.top_keys(self._keys_max))

    def named(self, name: str) -> str:
        """Return the name of a series."""
        return f"{self._namespace}_{name}"

    def _help(self, counted: str) -> str:
        text = _HELP[counted]
        return text.format(self._noun if text.startswith("{}") else self._noun.lower())

    def _by_key(self, top: list[tuple[Key, KeyCounts]]) -> Iterator[Metric]:
        for counted in _COUNTED_BY_KEY:
            family = CounterMetricFamily(self.named(f"key_{counted}"), f"{self._help(counted)}, by key", labels=["key"])
            _add(family, top, counted)
            yield family
        waiting = GaugeMetricFamily(self.named("key_waiting"), f"{self._help('waiting')}, by key", labels=["key"])
        _add(waiting, top, "waiting")
        yield waiting
        help_text = f"{self._help('wait_seconds')}, by key"
        waits = HistogramMetricFamily(self.named("key_wait_seconds"), help_text, labels=["key"])
        for key, counts in top:
            _add_waits(waits, [_label(key)], counts.wait)
        yield waits


class SchedulerCollector(StatisticsCollector):
    """Reads the statistics of a scheduler at each scrape: ``REGISTRY.register(SchedulerCollector(scheduler))``."""

    def __init__(self, scheduler: FrontEnd[Any], *, namespace: str = "fairlane_scheduler", keys_max: int = 20) -> None:
        """Create a collector for a scheduler.

        Args:
            scheduler: a ``Scheduler`` or ``AsyncScheduler``.
            namespace: the prefix of all series names.
            keys_max: how many keys have series of their own.
        """
        super().__init__(namespace=namespace, noun="Tasks", keys_max=keys_max)
        self._scheduler = scheduler

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        yield from self.families(self._scheduler.stats())


def _add(family: CounterMetricFamily | GaugeMetricFamily, top: list[tuple[Key, KeyCounts]], name: str) -> None:
    for key, counts in top:
        family.add_metric([_label(key)], getattr(counts, name))


def _add_waits(family: HistogramMetricFamily, labels: list[str], wait: WaitTimes) -> None:
    buckets = [(str(bound), wait.count_up_to(round(bound * _SECOND_NS))) for bound in _BOUNDS_SECONDS]
    family.add_metric(labels, buckets=[*buckets, ("+Inf", wait.count)], sum_value=wait.sum_ns / _SECOND_NS)


def _label(key: Key) -> str:
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in path_of(key))
