"""The command ``whatif``."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.spark import MASTER, begin_spark, on_spark
from fairlane.cli.formatting import duration
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fairlane.spark.whatif.accuracy import ModelError
    from fairlane.spark.whatif.comparison import Comparison, Journal
    from fairlane.spark.whatif.consumers import ConsumerKind
    from fairlane.spark.whatif.measures import MeasuredPeriod
    from fairlane.spark.whatif.reproduction import Reproduction
    from fairlane.spark.whatif.scenario import Scenario

INSTANT = click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
JOURNAL = click.option("--journal", type=FOLDER, required=True, help="The folder with the exported journal.")
SWEEP = click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="SETTING=VALUES",
    help="Try each value, such as weight:acme=1,2,5, consumers=4,8 or arrivals=x2; several sweeps are combined.",
)
ASSUME = click.option(
    "--assume",
    multiple=True,
    metavar="SETTING=VALUE",
    help="A load or setting that applies throughout, such as arrivals=x2 or service=x0.7; repeatable.",
)
FROM = click.option("--from", "first", type=INSTANT, help="Measure messages enqueued from this instant on, in UTC.")
TO = click.option("--to", "last", type=INSTANT, help="Measure messages enqueued before this instant, in UTC.")
_KEYS_SHOWN = 12
_NUMBERS = frozenset({"messages", "p50", "p99", "longest", "share", "throttled", "paused", "missed", "left"})


@click.command(name="whatif")
@JOURNAL
@click.option("--policy", "candidate", type=FILE, metavar="FILE", help="TOML or JSON file with the settings to try.")
@SWEEP
@click.option("--queue", "queues", multiple=True, help="Only this queue; repeatable.")
@FROM
@TO
@MASTER
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots to this file.")
@click.option(
    "--reproduce", "is_check", is_flag=True, help="Only check that the replay reproduces the journal's order."
)
@pass_session
def whatif_command(
    session: Session,
    *,
    journal: Path,
    candidate: Path | None,
    sweeps: tuple[str, ...],
    queues: tuple[str, ...],
    first: datetime | None,
    last: datetime | None,
    master: str | None,
    html: Path | None,
    is_check: bool,
) -> None:
    """Replay an exported journal under other settings or another load, and show how long each key would have waited.

    The broker's own scheduler delivers the messages as they arrived; consumers are modelled from the journal. Nothing
    is changed. With --master none it runs in this process, without Spark.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.whatif.comparison import Journal, compare

    if is_check:
        _check(session, journal, queues)
        return
    if candidate is None and not sweeps:
        raise click.UsageError("Pass --policy or --sweep with the settings to try, or --reproduce.")
    known = Journal(journal, queues=queues)
    scenarios = _scenarios(known, candidate, sweeps)
    spark, span = spark_of(master), span_of(first, last)
    with progress(f"{len(scenarios) + 1} scenarios") as bar:
        found = on_spark(spark, partial(compare, known, scenarios, span=span, spark=spark, progress=bar.set))
    if html is not None:
        from fairlane.spark.whatif.page import page_of

        html.write_text(page_of(found), encoding="utf-8")
    _warn(found)
    session.answer(found, [*_tables(found), *_notes(found, html)])


def span_of(first: datetime | None, last: datetime | None) -> MeasuredPeriod:
    """Return the period whose messages are measured."""
    from fairlane.spark.whatif.measures import MeasuredPeriod

    bounds = [None if at is None else int(at.replace(tzinfo=UTC).timestamp() * 1000) for at in (first, last)]
    return MeasuredPeriod(from_ms=bounds[0], to_ms=bounds[1])


def spark_of(master: str | None) -> SparkSession | None:
    """Return a Spark session; None for master ``none``."""
    return None if master == "none" else begin_spark(master)


def _scenarios(known: Journal, candidate: Path | None, sweeps: tuple[str, ...]) -> list[Scenario]:
    from fairlane.spark.whatif.scenario import ORIGINAL, Scenario, read_candidate
    from fairlane.spark.whatif.sweeps import sweep

    base = Scenario(name=ORIGINAL) if candidate is None else read_candidate(candidate, known.queues, known.policies)
    return sweep(base, sweeps, known.queues, known.policies) if sweeps else [base]


def _check(session: Session, journal: Path, queues: tuple[str, ...]) -> None:
    from fairlane.spark.whatif.reproduction import reproduce

    found = reproduce(journal, queues=queues)
    session.answer(found, _verdict(found))


def _verdict(found: Reproduction) -> str:
    skipped = f" Skipped {found.skipped} with messages from before the journal begins." if found.skipped else ""
    if found.is_exact:
        return f"All {found.hand_outs} hand-outs were reproduced in the journal's order.{skipped}"
    first = found.differences[0]
    return (
        f"{len(found.differences)} of {found.hand_outs} hand-outs differ, first at sequence "
        f"{first.sequence} in queue {first.queue}: the journal has {', '.join(first.journalled)}, "
        f"the replay {', '.join(first.replayed) or 'nothing'}.{skipped}"
    )


def _tables(found: Comparison) -> list[Table]:
    """Return a table for each queue and scenario: all keys together, and the largest keys."""
    tables = []
    for queue in found.queues:
        original = found.of(0, queue)
        largest = sorted((key for key in original if key), key=lambda key: (-original[key].messages, key))
        for at, scenario in enumerate(found.scenarios):
            here = found.of(at, queue)
            rows = [
                [
                    key or "all",
                    str(one.messages),
                    duration(one.wait_p50_ms),
                    duration(one.wait_p99_ms),
                    duration(one.wait_max_ms),
                    f"{one.share:.1%}",
                    duration(one.throttled_ms),
                    duration(one.paused_ms),
                    str(one.misses),
                    str(one.left),
                ]
                for key, one in ((key, here[key]) for key in ["", *largest[:_KEYS_SHOWN]])
            ]
            columns = ["key", "messages", "p50", "p99", "longest", "share", "throttled", "paused", "missed", "left"]
            tables.append(Table(columns, rows, title=f"{queue}: {scenario.name}", numbers=_NUMBERS))
    return tables


def error_row(error: ModelError) -> list[str]:
    """Return the model's error on the journal, as a row of facts."""
    worst = "" if error.worst_key is None else f"; worst key {error.worst_key}: {error.worst:.0%}"
    waits = f"p99 {duration(error.journal_p99_ms)} in the journal, {duration(error.model_p99_ms)} in the model"
    return [f"{error.queue}: error of the model", f"{error.error:.0%} ({waits}{worst})"]


def _warn(found: Comparison) -> None:
    from fairlane.spark.whatif.accuracy import ERROR_MAX

    for error in found.errors:
        if error.error > ERROR_MAX:
            click.echo(
                f"warning: the model of queue {error.queue} is {error.error:.0%} off on this journal, "
                "so its forecasts are not reliable.",
                err=True,
            )


def _notes(found: Comparison, html: Path | None) -> list[Table]:
    """Return notes on how sure the results are."""
    facts = [error_row(error) for error in found.errors]
    for notes in found.notes:
        facts += [
            [f"{queue}: left out: enqueued before the journal begins", str(count)]
            for queue, count in notes.unknown.items()
        ]
        if notes.assumed:
            facts.append(["attempts without an end in the journal, modelled as usual", str(notes.assumed)])
    for queue in found.queues:
        facts += [[f"{queue}: consumers in the journal", words(kind)] for kind in found.kinds_of(queue)]
        facts.append([f"{queue}: played by", found.played_by(queue)])
    if html is not None:
        facts.append(["plots", str(html)])
    return [Table([], facts)] if facts else []


def words(kind: ConsumerKind) -> str:
    """Return what consumers of a kind do, in words."""
    counts = sorted({count for _, count in kind.counts})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number}, each with up to {kind.holds} leases, {kind.works} at work at a time"
