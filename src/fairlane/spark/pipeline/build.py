"""Builds the tables of some days from the events of these days and what the day before them carried over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.spark.caching import cached
from fairlane.spark.tables.attempts import attempt_rows, attempts
from fairlane.spark.tables.dead_letters import dead_letters
from fairlane.spark.tables.events import carried, open_messages, settings_of
from fairlane.spark.tables.fairness import entries, fairness, fairness_keys
from fairlane.spark.tables.hourly import latency, sla, tenant_usage, throttle_waits
from fairlane.spark.tables.messages import messages
from fairlane.spark.tables.noisy_neighbours import noisy_neighbours
from fairlane.spark.tables.runs import runs
from fairlane.spark.tables.starvation import starvation
from fairlane.spark.tables.turns import Days, pieces
from fairlane.spark.threads import run_together

CARRIED = ".carried"
"""The pipeline's own table of what days carry over to the next."""
BROADCAST_MAX = 200_000
"""The maximum number of open messages that is broadcast to each task."""

Write = Callable[[str, DataFrame], DataFrame]
"""Writes a table under its name, and returns it as it is read back."""


def build(
    events: DataFrame,
    span: Days,
    *,
    newest_day: date,
    carry: Sequence[date],
    write: Write,
    ended: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
) -> None:
    """Build all tables but ``events``. Tables that don't depend on each other are built at the same time.

    Args:
        events: those of the days, and what was carried over from before.
        span: the days to build, and the instant of the last event.
        newest_day: the day of the latest event.
        carry: the days whose ends are kept.
        write: writes a table; only its rows of these days are kept.
        ended: the journals that others took the place of, and when each ended.
        groups: the group of each journal.
    """
    with cached(settings_of(events)) as settings:
        settings.count()  # Spark now knows their size, so it broadcasts them where they are joined if they are few
        with cached(attempts(events, settings=settings, ended=ended)) as tried:
            plain = (tenant_usage, latency, throttle_waits, sla, dead_letters)
            steps: list[Callable[[], object]] = [
                lambda: write("attempts", attempt_rows(tried, newest_day=newest_day)),
                lambda: write("messages", messages(tried, newest_day=newest_day, groups=groups)),
                lambda: _make_fairness(events, settings, tried, span, write),
                lambda: _carry(events, tried, carry, write),
                *[partial(_write_plain, table, tried, write) for table in plain],
            ]
            run_together(events.sparkSession, steps)


def _write_plain(table: Callable[[DataFrame], DataFrame], tried: DataFrame, write: Write) -> None:
    write(table.__name__, table(tried))


def _carry(events: DataFrame, tried: DataFrame, days: Sequence[date], write: Write) -> None:
    """Write what days carry over. Usually few messages are open, so events need not be shuffled."""
    with cached(open_messages(tried, days=days)) as still_open:
        found = F.broadcast(still_open) if still_open.count() <= BROADCAST_MAX else still_open
        write(CARRIED, carried(events, found, days=days).drop("day").withColumnRenamed("carried_on", "day"))


def _make_fairness(events: DataFrame, settings: DataFrame, tried: DataFrame, span: Days, write: Write) -> None:
    """Build the fairness tables."""
    with (
        cached(pieces(tried, settings, span)) as waits,
        cached(runs(waits, events, settings, span)) as worked,
        cached(entries(worked)) as entered,
    ):
        starving = write("starvation", starvation(waits, span))
        write("fairness_keys", fairness_keys(worked, entered, starving))
        write("fairness", fairness(worked, entered, starving, span))
        write("noisy_neighbours", noisy_neighbours(worked))
