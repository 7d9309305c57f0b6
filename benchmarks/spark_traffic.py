"""The traffic behind the journals of the table and what-if benchmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairlane.testing.traffic import Traffic

FULL: Final = Traffic(
    tenants=200,
    consumers=64,
    load=0.8,
    failing_part=0.01,
    high_part=0.01,
    throttles=("api", "db"),
    throttled_part=0.05,
    deadline_part=0.01,
)
"""Traffic that uses every feature, in usual proportions."""
PLAIN: Final = Traffic(
    tenants=FULL.tenants,
    consumers=FULL.consumers,
    load=FULL.load,
    failing_part=0.0,
    poison_part=0.0,
    delayed_part=0.0,
)
"""The same number of tenants and consumers, with keys and costs only."""
EVENTFUL: Final = replace(
    FULL, tenants=300, failing_part=0.05, poison_part=0.005, throttled_part=0.1, deadline_part=0.05
)
"""More failures, throttling and deadlines, which fill the tables."""
