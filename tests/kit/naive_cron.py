"""Cron as a table of minutes: slow, obvious, and without a line of the broker's code or of its cron library.

A day of a time zone is the list of the minutes that its wall clocks show, in the order in which they come: an hour that
clocks skip is not there, one that they repeat is there twice. A schedule fires in the minutes that match. Debian's cron
has two exceptions for expressions whose minute and hour are both fixed: what falls into the skipped hour fires at the
first minute after it, and what falls into the repeated hour fires the first time only.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_NAMES = {
    name: str(number)
    for names, first in (
        ("SUN MON TUE WED THU FRI SAT", 0),
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
    )
    for number, name in enumerate(names.split(), first)
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_DAY_MS = 86_400_000
Date = tuple[int, int, int]
Wall = tuple[int, int]
"""An hour and a minute."""


def numbers_of(field: str, least: int, most: int) -> set[int]:
    """Return the numbers that a field stands for."""
    found: set[int] = set()
    for part in field.upper().split(","):
        body, _, step = part.partition("/")
        begin, _, end = body.partition("-")
        first = least if begin == "*" else int(_NAMES.get(begin, begin))
        last = most if begin == "*" or (step and not end) else int(_NAMES.get(end, end)) if end else first
        found.update(range(first, last + 1, int(step or 1)))
    return found


@lru_cache(maxsize=100_000)
def day_of(zone: str, date: Date) -> dict[Wall, list[int]] | int:
    """Return the instants at which the clocks of a zone show each minute of a date; a skipped minute has none.

    For a day on which no clock is changed this is only the instant at which it begins, to save memory.
    """
    tz, noon = ZoneInfo(zone), datetime(*date, 12, tzinfo=UTC)
    begin = datetime(*date, tzinfo=tz)
    if len({(begin + timedelta(minutes=15 * at)).utcoffset() for at in range(-8, 105)}) == 1:
        return int(begin.timestamp()) * 1000
    shown: dict[Wall, list[int]] = {}
    for minute in range(-30 * 60, 30 * 60):
        moment = noon + timedelta(minutes=minute)
        wall = moment.astimezone(tz)
        if (wall.year, wall.month, wall.day) == date:
            shown.setdefault((wall.hour, wall.minute), []).append(int(moment.timestamp()) * 1000)
    return shown


def ticks(cron: str, zone: str, after_ms: int, end_ms: int) -> list[int]:
    """Return the instants after one and up to another at which an expression of five fields fires."""
    fields = cron.split()
    minutes, hours, days, months, weekdays = (
        numbers_of(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)
    )
    weekdays |= {0} if 7 in weekdays else set()
    is_either = not (fields[2].startswith("*") or fields[4].startswith("*"))
    is_fixed = not (fields[0].startswith("*") or fields[1].startswith("*"))
    found: set[int] = set()
    for day in range(after_ms // _DAY_MS - 1, end_ms // _DAY_MS + 2):
        begin = datetime.fromtimestamp(day * _DAY_MS / 1000, UTC)
        date = begin.year, begin.month, begin.day
        by_day = (date[2] in days, (begin.weekday() + 1) % 7 in weekdays)
        if date[1] in months and (any(by_day) if is_either else all(by_day)):
            found.update(_of_day(day_of(zone, date), hours, minutes, is_fixed=is_fixed))
    return sorted(instant for instant in found if after_ms < instant <= end_ms)


def _of_day(shown: dict[Wall, list[int]] | int, hours: set[int], minutes: set[int], *, is_fixed: bool) -> Iterator[int]:
    walls = [(hour, minute) for hour in hours for minute in minutes]
    if isinstance(shown, int):
        yield from (shown + (hour * 60 + minute) * 60_000 for hour, minute in walls)
        return
    for wall in walls:
        instants = shown.get(wall, [])
        if not is_fixed:
            yield from instants
        elif instants:
            yield instants[0]
        else:
            later = [each[0] for other, each in shown.items() if other > wall]
            if later:
                yield min(later)
