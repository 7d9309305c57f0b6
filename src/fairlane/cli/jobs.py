"""The command ``message``: where a message is in its life, what came of it, and how to end it or to try it again."""

from __future__ import annotations

import click

from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.dead_letters import follow
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.formatting import instant, now_ms, printable, size
from fairlane.cli.output import Table, raw_output
from fairlane.cli.parameters import WAIT_TIME
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.cli.tables import of_failures
from fairlane.errors import InvalidArgument, WaitTimedOut
from fairlane.model.message import key_text
from fairlane.model.status import StatusView
from fairlane.model.views import DeadLetterFilter

MESSAGE = click.argument("message_id", metavar="ID")
QUEUE_OPTION = click.option(
    "--queue", metavar="QUEUE", help="The queue of the message, so that a cluster finds it faster."
)

_WATCH_MS = 20_000
"""How long the server waits for one change, less than a client waits for its answer."""


@click.group(name="message")
def message_command() -> None:
    """Show the status of one message, get its result, cancel it, or retry it."""


@broker_command(
    MESSAGE,
    QUEUE_OPTION,
    click.option("--wait", "wait_ms", type=WAIT_TIME, default="0s", help="How long to wait for it to end."),
    name="show",
    group=message_command,
)
def show(broker: Broker, message_id: str, *, queue: str | None, wait_ms: int) -> Printed:
    """Show the status of a message: where it waits, who works on it, or how it ended."""
    view = broker.status(message_id, queue=queue, wait_ms=wait_ms)
    return view, of_status(view)


@message_command.command(name="watch")
@MESSAGE
@QUEUE_OPTION
@pass_session
def watch(session: Session, message_id: str, queue: str | None) -> None:
    """Print each change of a message until it ends: who works on it, its progress, failures, and how it ended."""
    with session.broker() as broker:
        view, told = broker.status(message_id, queue=queue), ""
        while True:
            if view.version != told:
                session.answer(view, _line_of(view))
            if view.is_final:
                return
            told = view.version
            view = broker.status(message_id, queue=queue, wait_ms=_WATCH_MS, after=told)


@message_command.command(name="result")
@MESSAGE
@QUEUE_OPTION
@click.option("--wait", "wait_ms", type=WAIT_TIME, default="0s", help="How long to wait for it to end.")
@pass_session
def result(session: Session, message_id: str, queue: str | None, wait_ms: int) -> None:
    """Print the result of a message, unchanged. Exit code 4 means that the message has not ended in time."""
    with session.broker() as broker:
        try:
            found = broker.result(message_id, queue=queue, wait_ms=wait_ms)
        except WaitTimedOut as error:
            click.echo(printable(str(error)), err=True)
            raise Quit(NOTHING) from None
    if found is not None:
        raw_output().write(found)


@broker_command(
    MESSAGE,
    QUEUE_OPTION,
    click.option("--reason", default="", help="Reason, shown to its consumer and to operators."),
    click.option("--only-waiting", is_flag=True, help="Leave it alone if a consumer has it."),
    name="cancel",
    group=message_command,
    asks="Cancel message {message_id}?",
)
def cancel(broker: Broker, message_id: str, *, queue: str | None, reason: str, only_waiting: bool) -> Printed:
    """Cancel a message. If a consumer has it, its lease is revoked, and the consumer is notified."""
    place = broker.status(message_id).queue if queue is None else queue
    broker.cancel(place, message_id, reason=reason, only_waiting=only_waiting)
    return {"id": message_id, "status": "cancelled"}, f"Cancelled message {message_id}."


@broker_command(MESSAGE, QUEUE_OPTION, name="retry", group=message_command)
def retry(broker: Broker, message_id: str, *, queue: str | None) -> Printed:
    """Move a dead letter back to the queue in which it died. Its count of attempts restarts at 0."""
    found = broker.status(message_id, queue=queue)
    if found.status != "dead":
        raise InvalidArgument(f"The status of message {message_id} is {found.status}; only a dead letter is retried.")
    moved = follow(broker, broker.redrive(found.queue, wanted=DeadLetterFilter(ids=(found.id,))))
    if moved.error is not None:
        raise InvalidArgument(f"Message {message_id} can't be moved: {moved.error}")
    place = broker.status(found.id).queue
    return {"id": found.id, "queue": place}, f"Moved message {found.id} to {place}."


def of_status(view: StatusView) -> list[Table]:
    """Return the tables of a status: facts, and failed and lost attempts."""
    facts = [
        ["id", view.id],
        ["queue", view.queue],
        ["status", view.status],
        ["key", key_text(view.fairness_key)],
        ["enqueued", instant(view.enqueued_ms)],
        ["attempts", f"{view.attempts}, {view.failures} failed"],
    ]
    optional = (
        ("why", view.words or view.reason),
        ("starts", None if view.starts_ms is None else f"about {instant(view.starts_ms)}"),
        ("worker", view.owner),
        ("since", None if view.since_ms is None else instant(view.since_ms)),
        ("lease ends", None if view.expires_ms is None else instant(view.expires_ms)),
        ("progress", _progress(view)),
        ("finished", None if view.finished_ms is None else instant(view.finished_ms)),
        ("result", None if view.result_bytes is None else size(view.result_bytes)),
        ("kept until", None if view.kept_until_ms is None else instant(view.kept_until_ms)),
    )
    found = [Table([], facts + [[name, value] for name, value in optional if value])]
    if view.errors:
        found += of_failures(view.errors)
    return found


def _line_of(view: StatusView) -> str:
    """Return a status in one line: what it is, and whatever is new about it."""
    facts: list[str] = [view.status]
    if view.owner is not None:
        facts += [f"attempt {view.attempts}", view.owner]
    facts += [fact for fact in (_progress(view), view.words or view.reason) if fact]
    if view.errors and view.status in ("failed", "dead"):
        facts.append(view.errors[-1].error)
    return printable(f"{instant(now_ms())}  {'  '.join(facts)}")


def _progress(view: StatusView) -> str | None:
    if view.progress is None:
        return None
    done = "" if view.progress.fraction is None else f"{view.progress.fraction:.0%} "
    return f"{done}{view.progress.note}".strip() or None
