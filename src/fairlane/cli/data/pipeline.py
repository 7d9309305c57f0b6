"""The commands ``pipeline run``, ``rebuild``, ``status`` and ``verify``. Spark is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.data.chargeback import PRICE_FILE, reconciliation_tables
from fairlane.cli.data.spark import MASTER, on_spark, own_spark, require_spark, server_address_of
from fairlane.cli.errors import REFUSED, Quit
from fairlane.cli.formatting import instant
from fairlane.cli.interaction import stoppable
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION, FOLDER, TABLES
from fairlane.cli.session import Session, pass_session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fairlane.alarms import AlarmWatch
    from fairlane.chargeback import Reconciliation
    from fairlane.lakehouse import TablesAddress
    from fairlane.spark.pipeline import Manifest, RunReport, Verification
    from fairlane.spark.pipeline.journals import Gap
    from fairlane.spark.pipeline.source import Source
    from fairlane.spark.source.server_address import ServerAddress

_PORT_MAX = 65_535
DAY = click.DateTime(formats=["%Y-%m-%d"])
MEMORY = click.option(
    "--memory", default="2g", show_default=True, help="Memory for Spark on this machine, unless configured."
)


@click.group(name="pipeline")
def pipeline_command() -> None:
    """Turn the journal into tables with Spark: usage, waits, fairness, failures."""


def _host_and_port(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise click.BadParameter(f"Invalid address {text!r}; write a host and a port, such as 127.0.0.1:9464.")
    return host.strip("[]"), int(port)


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
    help="What to do if events of the journal are missing: stop, or record the gap and continue.",
)
@click.option("--stream", "is_stream", is_flag=True, help="Read one server's journal with Structured Streaming.")
@click.option(
    "--checkpoint",
    type=FOLDER,
    metavar="FOLDER",
    help="With --stream: where Spark keeps its checkpoint, by default in the folder of the tables.",
)
@click.option("--new-epoch", is_flag=True, help="Accept another journal in place of the one in the tables.")
@click.option("--webhook", metavar="URL", help="Where to send alarms, as JSON; see 'fairlane alarms'.")
@MEMORY
@click.option(
    "--metrics-listen",
    callback=_host_and_port,
    metavar="HOST:PORT",
    help="Serve Prometheus metrics of the runs at this address.",
)
@MASTER
@pass_session
def run_command(session: Session, /, *, journal: Path | None, tables: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Update the tables from the journal, repeatedly until interrupted.

    It can be killed and restarted at any time: a run updates the tables completely or not at all. Without --once it
    continues when the server restarts or a run fails, and prints what it is waiting for to standard error.
    """
    require_spark()
    from fairlane.lakehouse import parse_address
    from fairlane.spark.pipeline import CONF

    if journal is not None and options["queue"] is not None:
        raise click.UsageError("--queue selects a journal in a cluster; it cannot be combined with --journal.")
    origin = server_address_of(session) if journal is None else journal
    address = parse_address(tables)  # so that a wrong one is refused before Spark starts
    watch = _watch(address, options["webhook"])
    defaults = {**CONF, "spark.driver.memory": options["memory"]}
    with stoppable(), own_spark(options["master"], defaults=defaults) as spark:
        run = partial(_run_and_look, _runs(spark, origin, address, options), watch)
        if options["once"]:
            done = run()
            session.answer(done, _words(done, tables))
        else:
            _follow(session, run, tables, options)


def _runs(
    spark: SparkSession, origin: ServerAddress | Path, tables: TablesAddress, options: dict[str, Any]
) -> Callable[[], RunReport]:
    """Return a function that runs the pipeline once."""
    from fairlane.spark.pipeline import JournalFolder, live_source, run_pipeline

    source: Source | None = None
    is_new_epoch = options["new_epoch"]

    def run() -> RunReport:
        nonlocal source, is_new_epoch
        if isinstance(origin, Path):
            source = JournalFolder(origin)
        elif source is None:  # only a server that answers says what it is
            source = live_source(origin, reader=options["reader"], queue=options["queue"])
        how = {"on_trimmed": options["on_trimmed"], "new_epoch": is_new_epoch}
        update = partial(run_pipeline, tables=tables, **how, tell=_tell)
        work = partial(_stream, update, tables, options["checkpoint"], how) if options["is_stream"] else update
        done = on_spark(spark, partial(work, spark, source))
        is_new_epoch = False  # it was declared for the journal of the first run, not for any that follows
        return done

    return run


def _watch(tables: TablesAddress, webhook: str | None) -> AlarmWatch:
    from fairlane.alarms import AlarmWatch, Webhook

    return AlarmWatch(tables, webhook=None if webhook is None else Webhook(webhook), tell=_tell)


def _run_and_look(run: Callable[[], RunReport], watch: AlarmWatch) -> RunReport:
    """Run the pipeline once, and look for alarms if the tables changed or the webhook has missed some."""
    done = run()
    if not done.is_idle or watch.is_behind:
        watch.look()
    return done


def _stream(
    update: Callable[[SparkSession, Source], RunReport],
    tables: TablesAddress,
    checkpoint: Path | None,
    how: dict[str, Any],
    spark: SparkSession,
    source: Source,
) -> RunReport:
    from fairlane.spark.pipeline import LiveJournal
    from fairlane.spark.pipeline.stream import stream_pipeline

    if not isinstance(source, LiveJournal):
        raise InvalidArgument(
            "--stream reads the journal of one server. Leave out --journal; in a cluster, pass --queue."
        )
    done = stream_pipeline(spark, source, tables, run=update, checkpoint=checkpoint, **how)
    return update(spark, source) if done is None else done


def _follow(session: Session, run: Callable[[], RunReport], tables: str, options: dict[str, Any]) -> None:
    from fairlane.assembly import SystemClock
    from fairlane.spark.pace import SystemPace
    from fairlane.spark.pipeline.follower import follow
    from fairlane.spark.pipeline.metrics import PipelineMetrics, served

    metrics, listen = PipelineMetrics(SystemClock().now_ms), options["metrics_listen"]
    with nullcontext() if listen is None else served(metrics, *listen) as port:
        if port is not None:
            _tell(f"Metrics: http://{listen[0]}:{port}/metrics")
        interval_s = options["interval"] / 1000
        for done in follow(run, interval_s=interval_s, pace=SystemPace(), metrics=metrics, tell=_tell):
            session.answer(done, _words(done, tables))


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _words(done: RunReport, tables: str) -> str:
    if done.is_idle:
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


@pipeline_command.command(name="rebuild")
@TABLES
@click.option("--from", "first", type=DAY, required=True, metavar="YYYY-MM-DD", help="The first day, in UTC.")
@click.option("--to", "last", type=DAY, metavar="YYYY-MM-DD", help="The last day, in UTC. Default: the newest.")
@MEMORY
@MASTER
@pass_session
def rebuild_command(
    session: Session, *, tables: str, first: datetime, last: datetime | None, memory: str, master: str | None
) -> None:
    """Recompute days of the tables from the events in them; the journal is not needed."""
    require_spark()
    from fairlane.spark.pipeline import CONF, rebuild_tables

    last_day = None if last is None else last.date()
    with stoppable(), own_spark(master, defaults={**CONF, "spark.driver.memory": memory}) as spark:
        rebuild = partial(rebuild_tables, spark, tables, first_day=first.date(), last_day=last_day, tell=_tell)
        done = on_spark(spark, rebuild)
    session.answer(done, f"Run {done.run}: {tables} rebuilt from {done.first_day} to {last_day or done.newest_day}.")


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
        ["state", "whole" if manifest.swap is None else "interrupted during a run; run it again"],
    ]
    session.answer(manifest, [Table([], facts)])


@pipeline_command.command(name="verify")
@TABLES
@click.option("--queue", metavar="QUEUE", help="In a cluster: compare only the group of this queue.")
@click.option(
    "--statements", type=FOLDER, metavar="FOLDER", help="With --prices: compare these statements with the tables too."
)
@click.option("--prices", type=PRICE_FILE, metavar="FILE", help="With --statements: the price book, a TOML file.")
@MEMORY
@MASTER
@pass_session
def verify_command(session: Session, /, *, tables: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Compare the tables with what the broker and its journal count for each tenant.

    The broker may be busy at the same time. Each difference is printed. The command exits with 0 if there is none, and
    with 1 if there is one, or if the tables lack a part of the journal. With --statements and --prices it also does
    what 'fairlane chargeback verify' does.
    """
    require_spark()
    from fairlane.spark.pipeline import CONF, verify

    if (options["statements"] is None) != (options["prices"] is None):
        raise click.UsageError("--statements and --prices belong together; pass both or none.")
    issued = None if options["statements"] is None else _reconciled(tables, options)
    defaults = {**CONF, "spark.driver.memory": options["memory"]}
    with stoppable(), session.broker() as broker, own_spark(options["master"], defaults=defaults) as spark:
        found = on_spark(spark, partial(verify, spark, broker, tables, queue=options["queue"]))
    if issued is None:
        session.answer(found, _difference(found))
    else:
        told = {"verification": found, "chargeback": issued}
        session.answer(told, [*_difference(found), *reconciliation_tables(issued)])
    if not found.agrees or (issued is not None and not issued.agrees):
        raise Quit(REFUSED)


def _reconciled(tables: str, options: dict[str, Any]) -> Reconciliation:
    from fairlane.chargeback import reconcile

    return reconcile(tables, options["statements"], prices=options["prices"])


def _totals(found: Verification) -> str:
    """Return in words which totals were compared."""
    if found.totals_since_ms is None:
        return "not compared, because --queue leaves out journals of the tables"
    since = f"since {instant(found.totals_since_ms)}" if found.totals_since_ms else "since the beginning"
    return f"of {found.counted} events {since}"


def _difference(found: Verification) -> list[Table]:
    positions = ", ".join(map(str, found.positions.values()))
    facts = [
        ["compared", f"{found.keys} keys with messages in {found.queues} queues"],
        ["totals", _totals(found)],
        ["up to sequence", f"{positions}, and {found.followed} events after it"],
        ["missing", _missing(found.gaps) if found.gaps else "-"],
        ["result", "the tables agree with the broker" if found.agrees else f"{len(found.mismatches)} differences"],
    ]
    rows = [
        [each.queue, each.key or "(all)", each.what, str(each.tables), str(each.broker)] for each in found.mismatches
    ]
    columns = ["queue", "key", "what", "tables", "broker"]
    details = [Table(columns, rows, numbers=frozenset(("tables", "broker")))] if rows else []
    return [Table([], facts), *details]
