"""Spinning: who expects an answer or a request within a moment stays awake instead of sleeping.

A core that sleeps is woken in 20 to 50 µs, and a lone call wakes one three or four times. So where one call is in
flight, its client asks the socket again and again for at most ``SPIN_S``, and a server that has just answered a lone
request expects the next one as long. Each time they let other threads go first that wait for the core.

Spinning that brings nothing is soon given up: after ``_FRUITLESS_MAX`` times in a row, the next ``_PAUSE`` occasions
pass without. So a process spins at most a ninth of the time if it waits for longer each time. Where only one core may
be used there is none, since the other side needs it.

It is off unless ``FAIRLANE_SPIN=on`` asks for it: it gains where cores sleep, and costs where others need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final

SPIN_S: Final = 0.0004
_FRUITLESS_MAX: Final = 8
_PAUSE: Final = 64
_CORES_MIN: Final = 2
_ON: Final = frozenset(("1", "true", "yes", "on"))
VARIABLE: Final = "FAIRLANE_SPIN"


def may_spin(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment asks this process to spin, and it has the cores for it."""
    return environ.get(VARIABLE, "").lower() in _ON and has_cores()


def has_cores() -> bool:
    """Return whether this process may use two cores; False where the system does not say."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= _CORES_MIN


class SpinRecord:
    """Whether spinning has been worth it lately."""

    __slots__ = ("_fruitless", "_pause")

    def __init__(self) -> None:
        self._fruitless = self._pause = 0

    def is_worth_it(self) -> bool:
        """Return whether to spin now; after much fruitless spinning most occasions pass."""
        if self._pause:
            self._pause -= 1
            return False
        return True

    def note(self, *, is_fruitful: bool) -> None:
        """Note how spinning has ended."""
        self._fruitless = 0 if is_fruitful else self._fruitless + 1
        if self._fruitless >= _FRUITLESS_MAX:
            self._fruitless, self._pause = 0, _PAUSE


class LoopSpin:
    """Keeps an event loop awake for a moment: a callback that is called in each pass."""

    __slots__ = ("_call_soon", "_is_on", "_is_running", "_now", "_record", "_until")

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        is_on: bool | None = None,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        """Prepare.

        Args:
            call_soon: calls back in the next pass of the loop.
            is_on: whether to spin at all; as ``may_spin`` says by default.
            now: returns the time in seconds.
        """
        self._call_soon = call_soon
        self._is_on = may_spin() if is_on is None else is_on
        self._now = now
        self._record = SpinRecord()
        self._is_running = False
        self._until = 0.0

    def begin(self) -> None:
        """Stay awake for a moment from now on, if that has been worth it."""
        if not self._is_on or not self._record.is_worth_it():
            return
        self._until = self._now() + SPIN_S
        if not self._is_running:
            self._is_running = True
            self._call_soon(self._turn)

    def end(self) -> None:
        """Note that what was expected has come."""
        if self._until:
            self._until = 0.0
            self._record.note(is_fruitful=True)

    def _turn(self) -> None:
        if self._until and self._now() < self._until:
            os.sched_yield()
            self._call_soon(self._turn)
            return
        self._is_running = False
        if self._until:
            self._until = 0.0
            self._record.note(is_fruitful=False)
