"""A clock that can wait, for work that keeps to a rate or an interval."""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol


class Pace(Protocol):
    """A clock that can wait."""

    def now_s(self) -> float:
        """Return the current time."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemPace:
    """The clock of the system."""

    def now_s(self) -> float:
        """Return the current time."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait."""
        Event().wait(seconds)
