"""The seasonal model of arrivals: a level, a trend, and a profile of the day or of the week.

Expected arrivals of an hour are the level at that hour times the profile of the hour. Everything is estimated so that
one bad day doesn't spoil it, and so that a tenant with few messages gets a forecast that makes sense:

- *The profile* says how busy each hour of the day (or of the week) is, 1 being the mean. It is the mean over past days,
  in which values far from the median of their hour count as if they were at the edge. A tenant's profile is shrunk
  towards that of the whole queue: with few messages it is the queue's, with many it is the tenant's own.
- *The level* is what remains of each day once the profile is divided out. For a queue it is a median that prefers
  recent days: it follows a change after two days and ignores a single spike. For a tenant it is a mean, because for
  counts that are mostly zero a median would be zero.
- *The trend* is the median slope between days (Theil and Sen), and only if the days rise or fall more consistently than
  chance explains (Mann and Kendall); otherwise there is none. It flattens with the distance.

The queue is forecast by itself. Tenants divide that among themselves, so their sum is right even if each is uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from fairlane.spark.forecast.history import DAY_HOURS, Floats, History
from fairlane.spark.whatif.rows import Flags, Ints

DAY: Final = DAY_HOURS
WEEK: Final = 7 * DAY_HOURS
_ROUNDS, _ROUNDS_OF_TENANTS = 10, 3
"""How often profile and levels are estimated from each other; tenants begin with the profile of the queue."""
_SPREADS: Final = 3.0
"""Values this many standard deviations from the median of their hour count as if they were there."""
_MAD_TO_DEVIATION: Final = 1.4826
_SHRINKAGE: Final = 10.0
"""A tenant's own profile counts as much as the queue's when it rests on this many messages for each hour."""
_UNKNOWN: Final = 1e-9
"""So little that it counts only for hours of which nothing is known: they are taken to be as busy as the mean."""
_KNOWN_HOURS_MIN: Final = 6
"""A day with fewer known hours tells no level."""
_TREND_DAYS_MIN, _TREND_DAYS_MAX = 7, 28
_TREND_SCORE: Final = 1.96
"""The score of Mann and Kendall from which on a trend is one: the chance of less without a trend is 95 %."""
_DAMPING: Final = 0.97
"""Each further day ahead adds this part of what the day before added by the trend."""
_AGEING: Final = 0.7
"""The weight of a day in the level, relative to the day after it."""


@dataclass(frozen=True, slots=True)
class Seasonal:
    """Fitted series, one for each row.

    Attributes:
        period: how many hours the profile has.
        origin: the hour at which the levels hold.
        profile: how busy each hour of the period is, 1 being the mean.
        level: messages an hour in the mean, at the origin.
        slope: how much the level rises each hour.
    """

    period: int
    origin: int
    profile: Floats
    level: Floats
    slope: Floats

    def predict(self, first: int, count: int) -> Floats:
        """Return the expected arrivals of some hours."""
        hours = np.arange(first, first + count)
        days = np.maximum(hours - self.origin, 0) / DAY
        damped = DAY * (1 - _DAMPING**days) / (1 - _DAMPING)
        level = np.maximum(self.level[:, None] + self.slope[:, None] * damped[None, :], 0)
        found: Floats = level * self.profile[:, hours % self.period]
        return found


@dataclass(frozen=True, slots=True)
class ArrivalModel:
    """The model of a queue: all tenants together, and each."""

    total: Seasonal
    tenants: Seasonal

    def predict_total(self, first: int, count: int) -> Floats:
        """Return the expected arrivals of some hours."""
        found: Floats = self.total.predict(first, count)[0]
        return found

    def predict(self, first: int, count: int) -> Floats:
        """Return the expected arrivals of each tenant; they add up to those of the queue."""
        parts, whole = self.tenants.predict(first, count), self.predict_total(first, count)
        sums = parts.sum(axis=0)
        # An hour in which no tenant is expected has nothing to divide; the levels then say how.
        parts = np.where(sums > 0, parts, self.tenants.level[:, None])
        sums = parts.sum(axis=0)
        found: Floats = parts * np.divide(whole, sums, out=np.zeros_like(whole), where=sums > 0)
        return found


def fit(history: History, period: int) -> ArrivalModel:
    """Fit a model with a profile of a day or of a week."""
    total = _fit(history, history.counts.sum(axis=0, keepdims=True), period, np.ones((1, period)), is_robust=True)
    tenants = _fit(history, history.counts, period, total.profile, is_robust=False)
    return ArrivalModel(total, tenants)


def _fit(history: History, counts: Floats, period: int, prior: Floats, *, is_robust: bool) -> Seasonal:
    cycles, known = _cycles(history, counts, period)
    strength = _UNKNOWN if is_robust else _SHRINKAGE
    profile = np.repeat(prior, counts.shape[0], axis=0) if prior.shape[0] == 1 else prior
    bounded = cycles
    for _ in range(_ROUNDS if is_robust else _ROUNDS_OF_TENANTS):
        level = _ratio(bounded.sum(axis=2), (profile[:, None, :] * known).sum(axis=2))
        bounded = np.where(known, np.minimum(cycles, _edges(cycles, level, known)), 0)
        weight = (level[:, :, None] * known).sum(axis=1)
        profile = (bounded.sum(axis=1) + strength * prior) / (weight + strength)
        profile /= np.maximum(profile.mean(axis=1, keepdims=True), 1e-12)
    hours = bounded.reshape(counts.shape[0], -1)
    lead = history.first_hour % period  # the first cycle begins this long before the history
    level, slope = _levels(history, hours[:, lead : lead + history.is_known.size], profile, is_robust=is_robust)
    return Seasonal(period=period, origin=history.end_hour, profile=profile, level=level, slope=slope)


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)


def _cycles(history: History, counts: Floats, period: int) -> tuple[Floats, Flags]:
    """Return counts as rows, whole cycles and hours of the cycle, 0 where unknown; and which of them are known."""
    lead = history.first_hour % period
    tail = -(lead + counts.shape[1]) % period
    padded = np.pad(np.where(history.is_known, counts, 0), ((0, 0), (lead, tail)))
    known = np.pad(history.is_known, (lead, tail))
    shape = (-1, period)
    return padded.reshape(counts.shape[0], *known.reshape(shape).shape), known.reshape(shape)


def _edges(cycles: Floats, level: Floats, known: Flags) -> Floats:
    """Return for each hour the most that it counts: what is usual at that hour, and some deviations more.

    What is usual is a multiple of the cycle's level. A deviation is that between cycles, and at least that of counts
    that happen by chance.
    """
    ratio = _ratio(cycles, np.broadcast_to(level[:, :, None], cycles.shape))
    is_told = known & (level[:, :, None] > 0)
    usual = _median(ratio, is_told)
    spread = _MAD_TO_DEVIATION * _median(np.abs(ratio - usual[:, None, :]), is_told)
    expected = usual[:, None, :] * level[:, :, None]
    deviation = np.maximum(spread[:, None, :] * level[:, :, None], np.sqrt(np.maximum(expected, 1)))
    found: Floats = expected + _SPREADS * deviation
    return found


def _median(values: Floats, known: Flags) -> Floats:
    """Return the median over cycles of what is known; 0 where nothing is."""
    ordered = np.sort(np.where(known, values, np.inf), axis=1)
    count = np.broadcast_to(known, values.shape).sum(axis=1)
    at = np.stack([np.maximum(count - 1, 0) // 2, count // 2], axis=1)
    at = np.minimum(at, values.shape[1] - 1)
    found: Floats = np.where(count > 0, np.take_along_axis(ordered, at, axis=1).mean(axis=1), 0)
    return found


def _levels(history: History, hours: Floats, profile: Floats, *, is_robust: bool) -> tuple[Floats, Floats]:
    """Return the level of each row at the end of the history, and its slope for each hour."""
    numbers = np.arange(history.first_hour, history.end_hour)
    day = numbers // DAY - history.first_hour // DAY
    days = int(day[-1]) + 1 if day.size else 0
    known_hours = np.bincount(day, weights=history.is_known, minlength=days)
    expected = np.zeros((profile.shape[0], days))
    came = np.zeros_like(expected)
    known = np.flatnonzero(history.is_known)
    np.add.at(expected.T, day[known], profile[:, numbers[known] % profile.shape[1]].T)
    np.add.at(came.T, day[known], hours[:, known].T)
    chosen = np.flatnonzero(known_hours >= min(_KNOWN_HOURS_MIN, max(1, known.size)))
    if not chosen.size:
        return np.zeros(profile.shape[0]), np.zeros(profile.shape[0])
    middle = (history.first_hour // DAY + chosen) * DAY + DAY / 2
    age = np.maximum(history.end_hour - middle, 0) / DAY
    levels = _ratio(came[:, chosen], expected[:, chosen])
    since = np.argmax(levels > 0, axis=1)  # a tenant is as old as its first message
    slope = _trend(levels, chosen, since)
    weight = np.where(np.arange(chosen.size) >= since[:, None], _AGEING**age, 0)
    current = np.maximum(levels + slope[:, None] * age, 0)
    level = _weighted_median(current, weight) if is_robust else (current * weight).sum(axis=1) / weight.sum(axis=1)
    return level, slope / DAY


def _trend(levels: Floats, day: Ints, since: Ints) -> Floats:
    """Return how much the level rises each day; 0 where chance explains it, or where a row is too young."""
    levels, day = levels[:, -_TREND_DAYS_MAX:], day[-_TREND_DAYS_MAX:]
    count = day.size
    if count < _TREND_DAYS_MIN:
        return np.zeros(levels.shape[0])
    later, earlier = np.tril_indices(count, -1)
    rises = levels[:, later] - levels[:, earlier]
    score = np.sign(rises).sum(axis=1) / np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    slope = np.median(rises / (day[later] - day[earlier]), axis=1)
    return np.where((np.abs(score) >= _TREND_SCORE) & (since == 0), slope, 0.0)


def _weighted_median(values: Floats, weight: Floats) -> Floats:
    order = np.argsort(values, axis=1, kind="stable")
    ordered, summed = (np.take_along_axis(values, order, 1), np.take_along_axis(weight, order, 1).cumsum(axis=1))
    at = np.argmax(summed >= summed[:, -1:] / 2, axis=1)
    found: Floats = np.take_along_axis(ordered, at[:, None], 1)[:, 0]
    return found
