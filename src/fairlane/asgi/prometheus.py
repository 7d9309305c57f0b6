"""The statistics of a gate for Prometheus. Needs the extra ``fairlane[prometheus]``."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairlane.asgi.gate import FairGate
from fairlane.asgi.statistics import GateStats
from fairlane.scheduler.prometheus import StatisticsCollector


class GateCollector(StatisticsCollector):
    """Reads the statistics of a gate at each scrape, from any thread: ``REGISTRY.register(GateCollector(gate))``."""

    def __init__(self, gate: FairGate, *, namespace: str = "fairlane_gate", keys_max: int = 20) -> None:
        """Create a collector for a gate.

        Args:
            gate: the gate.
            namespace: the prefix of all series names.
            keys_max: how many keys have series of their own.
        """
        super().__init__(namespace=namespace, noun="Requests", keys_max=keys_max)
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        stats = self._gate.stats()
        yield from self.families(stats)
        yield from self._slots(stats)
        refused = CounterMetricFamily(
            self.named("refused"), "Requests answered with an error, by code", labels=["code"]
        )
        for code, count in stats.refused.items():
            refused.add_metric([code], count)
        yield refused

    def _slots(self, stats: GateStats) -> Iterator[Metric]:
        yield GaugeMetricFamily(self.named("in_flight"), "Requests that run", value=stats.in_flight)
        yield GaugeMetricFamily(self.named("in_flight_max"), "Limit on running requests", value=stats.in_flight_max)
        yield CounterMetricFamily(self.named("finished"), "Requests that have finished", value=stats.finished)
