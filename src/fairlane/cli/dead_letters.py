"""The commands ``dlq`` and ``redrive``. QUEUE is a queue or its dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from threading import Event
from typing import Any

import click
import msgspec

from fairlane.cli import tables
from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.data.spark import MASTER, begin_spark, on_spark, server_address_of
from fairlane.cli.errors import REFUSED, Quit
from fairlane.cli.formatting import message_count, printable
from fairlane.cli.interaction import confirm, progress, stoppable
from fairlane.cli.messages import AFTER, COUNT, MESSAGE
from fairlane.cli.parameters import DURATION, KEY, QUEUE, YES
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import MessageView
from fairlane.model.names import is_dlq, own_dlq
from fairlane.model.views import DeadLetterFilter, RedriveView, dead_letters_meant

_FILTERS = (
    click.option("--newer-than", type=DURATION, help="Only messages that died at most this long ago."),
    click.option("--older-than", type=DURATION, help="Only messages that died at least this long ago."),
    click.option(
        "--reason",
        type=click.Choice(["max_attempts", "max_expiries", "hook", "deadline", "requested", "members"]),
        help="Only messages that died for this reason.",
    ),
    click.option("--from", "origin", metavar="QUEUE", help="Only messages that died in this queue."),
    click.option("--error", metavar="TEXT", help="Only messages with this text in one of their errors."),
    click.option("--key", type=KEY, help="Only messages of this fairness key."),
)
_POLL_S = 0.1
_ERRORS_SHOWN = 10
_PAGE = 1_000


def filter_options(command: Any) -> Any:  # noqa: ANN401 - as click's decorators
    """Add the options that select dead letters."""
    for option in _FILTERS:
        command = option(command)
    return command


def filter_of(options: dict[str, Any]) -> DeadLetterFilter:
    """Return the filter that the options select."""
    return DeadLetterFilter(
        fairness_key=options["key"],
        error=options["error"],
        reason=options["reason"],
        older_than_ms=options["older_than"],
        newer_than_ms=options["newer_than"],
        origin=options["origin"],
    )


def dead_letters_of(broker: Broker, queue: str, wanted: DeadLetterFilter) -> tuple[str, DeadLetterFilter]:
    """Return where the dead letters are that a user means by a queue, and the filter that selects them there."""
    return (queue, wanted) if is_dlq(queue) else dead_letters_meant(broker.queue(queue), wanted)


@click.group(name="dlq")
def dlq_command() -> None:
    """List, show and delete dead letters, and show redrives. QUEUE is a queue or its dead-letter queue."""


@broker_command(QUEUE, COUNT, AFTER, filter_options, group=dlq_command, name="list")
def list_dead(broker: Broker, /, queue: str, *, count: int, after: str | None, **options: object) -> Printed:
    """Show dead letters, in the order in which they died."""
    dlq, wanted = dead_letters_of(broker, queue, filter_of(options))
    views = list(islice(_letters(broker, dlq, wanted, after=after, with_body=True), count))
    return views, [tables.of_messages(views)]


@broker_command(QUEUE, MESSAGE, group=dlq_command)
def show(broker: Broker, queue: str, message_id: str) -> Printed:
    """Show one dead letter with its headers, errors and payload."""
    view = broker.get(dead_letters_of(broker, queue, DeadLetterFilter())[0], message_id)
    return view, tables.of_message(view)


@dlq_command.command(name="delete")
@QUEUE
@click.argument("message_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Delete all that the filters select, instead of named ones.")
@filter_options
@YES
@pass_session
def delete(
    session: Session,
    /,
    queue: str,
    message_ids: tuple[str, ...],
    *,
    is_all: bool,
    is_sure: bool,
    **options: object,
) -> None:
    """Delete dead letters: those with the given ids, or with --all those that the filters select.

    Deleted messages cannot be restored; the journal records the deletion. An interrupt stops the command part-way. The
    exit code is 1 if an id was refused, for example because it does not exist.
    """
    if is_all == bool(message_ids):
        raise click.UsageError("Name the ids of dead letters, or pass --all.")
    with stoppable(), session.broker() as broker:
        dlq, wanted = dead_letters_of(broker, queue, filter_of(options))
        ids = list(message_ids) or [view.id for view in _letters(broker, dlq, wanted)]
        confirm(f"Delete {message_count(len(ids))} of {dlq}?", is_sure=is_sure)
        refused = [
            error
            for at in range(0, len(ids), BATCH_MAX)
            for error in broker.cancel_many(dlq, ids[at : at + BATCH_MAX], reason="deleted with fairlane dlq delete")
            if error is not None
        ]
    deleted = len(ids) - len(refused)
    text = f"Deleted {message_count(deleted)} of {dlq}."
    if refused:
        text += f" Refused {len(refused)}: {refused[0].cause}"
    session.answer({"queue": dlq, "deleted": deleted, "refused": len(refused)}, text)
    if refused:
        raise Quit(REFUSED)


def _letters(
    broker: Broker, dlq: str, wanted: DeadLetterFilter, *, after: str | None = None, with_body: bool = False
) -> Iterator[MessageView]:
    """Yield dead letters. The queue that a policy names may have messages of its own among them, which are left out."""
    while views := broker.peek(dlq, _PAGE, after=after, wanted=wanted, with_body=with_body):
        yield from (view for view in views if is_dlq(dlq) or view.dead is not None)
        after = views[-1].id


@broker_command(group=dlq_command)
def redrives(broker: Broker) -> Printed:
    """Show running and recently ended redrives, with their progress."""
    views = broker.redrives()
    return views, [tables.of_redrives(views)]


@broker_command(click.argument("redrive_id", metavar="ID"), group=dlq_command)
def stop(broker: Broker, redrive_id: str) -> Printed:
    """Stop a redrive. Messages that have moved stay moved."""
    view = broker.stop_redrive(redrive_id)
    return view, _summary(view)


@click.command(name="redrive")
@QUEUE
@click.option("--count", type=click.IntRange(min=1), help="Maximum number of messages to move.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum number of messages per second.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only count the messages.")
@click.option("--to", "target", metavar="QUEUE", help="Queue to move them to. Default: the one each came from.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until it is done (an interrupt stops it), or return at once."
)
@click.option("--where", metavar="SQL", help="Only messages that meet this condition, which Spark evaluates.")
@MASTER
@filter_options
@pass_session
def redrive_command(session: Session, /, queue: str, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Move dead letters back to their queues, or to another queue. QUEUE is the queue or its dead-letter queue.

    Messages that have moved stay moved, even if the redrive is stopped. A redrive continues after a restart of the
    broker. With --data the command always waits, because it runs the broker itself.
    """
    if options["where"] is not None:
        _redrive_selected(session, queue, options)
        return
    with stoppable(), session.broker() as broker:
        dlq, wanted = dead_letters_of(broker, queue, filter_of(options))
        view = broker.redrive(
            dlq,
            wanted=wanted,
            count=options["count"],
            rate=options["rate"],
            is_dry_run=options["is_dry_run"],
            target=options["target"],
        )
        if options["wait"] or view.is_dry_run or session.endpoint.is_embedded:
            view = follow(broker, view)
    session.answer(view, _summary(view))
    if view.status == "failed":
        raise Quit(REFUSED)


def _redrive_selected(session: Session, queue: str, options: dict[str, Any]) -> None:
    """Select dead letters with Spark, print what was selected, and redrive them by id in batches."""
    place, spark = server_address_of(session), begin_spark(options["master"])
    from fairlane.spark.bulk.dead_letters import choose

    chosen = on_spark(spark, partial(choose, spark, place, queue, options["where"]))
    for reason, error, count in chosen.by_error[:_ERRORS_SHOWN]:
        click.echo(f"{count:>8,}  {reason}  {printable(error)}", err=True)
    ids = chosen.ids if options["count"] is None else chosen.ids[: options["count"]]
    moved = 0
    with stoppable(), session.broker() as broker:
        for batch in (ids[at : at + BATCH_MAX] for at in range(0, len(ids), BATCH_MAX)):
            if options["is_dry_run"]:
                break
            wanted = msgspec.structs.replace(filter_of(options), ids=batch)
            view = follow(
                broker, broker.redrive(own_dlq(queue), wanted=wanted, rate=options["rate"], target=options["target"])
            )
            moved += view.moved
            if view.status != "done":
                raise Quit(REFUSED)
    facts = {"total": chosen.total, "matched": len(ids), "moved": moved, "is_dry_run": options["is_dry_run"]}
    selected = f"{message_count(len(ids))} of {chosen.total:,} in {own_dlq(queue)}"
    text = f"Would move {selected}." if options["is_dry_run"] else f"Selected {selected}; moved {moved:,}."
    session.answer(facts, text)


def follow(broker: Broker, view: RedriveView) -> RedriveView:
    """Show the progress of a redrive until it ends; an interrupt stops it."""
    pause = Event()
    try:
        with progress(f"Redriving {view.queue}") as bar:
            while view.status == "running":
                bar.set(view.scanned if view.is_dry_run else view.scanned - view.matched + view.moved, view.total)
                pause.wait(_POLL_S)
                view = broker.redrive_view(view.id)
    except KeyboardInterrupt:
        click.echo(f"\n{_summary(broker.stop_redrive(view.id))}", err=True)
        raise
    return view


def _summary(view: RedriveView) -> str:
    if view.is_dry_run:
        return f"Would move {message_count(view.matched)} of {view.total} in {view.queue}."
    moved = f"{message_count(view.moved)} from {view.queue}"
    match view.status:
        case "running":
            return f"Started redrive {view.id} of {view.queue}."
        case "failed":
            return f"Redrive failed after moving {moved}: {printable(view.error or '')}"
        case "stopped":
            return f"Redrive stopped after moving {moved}."
    return f"Moved {moved}."
