"""The commands for one message at a time in a shell: ``dequeue``, ``ack``, ``nack``, ``extend``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fairlane.cli import shell as handover
from fairlane.cli.door import Door
from fairlane.cli.durations import DURATION, PATIENCE
from fairlane.cli.errors import NOTHING, Stop, exit_code_of
from fairlane.cli.output import answer, as_json, instant
from fairlane.cli.patience import lease
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.errors import FairlaneError
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import Receipt

Command = TypeVar("Command", bound=Callable[..., None])


@click.command(name="dequeue")
@QUEUE
@click.option("--wait", type=PATIENCE, default=0, help="How long to wait for a message; by default not at all.")
@click.option("--visibility", type=DURATION, help="How long the lease lasts; by default what the queue's policy says.")
@click.option("--count", type=click.IntRange(1, BATCH_MAX), default=1, help="How many; several only as JSON lines.")
@click.option("--owner", help="Who leases it, for those who look.")
@click.option("--with-state", is_flag=True, help="Take the workflow state along.")
@click.option(
    "--payload-out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the payload; by default a new temporary file, which ack and nack remove.",
)
@pass_session
def dequeue_command(session: Session, /, queue: str, **options: Any) -> None:  # noqa: ANN401 - click's
    r"""Lease a message and print the lines that export what ack, nack and extend need.

    \b
    while job=$(fairlane dequeue orders --wait 10s); do
      eval "$job"
      work-on "$FAIRLANE_QUEUE_PAYLOAD_PATH" && fairlane ack || fairlane nack --error "exit $?"
    done
    """
    if options["count"] > 1 and (options["payload_out"] is not None or not session.is_json):
        raise click.UsageError("A shell has room for one message. For several say --output json, no --payload-out.")
    try:
        with session.door() as door:
            is_found = _hand_over(session, door, queue, options)
    except (FairlaneError, OSError) as error:
        if not session.is_json:
            handover.take_back(exit_code_of(error))
        raise
    if not is_found:
        if not session.is_json:
            handover.take_back(NOTHING)
        raise Stop(NOTHING)


def _hand_over(session: Session, door: Door, queue: str, options: dict[str, Any]) -> bool:
    """Lease what is asked for and print it; tell whether there was anything."""
    deliveries = lease(
        door,
        queue,
        options["count"],
        wait_ms=options["wait"],
        visibility_ms=options["visibility"],
        owner=options["owner"],
        with_state=options["with_state"],
    )
    if not deliveries:
        return False
    with handover.or_given_back(door, deliveries):
        if session.is_json and options["payload_out"] is None:
            click.echo("\n".join(as_json(delivery) for delivery in deliveries))
        else:
            handover.give(deliveries[0], options["payload_out"], is_json=session.is_json)
    return True


def _named(flag: str, variable: str, words: str, kind: type) -> Callable[[Command], Command]:
    return click.option(flag, envvar=variable, required=True, show_envvar=True, type=kind, help=words)


def message_options(command: Command) -> Command:
    """Add the options that say which message is meant."""
    command = _named("--id", handover.MESSAGE_ID, "The message.", str)(command)
    return _named("--queue", handover.NAME, "The queue it was leased from.", str)(command)


def receipt_options(command: Command) -> Command:
    """Add the options that say which leased message is meant."""
    return message_options(_named("--token", handover.TOKEN, "The token of its lease.", int)(command))


@click.command(name="ack")
@receipt_options
@click.option("--cost", type=int, help="What it did cost; its key is charged for that.")
@pass_session
def ack_command(session: Session, *, queue: str, id: str, token: int, cost: int | None) -> None:
    """Let a leased message be done."""
    with session.door() as door:
        _only(door.ack_many(queue, [Receipt(id, token)], costs=None if cost is None else [cost]))
    handover.remove_payload()
    answer({"id": id, "queue": queue, "acked": True}, f"Message {id} is done.", is_json=session.is_json)


@click.command(name="nack")
@receipt_options
@click.option("--error", default="", help="What went wrong; dead letters keep it.")
@click.option(
    "--intent",
    type=click.Choice(["failure", "defer", "dead"]),
    default="failure",
    show_default=True,
    help="It failed, or is deferred without a failure, or goes to the dead letters at once.",
)
@click.option("--delay", type=DURATION, help="When it comes back; by default the policy's backoff.")
@pass_session
def nack_command(session: Session, /, *, queue: str, id: str, token: int, **options: Any) -> None:  # noqa: ANN401 - click's
    """Give a leased message back."""
    with session.door() as door:
        results = door.nack_many(
            queue, [Receipt(id, token)], error=options["error"], intent=options["intent"], delay_ms=options["delay"]
        )
        _only(results)
    handover.remove_payload()
    said = {"id": id, "queue": queue, "nacked": True, "intent": options["intent"]}
    answer(said, f"Message {id} is given back.", is_json=session.is_json)


@click.command(name="extend")
@receipt_options
@click.option("--visibility", type=DURATION, help="How long from now; by default what the queue's policy says.")
@pass_session
def extend_command(session: Session, *, queue: str, id: str, token: int, visibility: int | None) -> None:
    """Let a lease last longer, counted from now."""
    with session.door() as door:
        expires_ms = _only(door.extend_many(queue, [Receipt(id, token)], visibility_ms=visibility))
    said = {"id": id, "queue": queue, "expires_ms": expires_ms}
    answer(said, f"The lease of message {id} lasts until {instant(expires_ms)} UTC.", is_json=session.is_json)


Result = TypeVar("Result")


def _only(results: list[Result | FairlaneError]) -> Result:
    (result,) = results
    if isinstance(result, FairlaneError):
        raise result
    return result
