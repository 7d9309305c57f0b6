"""The seasonal model of arrivals: series whose continuation is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairlane.errors import ModelInaccurate
from fairlane.spark.forecast.backtest import choose, require_history, require_small_error
from fairlane.spark.forecast.history import Floats, History
from fairlane.spark.forecast.seasons import DAY, WEEK, fit

FIRST = 20_000 * DAY  # midnight
DAY_SHAPE = np.array([1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 14, 12, 10, 12, 14, 14, 12, 10, 8, 6, 4, 3, 2, 1], dtype=float)
Series = Callable[[int], float]


def history(*series: Series, days: int, unknown: tuple[int, ...] = (), seed: int | None = None) -> History:
    """Return the history of tenants, named a, b and so on; with a seed, counts come by chance."""
    means = np.array([[one(hour) for hour in range(days * DAY)] for one in series])
    counts = means if seed is None else np.random.default_rng(seed).poisson(means).astype(float)
    known = np.ones(days * DAY, dtype=np.bool_)
    for day in unknown:
        known[day * DAY : (day + 1) * DAY] = False
    return History("work", FIRST, tuple("abcdefgh"[: len(series)]), counts, known)


def daily(level: float) -> Series:
    return lambda hour: level * DAY_SHAPE[hour % DAY]


def truth(one: Series, days: int, ahead: int) -> Floats:
    return np.array([one(hour) for hour in range(days * DAY, (days + ahead) * DAY)])


def test_a_flat_series_continues_flat() -> None:
    """Without a season, each hour is expected to be as the past ones, and the model is exact."""
    past = history(lambda _: 50.0, days=5)
    model, error = choose(past, days=2)
    assert model.predict_total(past.end_hour, 48) == pytest.approx(np.full(48, 50.0))
    assert (error.error, error.low, error.high) == pytest.approx((0, 1, 1), abs=1e-9)


def test_a_daily_series_continues_with_its_hours() -> None:
    """Each hour of the day keeps its own height."""
    past = history(daily(10), days=5)
    model, error = choose(past, days=3)
    assert model.predict_total(past.end_hour, 72) == pytest.approx(truth(daily(10), 5, 3))
    assert (error.season, error.days_held_out) == ("day", 1)
    assert error.error == pytest.approx(0, abs=1e-9)


def weekly(hour: int) -> float:
    """Return a day that is quiet on two days of seven."""
    return daily(10)(hour) * (0.2 if hour // DAY % 7 >= 5 else 1.0)


def test_a_weekly_series_is_modelled_by_the_hour_of_the_week() -> None:
    """With weeks to learn from, quiet days stay quiet: the model chooses the week, because the day is far off."""
    past = history(weekly, days=28)
    model, error = choose(past, days=7)
    assert error.season == "week"
    assert error.error < 0.002
    assert model.predict_total(past.end_hour, WEEK) == pytest.approx(truth(weekly, 28, 7), rel=0.005)


def test_with_little_history_a_weekly_series_is_modelled_by_the_hour_of_the_day() -> None:
    """Ten days show no week twice, so the hour of the day is all that can be learned, and the error shows it."""
    _, error = choose(history(weekly, days=14), days=7)
    assert error.season == "day"
    assert error.error > 0.2


def growing(hour: int) -> float:
    """Return a series that grows by a tenth of its first day each day."""
    return daily(10)(hour) * (1 + 0.1 * (hour / DAY))


def test_a_trend_is_followed() -> None:
    """A series that grows every day is expected to grow on, within 3 % for three days."""
    past = history(growing, days=14)
    expected = choose(past, days=3)[0].predict_total(past.end_hour, 72)
    assert expected.sum() == pytest.approx(truth(growing, 14, 3).sum(), rel=0.03)


def test_chance_is_no_trend() -> None:
    """Counts that scatter around a constant level get no slope."""
    past = history(daily(10), days=21, seed=7)
    assert fit(past, DAY).total.slope[0] == 0
    assert choose(past, days=3)[1].error < 0.15


def test_one_spike_changes_little() -> None:
    """A day with ten times the messages in three hours moves the forecast by less than 5 %."""
    past = history(daily(10), days=8)
    counts = past.counts.copy()
    counts[0, 5 * DAY + 9 : 5 * DAY + 12] *= 10
    spiked = History(past.queue, past.first_hour, past.tenants, counts, past.is_known)
    expected = fit(spiked, DAY).predict_total(past.end_hour, DAY)
    assert expected == pytest.approx(truth(daily(10), 8, 1), rel=0.05)


def test_a_change_of_level_is_followed_after_two_days() -> None:
    """A queue that doubled two days ago is expected to stay there."""
    past = history(lambda hour: daily(10)(hour) * (2 if hour >= 8 * DAY else 1), days=10)
    expected = fit(past, DAY).predict_total(past.end_hour, DAY)
    assert expected.sum() == pytest.approx(2 * truth(daily(10), 10, 1).sum(), rel=0.15)


def test_a_new_tenant_is_forecast_from_its_own_days() -> None:
    """A tenant that came two days ago is expected at its recent level, with the hours of the whole queue."""
    fresh = lambda hour: daily(5)(hour) if hour >= 8 * DAY else 0.0  # noqa: E731 - a series in one line
    past = history(daily(10), fresh, days=10)
    expected = fit(past, DAY).predict(past.end_hour, DAY)
    assert expected[1].sum() / expected[0].sum() == pytest.approx(0.5, rel=0.05)
    assert expected.sum() == pytest.approx(fit(past, DAY).predict_total(past.end_hour, DAY).sum())


def test_a_small_tenant_borrows_the_hours_of_the_queue() -> None:
    """A tenant with a message a day has no profile of its own: its expectation has the queue's shape."""
    rare = lambda hour: 1.0 if hour % DAY == 3 else 0.0  # noqa: E731 - a series in one line
    past = history(daily(100), rare, days=7)
    expected = fit(past, DAY).predict(past.end_hour, DAY)[1]
    assert expected.sum() == pytest.approx(1.0, rel=0.2)
    assert expected[10] > 2 * expected[0]


def test_incomplete_days_count_for_nothing() -> None:
    """Days that are left out may hold any numbers: neither the forecast nor its error depends on them."""
    past = history(daily(10), days=9, unknown=(2, 7))
    counts = past.counts.copy()
    counts[0, 2 * DAY : 3 * DAY] = 0
    counts[0, 7 * DAY : 8 * DAY] = 3
    spoiled = History(past.queue, past.first_hour, past.tenants, counts, past.is_known)
    model, error = choose(spoiled, days=3)
    assert model.predict_total(past.end_hour, DAY) == pytest.approx(truth(daily(10), 9, 1))
    assert error.error == pytest.approx(0, abs=1e-9)
    assert error.days == pytest.approx(7)


def test_the_model_beats_a_forecast_that_repeats_the_last_day() -> None:
    """On counts that scatter, the mean of several days is closer to the next ones than the last day is."""
    errors = [choose(history(daily(2), daily(1), days=10, seed=seed), days=3)[1] for seed in range(10)]
    assert all(error.error < error.naive for error in errors)
    assert np.mean([error.error for error in errors]) < 0.8 * np.mean([error.naive for error in errors])


def test_the_interval_holds_what_comes() -> None:
    """About four of five later hours are within the interval that held-out days gave."""
    series = daily(10)
    past = history(series, days=14, seed=3)
    model, error = choose(past, days=3)
    expected = model.predict_total(past.end_hour, 72)
    came = np.random.default_rng(99).poisson(truth(series, 14, 3))
    inside = (came >= error.low * expected) & (came <= error.high * expected)
    assert 0.6 <= inside.mean() <= 0.97


def test_too_little_history_is_refused() -> None:
    """With less than three complete days there is no forecast, and the reason has the number."""
    with pytest.raises(ModelInaccurate, match=r"2\.0 complete days"):
        require_history(history(daily(10), days=4, unknown=(1, 2)))
    require_history(history(daily(10), days=3))


def test_a_large_error_is_refused() -> None:
    """Arrivals that follow no hour at all are forecast badly, and advice on them is refused."""
    rng = np.random.default_rng(5)
    heights = rng.choice([0.0, 10.0, 100.0], 10 * DAY)
    error = choose(history(lambda hour: float(heights[hour]), days=10), days=3)[1]
    with pytest.raises(ModelInaccurate, match="held-out days, more than 20%"):
        require_small_error(error)
