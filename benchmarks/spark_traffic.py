"""The traffic whose journals the benchmarks of the tables and of what-if read."""

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
"""All that a queue can do, in parts as they are usual."""
PLAIN: Final = Traffic(
    tenants=FULL.tenants,
    consumers=FULL.consumers,
    load=FULL.load,
    failing_part=0.0,
    poison_part=0.0,
    delayed_part=0.0,
)
"""As many tenants and consumers, with keys and costs alone."""
EVENTFUL: Final = replace(
    FULL, tenants=300, failing_part=0.05, poison_part=0.005, throttled_part=0.1, deadline_part=0.05
)
"""More of what tables tell of: failures, throttling, deadlines."""
