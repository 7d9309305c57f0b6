"""Forecasts from written tables: what breaks when, and how many consumers each hour needs, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from fairlane.cli.main import cli
from fairlane.errors import CandidateInvalid, QueueNotFound
from fairlane.lakehouse import open_tables
from fairlane.spark.forecast.forecast import QueueForecast, TenantForecast, forecast
from fairlane.spark.forecast.history import read_histories
from fairlane.spark.forecast.page import page_of
from fairlane.spark.whatif.targets import target_of
from tests.unit.forecast.recorded_days import HOUR_MS, RecordedDays, at_ms
from tests.unit.report.written_tables import HOSTILE

MINUTE = target_of("wait_p99:*<=1m")
NOON = 12


def noon(_day: int, hour: int) -> dict[str, int]:
    """Return six messages an hour, and ninety at noon: each takes a minute, so noon needs 1.5 consumers."""
    return {"acme": 90 if hour == NOON else 6}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return four days with a busy noon."""
    return RecordedDays(rate=noon).write(tmp_path_factory.mktemp("noon"))


def day_ahead(folder: Path, *, consumers: int | None = None, most: int | None = None) -> QueueForecast:
    """Return the forecast of a day."""
    return forecast(folder, [MINUTE], horizon_hours=24, consumers=consumers, most=most)[0]


def test_it_tells_when_a_target_breaks_with_fewer_consumers(tables: Path) -> None:
    """With one consumer the messages of noon come every 40 s and take 60 s: the last one waits 89 times 20 s.

    At one o'clock half an hour of work is left, so the first message then waits 1800 s, and an hour later none is.
    """
    found = day_ahead(tables, consumers=1)
    assert not found.declined
    (broken,) = found.breaks
    assert (broken.at_ms, broken.at) == (at_ms(4, NOON), "2026-03-06T12:00Z")
    assert (broken.value, broken.hours) == (89 * 20_000, 2)
    assert [hour.values[0] for hour in found.hours[NOON - 1 : NOON + 3]] == [0, 1_780_000, 1_800_000, 0]


def test_it_tells_how_many_consumers_each_hour_needs(tables: Path) -> None:
    """Two consumers for noon and one for every other hour; both that there are today are enough."""
    found = day_ahead(tables)
    assert [hour.consumers for hour in found.hours] == [2 if hour == NOON else 1 for hour in range(24)]
    assert (found.consumers_now, found.consumers, found.breaks) == (2, 2, [])
    assert [round(hour.arrivals) for hour in found.hours] == [90 if hour == NOON else 6 for hour in range(24)]


def test_more_arrivals_break_targets_later_in_a_trend(tmp_path: Path) -> None:
    """Noon grows by 4 messages a day, from 20 to 60 on the eleventh day, which one consumer just works off.

    From then on it has more than 60 messages of a minute each: a day or two later they wait for longer than 5 minutes.
    """
    grows = RecordedDays(
        rate=lambda day, hour: {"acme": (5 + day) * (4 if hour == NOON else 1)}, days=11, consumers=1
    ).write(tmp_path)
    found = forecast(grows, [target_of("wait_p99<=5m")], horizon_hours=6 * 24)[0]
    assert not found.declined
    assert found.consumers_now == 1
    (broken,) = found.breaks
    assert at_ms(11, NOON) < broken.at_ms <= at_ms(13, NOON)
    assert (broken.at_ms - at_ms(0)) // HOUR_MS % 24 == NOON


def test_a_target_of_one_tenant_is_that_tenants(tmp_path: Path) -> None:
    """A tenant with a message every four minutes gets its turns, while the large tenant's messages wait."""
    mixed = RecordedDays(
        rate=lambda _, hour: {"large": 90, "small": 15} if hour == NOON else {"large": 6, "small": 1}, consumers=4
    ).write(tmp_path)
    targets = [target_of("wait_p99:large<=1m"), target_of("wait_p99:small<=3m")]
    found = forecast(mixed, targets, horizon_hours=24, consumers=1)[0]
    assert [one.target for one in found.breaks] == ["wait_p99:large<=1m"]
    assert [one.tenant for one in found.tenants] == ["large", "small"]
    assert [one.before for one in found.tenants] == [228, 38]


def test_no_number_of_consumers_is_enough_for_some_targets(tables: Path) -> None:
    """At noon a single consumer is not enough; if no more may be tried, the forecast has no number for it."""
    found = day_ahead(tables, most=1)
    assert found.consumers is None
    assert [hour.at_ms for hour in found.hours if hour.consumers is None] == [at_ms(4, NOON)]


# ------------------------------------------------------------------------------------------------------- declining


def test_too_little_history_is_told(tmp_path: Path) -> None:
    """Two days are too few: nothing is advised, and the reason has the number."""
    found = day_ahead(RecordedDays(rate=noon, days=2).write(tmp_path))
    assert "2.0 complete days of history; a forecast needs 3" in found.declined
    assert (found.hours, found.consumers, found.arrivals_error) == ([], None, None)
    assert not found.is_met


def test_days_in_a_gap_are_left_out(tmp_path: Path) -> None:
    """Days without rows in a gap, and days marked as incomplete, are no days without messages."""
    written = RecordedDays(rate=noon, days=6).write(tmp_path, skipped=[2], incomplete=[4])
    history = read_histories(open_tables(written))[0]
    assert [day.isoformat() for day in history.days_left_out] == ["2026-03-04", "2026-03-06"]
    found = day_ahead(written)
    assert found.arrivals_error is not None
    assert (found.arrivals_error.days_left_out, round(found.arrivals_error.error, 6)) == (2, 0)
    assert found.hours[NOON].arrivals == 90
    assert dict(found.past)[at_ms(4, NOON)] is None


def test_arrivals_that_cannot_be_forecast_are_not_advised_on(tmp_path: Path) -> None:
    """If noon comes at another hour each day, the error is above 20 %, and only the arrivals are shown."""
    wanders = RecordedDays(rate=lambda day, hour: {"acme": 90 if hour == (7 * day) % 24 else 6}, days=6)
    found = day_ahead(wanders.write(tmp_path))
    assert "off on 1 held-out day, more than 20%" in found.declined
    assert len(found.hours) == 24
    assert found.model_error is None


def test_tables_that_begin_after_the_queue_was_created_are_told(tmp_path: Path) -> None:
    """Without the queue's settings nothing can be played; only the arrivals are shown."""
    found = day_ahead(RecordedDays(rate=lambda _, __: {"acme": 2}, days=9).write(tmp_path, carries=False))
    assert found.declined == "The tables begin after the queue was created, so its settings are unknown."
    assert len(found.hours) == 24


@pytest.mark.parametrize("text", ["misses<=0", "share:acme>=50%"])
def test_only_waits_can_be_forecast(tables: Path, text: str) -> None:
    """A target about something else is refused, as is a horizon of nothing, and an unknown queue."""
    with pytest.raises(CandidateInvalid):
        forecast(tables, [target_of(text)], horizon_hours=24)
    with pytest.raises(CandidateInvalid):
        forecast(tables, [MINUTE], horizon_hours=0)
    with pytest.raises(QueueNotFound):
        forecast(tables, [MINUTE], horizon_hours=24, queues=["absent"])


# --------------------------------------------------------------------------------------------- the command, the page


def call(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, list(arguments))


def test_the_command_answers_autoscalers(tables: Path) -> None:
    """As JSON each hour has its consumers, and both errors are told."""
    base = ("forecast", "--tables", str(tables), "--target", "wait_p99:*<=1m", "--horizon", "1d")
    result = call("-o", "json", *base)
    assert result.exit_code == 0, result.output
    (told,) = json.loads(result.output)
    assert (told["queue"], told["consumers"], told["consumers_now"]) == ("work", 2, 2)
    assert [hour["consumers"] for hour in told["hours"]] == [2 if hour == NOON else 1 for hour in range(24)]
    assert told["arrivals_error"]["error"] < 0.01
    assert told["model_error"]["error"] < 0.01


def test_the_command_tells_people_what_breaks(tables: Path, tmp_path: Path) -> None:
    """It prints the break, the hours and the errors, and writes a page; a forecast without advice ends with code 4."""
    page = tmp_path / "forecast.html"
    base = ("forecast", "--tables", str(tables), "--target", "wait_p99:*<=1m", "--horizon", "1d")
    result = call(*base, "--consumers", "1", "--out", str(page))
    assert result.exit_code == 0, result.output
    assert "at 2026-03-06T12:00Z" in result.output
    assert "error of the arrivals" in result.output
    assert "breaks at 2026-03-06T12:00Z with 1 consumers" in page.read_text(encoding="utf-8")
    assert call(*base, "--most", "1").exit_code == 4


def test_a_page_with_many_tenants_shows_the_largest(tables: Path) -> None:
    """Of 3,000 tenants the page names the largest and sums the rest; a tenant's name is text and never HTML."""
    tenants = [TenantForecast(tenant=HOSTILE, arrivals=9.0, before=0.0)]
    tenants += [TenantForecast(tenant=f"tenant-{at:04}", arrivals=2.0, before=1.0) for at in range(2_999)]
    page = page_of([msgspec.structs.replace(day_ahead(tables), queue=HOSTILE, tenants=tenants)])
    assert "<td>2,980 others</td><td>5,960</td><td>2,980</td><td>+100%</td>" in page
    assert "tenant-0018" in page
    assert "tenant-0019" not in page
    assert HOSTILE not in page
    assert "<td>&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;</td><td>9</td><td>0</td><td>new</td>" in page
