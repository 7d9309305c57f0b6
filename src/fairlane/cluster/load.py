"""The load of each group, by the records that its commits write."""

from __future__ import annotations

import math
from typing import Final

from fairlane.cluster.groups import Groups

_SPAN_S: Final = 30.0
"""Rates are averaged over about this time, so that a short burst does not move a group."""


class GroupLoads:
    """Records per second of each group that is open here, as a moving average; 0 for a group that was just opened."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._sequences: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._looked_s: float | None = None

    def rates(self, now_s: float) -> dict[str, float]:
        """Return the rate of each group."""
        elapsed_s = None if self._looked_s is None else max(0.001, now_s - self._looked_s)
        self._looked_s = now_s
        rates: dict[str, float] = {}
        self._sequences = {group: at for group, at in self._sequences.items() if group in self._groups.names}
        for group, broker in self._groups.opened():
            sequence, rate = broker.sequence, 0.0
            if elapsed_s is not None and group in self._sequences:
                rate = (sequence - self._sequences[group]) / elapsed_s
            before = self._rates.get(group, rate)
            part = 1.0 - math.exp(-(elapsed_s or 0.0) / _SPAN_S)
            rates[group] = before + part * (rate - before)
            self._sequences[group] = sequence
        self._rates = rates
        return {group: round(rate, 1) for group, rate in rates.items()}

    def demand(self) -> dict[str, dict[str, int]]:
        """Return the weights of the queues that each throttle holds up, added up by throttle and group."""
        found: dict[str, dict[str, int]] = {}
        for group, broker in self._groups.opened():
            for throttle, weight in broker.throttle_demand().items():
                found.setdefault(throttle, {})[group] = weight
        return found
