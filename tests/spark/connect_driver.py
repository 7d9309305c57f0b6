"""A program that uses Spark Connect: a process has either classic sessions or remote ones.

``python -m tests.spark.connect_driver JOURNAL TABLES SERVER LIVE_TABLES`` prints what it found.
"""

from __future__ import annotations

import sys
from datetime import date
from functools import partial

from click.testing import CliRunner
from pyspark.sql import is_remote

from fairlane.cli.main import cli
from fairlane.errors import InvalidArgument
from fairlane.spark import spark_session
from fairlane.spark.pipeline import LiveJournal, read_table, rebuild_tables, run_pipeline
from fairlane.spark.pipeline.few_events import SETTINGS
from fairlane.spark.pipeline.stream import stream_pipeline
from fairlane.spark.source.server_address import ServerAddress


def main(journal: str, tables: str, server: str, live_tables: str) -> None:
    """Make tables by commands from two exports, one after the other, rebuild them, and make those of a server."""
    spark = spark_session("connect")
    assert is_remote()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    for part in ("first", "all"):
        command("pipeline", "run", "--journal", f"{journal}/{part}", "--tables", tables, "--once")
    print("reads", read_table(spark, tables, "events").count(), flush=True)
    report = rebuild_tables(spark, tables, first_day=date(2026, 1, 2))
    print("run", report.run, flush=True)
    live = LiveJournal(ServerAddress(server=server))
    run_pipeline(spark, live, live_tables)
    print(command("--server", server, "pipeline", "verify", "--tables", live_tables), flush=True)
    try:
        stream_pipeline(spark, live, live_tables, run=partial(run_pipeline, tables=live_tables))
    except InvalidArgument as error:
        print(error, flush=True)


def command(*arguments: str) -> str:
    """Run a command in this session, and return what it prints."""
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
