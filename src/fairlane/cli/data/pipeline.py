"""The commands ``pipeline run``, ``status`` and ``verify``. Spark is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.data.spark import MASTER, begin_spark, on_spark, require_spark, server_address_of
from fairlane.cli.errors import REFUSED, Quit
from fairlane.cli.formatting import instant
from fairlane.cli.interaction import stoppable
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION, FOLDER, TABLES
from fairlane.cli.session import Session, pass_session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:
    from fairlane.spark.pipeline import Manifest, RunReport, Verification
    from fairlane.spark.pipeline.journals import Gap
    from fairlane.spark.pipeline.source import Source


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
def run_command(session: Session, /, *, journal: Path | None, tables: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Update the tables from the journal, again and again until interrupted.

    It can be killed at any time and started again: the tables are then those before a run or those after it.
    """
    require_spark()
    from fairlane.lakehouse import parse_address
    from fairlane.spark.pipeline import CONF, run_pipeline

    source = _source(session, journal, options)
    address = parse_address(tables)  # so that a wrong one is refused before Spark starts
    with stoppable():
        spark = begin_spark(options["master"], conf={**CONF, "spark.driver.memory": options["memory"]})
        run = partial(run_pipeline, spark, source, address, on_trimmed=options["on_trimmed"], tell=_tell)
        is_new = options["new_epoch"]
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


def _source(session: Session, journal: Path | None, options: dict[str, Any]) -> Source:
    """Return the journal to read: exported segments, or that of the server."""
    from fairlane.spark.pipeline import JournalFolder, live_source

    if journal is not None and options["queue"] is not None:
        raise click.UsageError("--queue selects a journal in a cluster; it cannot be combined with --journal.")
    if journal is not None:
        return JournalFolder(journal)
    return live_source(server_address_of(session), reader=options["reader"], queue=options["queue"])


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _words(done: RunReport, tables: str) -> str:
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
def status_command(session: Session, /, *, tables: str) -> None:
    """Show how far the tables reach."""
    from fairlane.spark.pipeline import read_manifest

    manifest = read_manifest(tables)
    if manifest is None:
        raise InvalidArgument(f"There are no tables at {tables}. Create them with 'fairlane pipeline run'.")
    facts = [
        ["runs", str(manifest.run)],
        ["format", manifest.format],
        ["events", str(manifest.events)],
        *_journals(manifest),
        ["up to", instant(manifest.horizon_ms)],
        ["days", f"{len(manifest.days)}, {manifest.days[0]} to {manifest.days[-1]}" if manifest.days else "-"],
        ["state", "whole" if manifest.swap is None else "interrupted while a run was carried out: run it again"],
    ]
    session.answer(manifest, [Table([], facts)])


@pipeline_command.command(name="verify")
@TABLES
@click.option("--queue", metavar="QUEUE", help="In a cluster: a queue of the group whose journal the tables are of.")
@click.option("--memory", default="2g", show_default=True, help="Memory for Spark on this machine.")
@MASTER
@pass_session
def verify_command(session: Session, /, *, tables: Path, queue: str | None, memory: str, master: str) -> None:
    """Compare the tables with what the broker counts for each tenant.

    The broker may be busy meanwhile. Each difference is printed. The command exits with 0 if there is none, and with 1
    if there is one, or if the tables lack a part of the journal.
    """
    require_spark()
    from fairlane.spark.pipeline import CONF, verify

    with stoppable(), session.broker() as broker:
        spark = begin_spark(master, conf={**CONF, "spark.driver.memory": memory})
        try:
            found = on_spark(spark, partial(verify, spark, broker, tables, queue=queue))
        finally:
            spark.stop()
    session.answer(found, _difference(found))
    if not found.agrees:
        raise Quit(REFUSED)


def _difference(found: Verification) -> list[Table]:
    facts = [
        ["compared", f"{found.keys} keys with messages in {found.queues} queues"],
        ["up to sequence", f"{found.position}, and {found.followed} events after it"],
        ["missing", _missing(found.gaps) if found.gaps else "-"],
        ["result", "the tables agree with the broker" if found.agrees else f"{len(found.mismatches)} differences"],
    ]
    rows = [
        [each.queue, each.key or "(all)", each.what, str(each.tables), str(each.broker)] for each in found.mismatches
    ]
    columns = ["queue", "key", "what", "tables", "broker"]
    details = [Table(columns, rows, numbers=frozenset(("tables", "broker")))] if rows else []
    return [Table([], facts), *details]
