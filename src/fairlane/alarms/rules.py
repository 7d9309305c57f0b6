"""When there is an alarm. The rules are pure: they are given rows of the tables, and the instant of the last event.

Alarms wake people up, so each rule has a floor: what is a large part of next to nothing is no alarm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from fairlane.alarms.alarm import Alarm

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

SERVICE_MS: Final = 10 * MINUTE_MS
"""Service is compared with entitlement over this time."""
TIMES_MIN: Final = 2
"""A tenant is served too much if it gets this many times what it is entitled to,"""
PART_MIN: Final = 0.1
"""and if the excess is this part of all that was served in the queue."""

LEASES_MIN: Final = 100
"""An hour with fewer leases has no percentile to speak of."""
HOURS_MIN, HOURS_MAX = 6, 24
"""How many hours before tell what is usual."""
RISE_MIN: Final = math.log(2)
"""Waits have risen if they are twice as long as usual,"""
DEVIATIONS: Final = 4.0
"""if they are further from what is usual than this number of standard deviations,"""
RISE_MS_MIN: Final = 100
"""and if they are longer than usual by this."""
_MAD: Final = 1.4826
"""The standard deviation of a normal distribution whose median absolute deviation is 1."""

NEW_ERROR_MS: Final = HOUR_MS
"""How long a new error is new."""


class Service(NamedTuple):
    """What a tenant was served in a queue over the last time, and what it was entitled to."""

    queue: str
    tenant: str
    served: float
    entitled: float


class Hour(NamedTuple):
    """The waits of a fairness key in a queue in an hour."""

    queue: str
    key: str
    hour_ms: int
    leases: int
    wait_p99_ms: int


class Errors(NamedTuple):
    """One kind of dead letter in a queue, over the days that are remembered."""

    queue: str
    signature_id: str
    text: str
    letters: int
    first_seen_ms: int


def above_entitlement(services: Iterable[Service], *, now_ms: int) -> Iterator[Alarm]:
    """Yield the tenants that are served far more than they are entitled to. What they get, others lack."""
    queues: dict[str, list[Service]] = defaultdict(list)
    for each in services:
        queues[each.queue].append(each)
    for queue, tenants in queues.items():
        total = sum(each.served for each in tenants)
        for each in tenants:
            if each.served >= TIMES_MIN * each.entitled and each.served - each.entitled >= max(PART_MIN * total, 1):
                part, entitled = each.served / total, each.entitled / total
                yield Alarm(
                    kind="above_entitlement",
                    queue=queue,
                    subject=each.tenant,
                    since_ms=now_ms,
                    value=part,
                    expected=entitled,
                    text=f"{each.tenant} got {part:.0%} of the service of {queue} in the last "
                    f"{SERVICE_MS // MINUTE_MS} minutes and was entitled to {entitled:.0%}.",
                )


def slower(hours: Iterable[Hour], *, now_ms: int) -> Iterator[Alarm]:
    """Yield the fairness keys whose p99 of the wait has risen against the hours before."""
    series: dict[tuple[str, str], list[Hour]] = defaultdict(list)
    for each in hours:
        if each.leases >= LEASES_MIN:
            series[each.queue, each.key].append(each)
    for (queue, key), known in series.items():
        known.sort(key=lambda each: each.hour_ms)
        *before, last = known
        usual_ms = _usual(before[-HOURS_MAX:], last)
        is_now = last.hour_ms > now_ms - 2 * HOUR_MS  # this hour, or the one before it
        if usual_ms is not None and is_now:
            yield Alarm(
                kind="slower",
                queue=queue,
                subject=key,
                since_ms=now_ms,
                value=last.wait_p99_ms,
                expected=usual_ms,
                text=f"{key} waits longer in {queue}: p99 is {last.wait_p99_ms:,} ms, and {usual_ms:,} ms is usual.",
            )


def _usual(before: Sequence[Hour], last: Hour) -> int | None:
    """Return the usual p99 in milliseconds if the last one is far above it."""
    if len(before) < HOURS_MIN:
        return None
    logs = [math.log(max(each.wait_p99_ms, 1)) for each in before]
    middle = median(logs)
    spread = _MAD * median(abs(each - middle) for each in logs)
    usual_ms = round(math.exp(middle))
    rise = math.log(max(last.wait_p99_ms, 1)) - middle
    is_high = rise > max(RISE_MIN, DEVIATIONS * spread) and last.wait_p99_ms - usual_ms > RISE_MS_MIN
    return usual_ms if is_high else None


def new_errors(errors: Iterable[Errors], *, now_ms: int) -> Iterator[Alarm]:
    """Yield the kinds of error that were seen for the first time within the last hour."""
    for each in errors:
        if each.first_seen_ms > now_ms - NEW_ERROR_MS:
            letters = f"{each.letters:,} dead letter{'' if each.letters == 1 else 's'}"
            yield Alarm(
                kind="new_error",
                queue=each.queue,
                subject=each.signature_id,
                since_ms=now_ms,
                value=each.letters,
                expected=0,
                text=f"A new error in {each.queue}, {letters}: {each.text}",
            )
