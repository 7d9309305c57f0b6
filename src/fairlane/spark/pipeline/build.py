"""Builds the tables from a day on, from events of these days and what is known from before.

Either all events of these days are given, and what the day before them carried over. Or a run goes on where the last
one ended (``Before``): then new events are given and what the first of the days carried over so far, and what they
bring is added to what the tables have of that day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.spark.caching import cached
from fairlane.spark.tables.attempts import attempt_rows, attempts
from fairlane.spark.tables.dead_letters import dead_letters, deaths
from fairlane.spark.tables.events import carried, open_messages
from fairlane.spark.tables.fairness import entries, fairness, fairness_keys
from fairlane.spark.tables.hourly import latency, sla, tenant_usage, throttle_waits
from fairlane.spark.tables.messages import messages
from fairlane.spark.tables.news import ALL_NEW, Reached
from fairlane.spark.tables.noisy_neighbours import noisy_neighbours
from fairlane.spark.tables.partials import kept, of_kind, waits_over
from fairlane.spark.tables.runs import runs
from fairlane.spark.tables.settings import settings_of, waiting_since
from fairlane.spark.tables.starvation import ends, merged_ends, starvation
from fairlane.spark.tables.turns import Days, pieces
from fairlane.spark.threads import run_together

CARRIED = ".carried"
"""The pipeline's own table of what days carry over to the next."""
WAITS = ".waits"
"""The pipeline's own table of the partials of the fairness tables; it has the newest day only."""
DEATHS = ".deaths"
"""The pipeline's own table of the dead letters of the newest day."""
GROWING = ("attempts", "messages")
"""The tables whose rows stay once they are no longer open. A run that goes on only adds rows to them."""
BROADCAST_MAX = 200_000
"""The maximum number of open messages that is broadcast to each task."""

Write = Callable[[str, DataFrame], DataFrame]
"""Writes a table under its name, and returns it as it is read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What a run that goes on is given of the last one.

    Attributes:
        reached: how far the journals are in the tables.
        rows: returns the rows of the first day that a table has, by the name of the table.
    """

    reached: Reached = ALL_NEW
    rows: Callable[[str], DataFrame | None] = lambda _name: None


def build(
    events: DataFrame,
    span: Days,
    *,
    newest_day: date,
    carry: Sequence[date],
    write: Write,
    ended: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
    before: Before | None = None,
) -> None:
    """Build all tables but ``events``. Tables that don't depend on each other are built at the same time.

    Args:
        events: those of the days, or the new ones of them, and what was carried over from before.
        span: the days to build, and the instant of the last event.
        newest_day: the day of the latest event.
        carry: the days whose ends are kept.
        write: writes a table; only its rows of these days are kept.
        ended: the journals that others took the place of, and when each ended.
        groups: the group of each journal.
        before: what is known if the run goes on where the last one ended.
    """
    before = before or Before()
    with cached(settings_of(events)) as settings:
        settings.count()  # Spark now knows their size, so it broadcasts them where they are joined if they are few
        with cached(attempts(events, settings=settings, ended=ended, reached=before.reached)) as tried:
            plain = (latency, throttle_waits, sla)
            steps: list[Callable[[], object]] = [
                lambda: write("attempts", attempt_rows(tried, newest_day=newest_day, groups=groups)),
                lambda: write("messages", messages(tried, newest_day=newest_day, groups=groups)),
                lambda: _make_fairness(events, settings, tried, span, newest_day, before, write),
                lambda: _carry(events, tried, carry, write),
                *[partial(_write_plain, table, tried, before, write) for table in plain],
                lambda: write("tenant_usage", tenant_usage(tried, before.rows("tenant_usage"), events=events)),
                lambda: _make_dead_letters(tried, newest_day, before, write),
            ]
            run_together(events.sparkSession, steps)


def _write_plain(table: Callable[..., DataFrame], tried: DataFrame, before: Before, write: Write) -> None:
    write(table.__name__, table(tried, before.rows(table.__name__)))


def _make_dead_letters(tried: DataFrame, newest_day: date, before: Before, write: Write) -> None:
    with cached(deaths(tried, before.rows(DEATHS))) as died:
        write("dead_letters", dead_letters(died))
        write(DEATHS, died.where(F.col("day") == F.lit(newest_day)))


def _carry(events: DataFrame, tried: DataFrame, days: Sequence[date], write: Write) -> None:
    """Write what days carry over. Usually few messages are open, so events need not be shuffled."""
    with cached(open_messages(tried, days=days)) as still_open:
        found = F.broadcast(still_open) if still_open.count() <= BROADCAST_MAX else still_open
        known = carried(events, found, waiting_since(tried, days=days), days=days)
        write(CARRIED, known.drop("day").withColumnRenamed("carried_on", "day"))


def _make_fairness(
    events: DataFrame,
    settings: DataFrame,
    tried: DataFrame,
    span: Days,
    newest_day: date,
    before: Before,
    write: Write,
) -> None:
    """Build the fairness tables."""
    with (
        cached(pieces(tried, settings, span)) as waits,
        cached(waits_over(waits, events, before.reached, before.rows(WAITS))) as over,
        cached(runs(of_kind(over, "work").drop("day"), waits, settings, span)) as worked,
        cached(entries(worked)) as entered,
    ):
        lasting = ends(waits.where("NOT is_final"))
        ended = merged_ends(of_kind(over, "ends").unionByName(lasting))
        starving = write("starvation", starvation(ended, of_kind(over, "leases"), span))
        write("fairness_keys", fairness_keys(worked, entered, starving))
        write("fairness", fairness(worked, entered, starving, span))
        write("noisy_neighbours", noisy_neighbours(worked))
        write(WAITS, kept(over, newest_day))
