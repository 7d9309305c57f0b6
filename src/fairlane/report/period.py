"""What a report is about: some days, and one queue or all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from fairlane.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Which days and queues a report is about. Both days are part of it; None is the first or the last there is."""

    first_day: date | None = None
    last_day: date | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if self.first_day is not None and self.last_day is not None and self.first_day > self.last_day:
            raise InvalidArgument(f"The first day, {self.first_day}, is after the last, {self.last_day}.")
