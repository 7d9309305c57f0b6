"""Throttles whose changes act on waiting requests at once."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.scheduler import Throttles


class GateThrottles(Throttles):
    """The throttles of a gate. Changes use the gate's clock, so ``now_ms`` is optional."""

    def __init__(self, *, begin_change: Callable[[], int], end_change: Callable[[], None]) -> None:
        super().__init__()
        self._begin_change = begin_change
        self._end_change = end_change

    def set(
        self,
        name: str,
        *,
        rate: float,
        burst: float | None = None,
        tokens: float | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Set or change a throttle; see ``Throttles.set``."""
        present_ms = self._begin_change()
        super().set(name, rate=rate, burst=burst, tokens=tokens, now_ms=present_ms if now_ms is None else now_ms)
        self._end_change()

    def remove(self, name: str, *, now_ms: int | None = None) -> bool:
        """Remove a throttle; see ``Throttles.remove``."""
        present_ms = self._begin_change()
        was_there = super().remove(name, now_ms=present_ms if now_ms is None else now_ms)
        self._end_change()
        return was_there
