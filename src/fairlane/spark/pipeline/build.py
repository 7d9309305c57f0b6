"""Builds the tables of some days from the events of these days and what the day before them carried over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.spark.caching import cached
from fairlane.spark.pipeline.folder import CARRIED
from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.dead_letters import dead_letters
from fairlane.spark.tables.events import carried, open_messages
from fairlane.spark.tables.fairness import fairness, fairness_keys
from fairlane.spark.tables.hourly import latency, sla, tenant_usage, throttle_waits
from fairlane.spark.tables.messages import messages
from fairlane.spark.tables.noisy_neighbours import noisy_neighbours
from fairlane.spark.tables.starvation import starvation
from fairlane.spark.tables.turns import WINDOW_LENGTH_MS, Days, pieces, windows
from fairlane.spark.tables.weights import with_weights

BROADCAST_MAX = 200_000
"""The maximum number of open messages that is broadcast to each task."""

Write = Callable[[str, DataFrame], DataFrame]
"""Writes a table under its name, and returns it as it is read back."""


def build(events: DataFrame, span: Days, *, newest_day: date, carry: Sequence[date], write: Write) -> None:
    """Build all tables but ``events``.

    Args:
        events: those of the days, and what was carried over from before.
        span: the days to build, and the instant of the last event.
        newest_day: the day of the latest event.
        carry: the days whose ends are kept.
        write: writes a table; only its rows of these days are kept.
    """
    with cached(attempts(events)) as tried:
        write("messages", messages(tried, newest_day=newest_day))
        for table in (tenant_usage, latency, throttle_waits, sla, dead_letters):
            write(table.__name__, table(tried))
        _carry(events, tried, carry, write)
        _make_fairness(events, tried, span, write)


def _carry(events: DataFrame, tried: DataFrame, days: Sequence[date], write: Write) -> None:
    """Write what days carry over. Usually few messages are open, so events need not be shuffled."""
    with cached(open_messages(tried, days=days)) as still_open:
        found = F.broadcast(still_open) if still_open.count() <= BROADCAST_MAX else still_open
        write(CARRIED, carried(events, found, days=days).drop("day").withColumnRenamed("carried_on", "day"))


def _make_fairness(events: DataFrame, tried: DataFrame, span: Days, write: Write) -> None:
    """Build the fairness tables."""
    with cached(pieces(tried, events, span)) as waits, cached(windows(waits, span)) as busy:
        starving = write("starvation", starvation(waits, busy, span))
        weighted = with_weights(busy, events, window_length_ms=WINDOW_LENGTH_MS)
        shares = write("fairness_keys", fairness_keys(weighted, starving))
        write("fairness", fairness(shares))
        write("noisy_neighbours", noisy_neighbours(busy))
