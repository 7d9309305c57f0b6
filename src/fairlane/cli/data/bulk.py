"""The commands ``backfill`` and ``archive``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fairlane.cli.data.spark import MASTER, begin_spark, on_spark, server_address_of
from fairlane.cli.interaction import progress, stoppable
from fairlane.cli.parameters import FOLDER, QUEUE, TABLES
from fairlane.cli.session import Session, pass_session

WORK = "Folder for rows that have not been sent yet. Default: .backfill-NAME."


@click.command(name="backfill")
@QUEUE
@click.option("--from", "path", metavar="PATH", help="Files or folders to read, as Spark names them.")
@click.option("--table", help="A table in Spark's catalog, instead of files.")
@click.option("--format", "file_format", default="parquet", show_default=True, help="File format: json, csv, orc ...")
@click.option(
    "--select", "columns", multiple=True, metavar="SQL", help="A column, such as 'body AS payload'; repeatable."
)
@click.option("--where", metavar="SQL", help="Condition on the rows.")
@click.option("--name", required=True, help="Name of this backfill; the same name resumes it.")
@click.option("--work", type=FOLDER, help=WORK)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum number of messages per second.")
@MASTER
@pass_session
def backfill_command(session: Session, /, queue: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Enqueue the rows of files or of a table, each once. An interrupted backfill resumes under the same name.

    The columns of a message: payload, and optionally fairness_key, weight, cost, priority, throttles, headers, delay_ms
    or due_ms, deadline_ms, correlation_id, dedup_id.
    """
    place = server_address_of(session)
    spark = begin_spark(options["master"])
    from fairlane.spark.bulk.backfill import Backfill, Progress, Rows, forget_rows, run_backfill
    from fairlane.spark.pace import SystemPace

    rows = Rows(**{name: options[name] for name in ("path", "table", "file_format", "columns", "where")})
    work = (options["work"] or Path(f".backfill-{options['name']}")).absolute()
    backfill = Backfill(
        place=place, queue=queue, name=options["name"], source=str(rows), work=work, rate=options["rate"]
    )
    done, steps = Progress(0, 0), run_backfill(spark, lambda: rows.frame(spark), backfill, pace=SystemPace())
    with stoppable(), progress(f"Into {queue}") as bar:
        while (step := on_spark(spark, partial(next, steps, None))) is not None:
            done = step
            bar.set(done.sent, done.total)
    forget_rows(backfill)
    session.answer({"sent": done.sent, "total": done.total}, f"Enqueued {done.sent:,} messages in {queue}.")


@click.command(name="archive")
@TABLES
@click.option("--to", "target", type=FOLDER, required=True, help="Folder of the archive.")
@click.option(
    "--keep-days", type=click.IntRange(min=1), help="Delete archived days older than this many days. Default: keep all."
)
@MASTER
@pass_session
def archive_command(session: Session, *, tables: str, target: Path, keep_days: int | None, master: str | None) -> None:
    """Archive finished days of the journal and of acknowledged messages as Parquet, and remove old days."""
    spark = begin_spark(master)
    from fairlane.spark.bulk.archive import archive

    tell = partial(click.echo, err=True)
    done = on_spark(spark, partial(archive, spark, tables, target, keep_days=keep_days, tell=tell))
    words = f"Archived {len(done.written)} days, deleted {len(done.removed)}; {target} holds {len(done.days)}."
    session.answer({"written": done.written, "removed": done.removed, "days": done.days}, words)
