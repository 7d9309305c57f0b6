"""The command ``forecast``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.advise import TARGET, value_text
from fairlane.cli.data.whatif import error_row
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION, TABLES
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from fairlane.spark.forecast.backtest import ArrivalsError
    from fairlane.spark.forecast.forecast import ForecastHour, QueueForecast

_HOUR_MS = 3_600_000
_HOURS_SHOWN = 48


@click.command(name="forecast")
@TABLES
@TARGET
@click.option(
    "--horizon",
    "horizon_ms",
    type=DURATION,
    default="3d",
    show_default=True,
    help="How far to look ahead from the end of the tables, at most 28d.",
)
@click.option("--queue", "queues", multiple=True, help="Only this queue; repeatable.")
@click.option(
    "--consumers", type=click.IntRange(1, 10_000), help="Consumers today. Default: the most on the newest days."
)
@click.option("--most", type=click.IntRange(1, 10_000), help="Most consumers to try. Default: 64 times those of today.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots to this file.")
@pass_session
def forecast_command(
    session: Session,
    *,
    tables: str,
    targets: tuple[str, ...],
    horizon_ms: int,
    queues: tuple[str, ...],
    consumers: int | None,
    most: int | None,
    out: Path | None,
) -> None:
    """Forecast arrivals by hour, when targets break with today's consumers, and how many consumers each hour needs.

    It reads the tables of the pipeline, and plays the expected messages through the broker's own scheduler. It needs no
    Spark session. With --output json the result has the number of consumers for each hour, for an autoscaler. Exit code
    4 if it advises nothing for a queue: no number of consumers meets the targets, there is too little history, or a
    model is more than 20 % off on recent days.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.forecast.forecast import forecast
    from fairlane.spark.whatif.targets import target_of

    wanted = [target_of(text) for text in targets]
    hours = -(-horizon_ms // _HOUR_MS)
    with progress("hours planned") as bar:
        found = forecast(
            tables, wanted, horizon_hours=hours, queues=queues, consumers=consumers, most=most, progress=bar.set
        )
    if out is not None:
        from fairlane.spark.forecast.page import page_of

        out.write_text(page_of(found), encoding="utf-8")
    session.answer(found, [table for one in found for table in _tables(one)])
    if not all(one.is_met for one in found):
        raise Quit(NOTHING)


def _tables(found: QueueForecast) -> list[Table]:
    facts = [_arrivals_row(found.arrivals_error)] if found.arrivals_error is not None else []
    if found.model_error is not None:
        facts.append(error_row(found.model_error))
    if found.declined:
        facts.append(["no advice", found.declined])
    else:
        facts += [["consumers today", str(found.consumers_now)], ["consumers needed at most", _number(found.consumers)]]
        facts += [
            [f"{one.target} breaks", f"at {one.at} with {value_text(one.target, one.value)}, in {one.hours} hours"]
            for one in found.breaks
        ]
        if not found.breaks:
            facts.append(["targets", f"hold with {found.consumers_now} consumers"])
    return [Table([], facts, title=f"Queue {found.queue}"), *_hours(found)]


def _arrivals_row(error: ArrivalsError) -> list[str]:
    held_out = f"{error.days_held_out} held-out day{'' if error.days_held_out == 1 else 's'}"
    checked = f"on {held_out}; repeating the last {error.season} would be {error.naive:.0%} off"
    left_out = f"; {error.days_left_out} incomplete days left out" if error.days_left_out else ""
    text = f"{error.error:.0%} ({checked}; {error.days:.0f} days of history by hour of the {error.season}{left_out})"
    return ["error of the arrivals", text]


def _hours(found: QueueForecast) -> list[Table]:
    """Return the hours; of a long forecast the busiest hour of each day."""
    if not found.hours:
        return []
    hours = found.hours
    if len(hours) > _HOURS_SHOWN:
        days: dict[str, ForecastHour] = {}
        for hour in hours:
            day = hour.at[:10]
            days[day] = max(days.get(day, hour), hour, key=lambda one: (one.consumers or 0, one.arrivals))
        hours = list(days.values())
    targets = [] if found.declined else found.targets
    columns = ["hour", "arrivals", "low", "high", *targets, *([] if found.declined else ["consumers", "if high"])]
    rows = [
        [
            hour.at,
            *(f"{number:.0f}" for number in (hour.arrivals, hour.low, hour.high)),
            *(value_text(target, value) for target, value in zip(targets, hour.values, strict=True)),
            *([] if found.declined else [_number(hour.consumers), _number(hour.consumers_high)]),
        ]
        for hour in hours
    ]
    title = "Each hour" if hours is found.hours else "The busiest hour of each day"
    return [Table(columns, rows, title=title, numbers=frozenset(columns[1:]))]


def _number(consumers: int | None) -> str:
    return "none that was tried" if consumers is None else str(consumers)
