"""The calendar: when schedules fire. ``cronsim`` reads cron expressions, and ``zoneinfo`` knows time zones.

Nothing here knows what time it is, but the time zone database is a file that a new release may change. So the core,
which is pure, is handed instants, and asks nothing of the calendar.

``cronsim`` only goes forward from a local time. Where a clock is put back, a local time stands for two instants, so it
may name one that lies before the start; such ticks are passed over, since they are settled.
``docs/guides/schedules.md`` tells what happens where clocks are changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fairlane.core.ticks import interval_ticks
from fairlane.errors import InvalidArgument
from fairlane.model.limits import CRON_LENGTH_MAX
from fairlane.model.message import NEVER_MS
from fairlane.model.schedules import ScheduleSpec

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_ANY_MS: Final = 946_684_800_000  # the year 2000: whatever fires at all fires within the 50 years that are searched
_FIELDS: Final = "five fields (minute, hour, day of month, month, day of week), or six with seconds first"


class _Cron(CronSim):
    """``CronSim`` that is right about two rare changes of clocks: by less than an hour, and at midnight.

    ``CronSim`` goes to the hour or minute that it looks for in one leap of the time that passes, and expects clocks to
    show it then. So it loses ticks where clocks are changed by half an hour, as on Lord Howe Island. And it begins a
    day at midnight, which is not there on the days on which clocks go forward then, as in Beirut.
    """

    def advance_month(self) -> None:
        """Go to the next month that matches."""
        before = self.dt
        super().advance_month()
        if self.dt is not before:
            self._begin_day()

    def advance_day(self) -> bool:
        """Go to the next day that matches. Return whether that is another one."""
        has_moved = super().advance_day()
        if has_moved:
            self._begin_day()
        return has_moved

    def _begin_day(self) -> None:
        """Go to the first instant of a day: midnight, unless clocks skip it."""
        if self.dt.tzinfo is not None:
            self.dt = self.dt.astimezone(UTC).astimezone(self.dt.tzinfo)

    def advance_hour(self) -> bool:
        """Go to the next hour that matches. Return whether that is another one."""
        if self.dt.tzinfo in (None, UTC):
            return super().advance_hour()
        if self.dt.hour in self.hours:
            return False
        self.dt = self.dt.replace(minute=0, second=0)
        while self.dt.hour not in self.hours:
            self.tick(seconds=900)
            if self.dt.hour == self.dt.minute == 0:
                break  # another day, which has to match first
        return True

    def advance_minute(self) -> bool:
        """Go to the next minute that matches. Return whether that is another one."""
        if self.dt.tzinfo in (None, UTC):
            return super().advance_minute()
        if self.dt.minute in self.minutes:
            return False
        self.dt = self.dt.replace(second=0)
        while self.dt.minute not in self.minutes:
            self.tick(seconds=60)
            if self.dt.minute == 0:
                break  # another hour, which has to match first
        return True


def next_tick(spec: ScheduleSpec, after_ms: int) -> int | None:
    """Return the first tick of a schedule after an instant; None if there is none.

    Raises:
        InvalidArgument: this machine does not know its time zone, or its expression is not valid.
    """
    return next(ticks_after(spec, after_ms), None)


def ticks_after(spec: ScheduleSpec, after_ms: int) -> Iterator[int]:
    """Yield the ticks of a schedule after an instant, within its limits.

    Raises:
        InvalidArgument: see ``next_tick``.
    """
    if spec.from_ms is not None:
        after_ms = max(after_ms, spec.from_ms - 1)
    until_ms = NEVER_MS if spec.until_ms is None else spec.until_ms
    for tick_ms in _ticks(spec, after_ms):
        if tick_ms > until_ms:
            return
        yield tick_ms


def _ticks(spec: ScheduleSpec, after_ms: int) -> Iterator[int]:
    if spec.every_ms is None:
        yield from _cron_ticks(spec, after_ms)
        return
    first = interval_ticks(spec.every_ms, spec.anchor_ms, after_ms, after_ms + spec.every_ms, most=1)[0]
    yield from range(first, NEVER_MS, spec.every_ms)


def _cron_ticks(spec: ScheduleSpec, after_ms: int) -> Iterator[int]:
    # To the second below: the next second is then the first that may be a tick.
    start = datetime.fromtimestamp(after_ms // _SECOND_MS, zone(spec.timezone))
    try:
        found = _Cron(spec.cron or "", start)
    except CronSimError as error:
        raise InvalidArgument(f"Cron expression {spec.cron!r:.100} is not valid: {error}. Use {_FIELDS}.") from error
    latest_ms = after_ms
    for moment in found:
        tick_ms = int(moment.timestamp()) * _SECOND_MS
        if tick_ms > latest_ms:
            latest_ms = tick_ms
            yield tick_ms


def due_ticks(spec: ScheduleSpec, after_ms: int, now_ms: int, *, most: int) -> list[int]:
    """Return the latest ticks after an instant and up to now, at most ``most``, in order.

    Raises:
        InvalidArgument: see ``next_tick``.
    """
    if spec.from_ms is not None:
        after_ms = max(after_ms, spec.from_ms - 1)
    until_ms = now_ms if spec.until_ms is None else min(now_ms, spec.until_ms)
    if until_ms <= after_ms:
        return []
    if spec.every_ms is not None:
        return list(interval_ticks(spec.every_ms, spec.anchor_ms, after_ms, until_ms, most=most))
    found = _up_to(spec, after_ms, until_ms, most=most + 1)
    return found if len(found) <= most else _latest(spec, after_ms, until_ms, most=most)


def _up_to(spec: ScheduleSpec, after_ms: int, until_ms: int, *, most: int) -> list[int]:
    """Return the first ticks after an instant and up to another."""
    found: list[int] = []
    for tick_ms in islice(_cron_ticks(spec, after_ms), most):
        if tick_ms > until_ms:
            break
        found.append(tick_ms)
    return found


def _latest(spec: ScheduleSpec, after_ms: int, until_ms: int, *, most: int) -> list[int]:
    """Return the latest of more than ``most`` ticks, without going through all: a month has millions of seconds.

    The start is searched by halves until there are enough ticks after it, but not many more.
    """
    early_ms, late_ms = after_ms, until_ms
    while True:
        middle_ms = (early_ms + late_ms) // 2
        found = _up_to(spec, middle_ms, until_ms, most=2 * most)
        if len(found) < most:
            late_ms = middle_ms
        elif len(found) == 2 * most and late_ms - middle_ms > _MINUTE_MS:
            early_ms = middle_ms
        else:
            break
    return list(deque(found, maxlen=most))


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        InvalidArgument: this machine does not know it.
    """
    try:
        # UTC as a constant: cronsim is faster with it, and it needs no database.
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        cause = f"Time zone {name!r:.100} is not known."
        raise InvalidArgument(f"{cause} Use an IANA name such as Europe/Berlin.") from error


def expression_fault(spec: ScheduleSpec) -> str | None:
    """Return what is wrong with the expression of a schedule, or None if nothing is."""
    if spec.cron is None:
        return None
    if not isinstance(spec.cron, str) or len(spec.cron) > CRON_LENGTH_MAX:
        return f"A cron expression must be text of at most {CRON_LENGTH_MAX} characters."
    try:
        first = next_tick(ScheduleSpec(cron=spec.cron, timezone=spec.timezone), _ANY_MS)
    except InvalidArgument as error:
        return error.cause
    return None if first is not None else f"Cron expression {spec.cron!r} never fires."


def instant_text(at_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC, such as ``2026-11-18T07:00:00Z``; with milliseconds if it has some."""
    precision = "milliseconds" if at_ms % _SECOND_MS else "seconds"
    text = datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).isoformat(timespec=precision)
    return text.removesuffix("+00:00") + "Z"
