"""The commands ``pipeline run`` and ``pipeline status``. Spark is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.data.spark import MASTER, begin_spark, on_spark, require_spark, server_address_of
from fairlane.cli.formatting import instant
from fairlane.cli.interaction import stoppable
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION, FOLDER
from fairlane.cli.session import Session, pass_session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:
    from fairlane.spark.pipeline import Manifest, RunReport
    from fairlane.spark.pipeline.journals import Gap
    from fairlane.spark.pipeline.source import Source

TABLES = click.option("--tables", type=FOLDER, required=True, metavar="FOLDER", help="The folder of the tables.")


@click.group(name="pipeline")
def pipeline_command() -> None:
    """Turn the journal into tables with Spark: usage, waits, fairness, failures."""


@pipeline_command.command(name="run")
@click.option("--journal", type=FOLDER, metavar="FOLDER", help="Exported segments; without it, the server's journal.")
@TABLES
@click.option("--once", is_flag=True, help="Stop when the tables are up to date.")
@click.option("--interval", type=DURATION, default="60s", show_default=True, help="Time between runs.")
@click.option("--queue", metavar="QUEUE", help="In a cluster: only the group of this queue.")
@click.option(
    "--reader",
    default="pipeline",
    show_default=True,
    help="Name of the journal reader that the server keeps its journal for.",
)
@click.option(
    "--format", "table_format", type=click.Choice(("parquet", "delta")), default="parquet", help="Table format."
)
@click.option(
    "--on-trimmed",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="What to do if events of the journal are missing: stop, or record the gap and go on.",
)
@click.option("--new-epoch", is_flag=True, help="Accept another journal in place of the one in the tables.")
@click.option("--memory", default="2g", show_default=True, help="Memory for Spark on this machine.")
@MASTER
@pass_session
def run_command(session: Session, /, *, journal: Path | None, tables: Path, **options: Any) -> None:  # noqa: ANN401 - click's
    """Update the tables from the journal, again and again until interrupted.

    It can be killed at any time and started again: the tables are then those before a run or those after it.
    """
    require_spark()
    from fairlane.spark.pipeline import CONF, JournalFolder, live_source, run_pipeline

    if journal is not None and options["queue"] is not None:
        raise click.UsageError("--queue selects a journal in a cluster; it cannot be combined with --journal.")
    source: Source = (
        live_source(server_address_of(session), reader=options["reader"], queue=options["queue"])
        if journal is None
        else JournalFolder(journal)
    )
    with stoppable():
        spark = begin_spark(options["master"], conf={**CONF, "spark.driver.memory": options["memory"]})
        how = {name: options[name] for name in ("table_format", "on_trimmed")}
        run, is_new = partial(run_pipeline, spark, source, tables, **how, tell=_tell), options["new_epoch"]
        try:
            while True:
                done = on_spark(spark, partial(run, new_epoch=is_new))
                is_new = False  # it was declared for the journal of the first run, not for any that follows
                if done.segments or options["once"]:
                    session.answer(done, _words(done, tables))
                if options["once"]:
                    return
                Event().wait(options["interval"] / 1000)
        finally:
            spark.stop()


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _words(done: RunReport, tables: Path) -> str:
    if not done.segments:
        return f"{tables} is up to date."
    gaps = f" INCOMPLETE: {_missing(done.gaps)}; see the table gaps." if done.gaps else ""
    return f"Run {done.run}: {done.events} events, {tables} updated from {done.first_day} to {done.newest_day}.{gaps}"


def _missing(gaps: Sequence[Gap]) -> str:
    """Return in words what is missing."""
    events = sum(gap.until_sequence - gap.from_sequence + 1 for gap in gaps)
    return f"{len(gaps)} gap{'' if len(gaps) == 1 else 's'} of {events} sequences in the journal"


def _journals(manifest: Manifest) -> Iterator[list[str]]:
    """Yield a line for each journal of the tables, and one for each gap."""
    for journal in manifest.journals:
        group = f", group {journal.group}" if journal.group else ""
        state = ", replaced by a new epoch" if journal.is_ended else ""
        yield ["journal", f"{journal.journal_id} up to sequence {journal.reached}{group}{state}"]
    for gap in manifest.gaps:
        since, until = ("?" if at_ms is None else instant(at_ms) for at_ms in (gap.from_ms, gap.until_ms))
        span = f"{gap.from_sequence} to {gap.until_sequence}, between {since} and {until}"
        yield ["missing", f"{gap.journal_id} sequences {span}"]


@pipeline_command.command(name="status")
@TABLES
@pass_session
def status_command(session: Session, /, *, tables: Path) -> None:
    """Show how far the tables reach."""
    from fairlane.spark.pipeline import read_manifest

    manifest = read_manifest(tables)
    if manifest is None:
        raise InvalidArgument(f"Folder {tables} has no tables. Create them with 'fairlane pipeline run'.")
    facts = [
        ["runs", str(manifest.run)],
        ["format", manifest.format],
        ["events", str(manifest.events)],
        *_journals(manifest),
        ["up to", instant(manifest.horizon_ms)],
        ["days", f"{len(manifest.days)}, {manifest.days[0]} to {manifest.days[-1]}" if manifest.days else "-"],
        ["state", "whole" if manifest.swap is None else "interrupted while files were put in place: run it again"],
    ]
    session.answer(manifest, [Table([], facts)])
