"""The command ``archive``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from fairlane.cli.data.spark import MASTER, begin_spark, on_spark
from fairlane.cli.session import Session, pass_session

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(name="archive")
@click.option("--tables", type=FOLDER, required=True, help="The folder that 'fairlane pipeline run' wrote.")
@click.option("--to", "target", type=FOLDER, required=True, help="Folder of the archive.")
@click.option(
    "--keep-days", type=click.IntRange(min=1), help="Delete archived days older than this many days; by default none."
)
@MASTER
@pass_session
def archive_command(session: Session, *, tables: Path, target: Path, keep_days: int | None, master: str) -> None:
    """Archive finished days of the journal and of acknowledged messages as Parquet, and remove old days."""
    spark = begin_spark(master)
    from fairlane.spark.bulk.archive import archive

    tell = partial(click.echo, err=True)
    done = on_spark(spark, partial(archive, spark, tables, target, keep_days=keep_days, tell=tell))
    words = f"Archived {len(done.written)} days, deleted {len(done.removed)}; {target} holds {len(done.days)}."
    session.answer({"written": done.written, "removed": done.removed, "days": done.days}, words)
