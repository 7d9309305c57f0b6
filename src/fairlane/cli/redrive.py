"""The command ``redrive``."""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import Any

import click
import msgspec

from fairlane.cli import tables
from fairlane.cli.data.spark import MASTER, begin_spark, on_spark, place_of
from fairlane.cli.dead_letters import dlq_meant, filter_options, wanted_by
from fairlane.cli.door import Door
from fairlane.cli.errors import REFUSED, Stop
from fairlane.cli.formatting import printable
from fairlane.cli.output import answer
from fairlane.cli.progress import progress
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.cli.stopping import stoppable
from fairlane.model.limits import BATCH_MAX
from fairlane.model.views import RedriveView

_LOOK_S = 0.1
_KINDS_SHOWN = 10


@click.command(name="redrive")
@QUEUE
@click.option("--count", type=click.IntRange(min=1), help="At most so many.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many a second.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only count them.")
@click.option("--wait/--no-wait", default=True, help="Stay until it is done, and stop it when interrupted; or don't.")
@click.option("--where", metavar="SQL", help="Only those for which this holds; Spark picks them, see the reference.")
@MASTER
@filter_options
@pass_session
def redrive_command(session: Session, /, queue: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Move dead letters back to their queue. QUEUE is the queue or its dead-letter queue.

    What has moved stays moved, however it ends. On a folder it always waits, since nobody else would go on.
    """
    if options["where"] is not None:
        _redrive_chosen(session, queue, options)
        return
    with stoppable(), session.door() as door:
        view = door.redrive(
            dlq_meant(queue),
            wanted=wanted_by(options),
            count=options["count"],
            rate=options["rate"],
            is_dry_run=options["is_dry_run"],
        )
        if options["wait"] or view.is_dry_run or session.place.is_embedded:
            view = _follow(door, view)
    answer(view, _words(view), is_json=session.is_json)
    if view.status == "failed":
        raise Stop(REFUSED)


def _redrive_chosen(session: Session, queue: str, options: dict[str, Any]) -> None:
    """Let Spark pick by SQL, say what was picked, and let the broker move it, as many at a time as a filter names."""
    place, spark = place_of(session), begin_spark(options["master"])
    from fairlane.spark.bulk.choosing import choose

    chosen = on_spark(spark, partial(choose, spark, place, queue, options["where"]))
    for reason, error, count in chosen.by_error[:_KINDS_SHOWN]:
        click.echo(f"{count:>8,}  {reason}  {printable(error)}", err=True)
    ids = chosen.ids if options["count"] is None else chosen.ids[: options["count"]]
    moved = 0
    with stoppable(), session.door() as door:
        for part in (ids[at : at + BATCH_MAX] for at in range(0, len(ids), BATCH_MAX)):
            if options["is_dry_run"]:
                break
            wanted = msgspec.structs.replace(wanted_by(options), ids=part)
            view = _follow(door, door.redrive(dlq_meant(queue), wanted=wanted, rate=options["rate"]))
            moved += view.moved
            if view.status != "done":
                raise Stop(REFUSED)
    told = {"total": chosen.total, "matched": len(ids), "moved": moved, "is_dry_run": options["is_dry_run"]}
    words = "would be moved" if options["is_dry_run"] else f"were picked, {moved:,} moved"
    answer(
        told, f"{tables.messages(len(ids))} of {chosen.total:,} in {dlq_meant(queue)} {words}.", is_json=session.is_json
    )


def _follow(door: Door, view: RedriveView) -> RedriveView:
    """Show a redrive until it ends; whoever interrupts stops it."""
    pause = Event()
    try:
        with progress(f"From {view.queue}") as bar:
            while view.status == "running":
                bar.set(view.scanned, view.total)
                pause.wait(_LOOK_S)
                view = door.redrive_view(view.id)
    except KeyboardInterrupt:
        click.echo(f"\n{_words(door.stop_redrive(view.id))}", err=True)
        raise
    return view


def _words(view: RedriveView) -> str:
    if view.is_dry_run:
        return f"{tables.messages(view.matched)} of {view.total} in {view.queue} would be moved."
    match view.status:
        case "running":
            return f"Redrive {view.id} of {view.queue} has begun."
        case "failed":
            return (
                f"{tables.messages(view.moved)} moved from {view.queue}; then it failed: {printable(view.error or '')}"
            )
        case "stopped":
            return f"{tables.messages(view.moved)} moved from {view.queue}; then it was stopped."
    return f"{tables.messages(view.moved)} moved from {view.queue}."
