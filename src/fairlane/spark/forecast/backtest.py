"""The error of a forecast: a model is fitted without the most recent days, and compared with what came on them.

The number of days that are held out is that of the forecast, as far as the history allows. The profile of a day and,
with two weeks to learn from, that of a week are tried; the one with the smaller error is used. Quantiles of actual over
expected arrivals on the held-out days are the interval of the forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from fairlane.errors import ModelInaccurate
from fairlane.spark.forecast.history import Floats, History
from fairlane.spark.forecast.seasons import DAY, WEEK, ArrivalModel, fit

DAYS_MIN: Final = 3.0
"""With fewer days of history there is no forecast: two to learn from, and one to check."""
ERROR_MAX: Final = 0.2
"""The error above which nothing is advised."""
_HELD_OUT_MAX: Final = 7
_WEEKS_MIN: Final = 14.0
_LOW, _HIGH = 0.1, 0.9
_DAYS_ROUNDING: Final = 0.1
"""A history may lack its first and last hour, and counts as whole days all the same."""


class ArrivalsError(msgspec.Struct, frozen=True, kw_only=True):
    """How far a model was from what came on the days it had not seen.

    Attributes:
        error: the sum of the differences by hour, in parts of all that came.
        naive: the same for a forecast that repeats the last day or week before.
        tenants: the mean difference of tenants over the whole time, by messages.
        low, high: actual over expected arrivals of an hour: the 10th and the 90th percentile.
        season: ``day`` or ``week``: the profile of the model.
        days: how many days of history the model has in all.
        days_held_out: how many of them it was checked on.
        days_left_out: how many days are incomplete, and are not used.
    """

    error: float
    naive: float
    tenants: float
    low: float
    high: float
    season: str
    days: float
    days_held_out: int
    days_left_out: int


def require_history(history: History) -> None:
    """Raise ModelInaccurate if a history is too short for a forecast."""
    if history.days < DAYS_MIN - _DAYS_ROUNDING:
        left_out = len(history.days_left_out)
        more = f" {left_out} incomplete day{'' if left_out == 1 else 's'} left out." if left_out else ""
        raise ModelInaccurate(
            f"The tables have {history.days:.1f} complete days of history; a forecast needs {DAYS_MIN:.0f}.{more}"
        )


def require_small_error(found: ArrivalsError) -> None:
    """Raise ModelInaccurate if a model is too far from the days that it was checked on."""
    if found.error > ERROR_MAX:
        days = f"{found.days_held_out} held-out day{'' if found.days_held_out == 1 else 's'}"
        raise ModelInaccurate(
            f"The forecast of arrivals is {found.error:.0%} off on {days}, more than {ERROR_MAX:.0%}."
        )


def choose(history: History, *, days: int) -> tuple[ArrivalModel, ArrivalsError]:
    """Return the better model of a history that is long enough, and its error.

    Args:
        history: what came.
        days: how many days are to be forecast.
    """
    held_out = max(1, min(days, _HELD_OUT_MAX, int((history.days + _DAYS_ROUNDING) // 3)))
    before = history.before(history.end_hour - held_out * DAY)
    periods = [DAY, WEEK] if before.days >= _WEEKS_MIN - _DAYS_ROUNDING else [DAY]
    checks = [_check(history, before, period, held_out) for period in periods]
    best = min(range(len(periods)), key=lambda at: (checks[at].error, at))
    return fit(history, periods[best]), checks[best]


def _check(history: History, before: History, period: int, held_out: int) -> ArrivalsError:
    hours = history.end_hour - before.end_hour
    known = history.is_known[-hours:]
    came = history.counts[:, -hours:][:, known]
    model = fit(before, period)
    expected = model.predict(before.end_hour, hours)[:, known]
    total = came.sum(axis=0)
    whole = expected.sum(axis=0)
    low, high = _interval(total, whole)
    return ArrivalsError(
        error=_apart([total], [whole]),
        naive=_apart([total], [_repeated(before, hours, period)[known]]),
        tenants=_apart(came.sum(axis=1, keepdims=True), expected.sum(axis=1, keepdims=True)),
        low=low,
        high=high,
        season="week" if period == WEEK else "day",
        days=history.days,
        days_held_out=held_out,
        days_left_out=len(history.days_left_out),
    )


def _repeated(before: History, hours: int, period: int) -> Floats:
    """Return the last cycle before the held-out days again and again."""
    last = before.counts.sum(axis=0)[-period:]
    return np.resize(last, hours) if last.size else np.zeros(hours)


def _apart(came: Floats | Sequence[Floats], expected: Floats | Sequence[Floats]) -> float:
    """Return the differences in parts of all that came; 1 if nothing came and something was expected."""
    apart, whole = float(np.abs(np.asarray(came) - np.asarray(expected)).sum()), float(np.asarray(came).sum())
    return apart / whole if whole else float(apart > 0)


def _interval(came: Floats, expected: Floats) -> tuple[float, float]:
    ratios = came[expected > 0] / expected[expected > 0]
    if not ratios.size:
        return 1.0, 1.0
    low, high = np.quantile(ratios, [_LOW, _HIGH])
    return float(min(low, 1.0)), float(max(high, 1.0))
