"""The commands ``lease``, ``ack``, ``nack``, ``extend`` and ``state``: one leased message at a time, in a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import click

from fairlane.cli import shell
from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.errors import NOTHING, Quit, exit_code_of
from fairlane.cli.formatting import as_json, instant
from fairlane.cli.output import raw_output
from fairlane.cli.parameters import DURATION, QUEUE, WAIT_TIME
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.errors import FairlaneError
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import Became, Delivery, Receipt
from fairlane.verbs.leases import NackIntent, SetState

Command = TypeVar("Command", bound=Callable[..., None])
Result = TypeVar("Result")
_BECAME: dict[Became, str] = {
    "waiting": "waits for its turn",
    "delayed": "waits for its delay",
    "dead": "is a dead letter",
    "expired": "has passed its deadline",
}
_REQUEST_WAIT_MS = 20_000
"""How long one lease request waits; a longer wait is several requests."""
_LEASE_EXAMPLE = """\b
Example:
  while job=$(fairlane lease orders --wait 10s); do
    eval "$job"
    ./handle "$FAIRLANE_QUEUE_PAYLOAD_PATH" && fairlane ack || fairlane nack --error "exit $?"
  done
"""


def lease(
    broker: Broker,
    queue: str,
    count: int,
    *,
    wait_ms: int,
    visibility_ms: int | None = None,
    owner: str | None = None,
    with_state: bool = False,
) -> list[Delivery]:
    """Lease messages and return them, waiting for the first one up to ``wait_ms``."""
    until = monotonic() + wait_ms / 1000
    rest_ms = wait_ms
    while True:
        leased = broker.lease(
            queue,
            count,
            wait_ms=min(rest_ms, _REQUEST_WAIT_MS),
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
        )
        if leased or rest_ms <= _REQUEST_WAIT_MS:
            return [one if isinstance(one, Delivery) else one.delivery for one in leased]
        rest_ms = max(0, int((until - monotonic()) * 1000))


@click.command(name="lease", epilog=_LEASE_EXAMPLE)
@QUEUE
@click.option("--wait", type=WAIT_TIME, default=0, help="How long to wait for a message. Default: do not wait.")
@click.option("--block", "is_blocking", is_flag=True, help="Wait until there is a message, like --wait forever.")
@click.option("--visibility", type=DURATION, help="How long the lease lasts. Default: the queue's visibility timeout.")
@click.option(
    "--count", type=click.IntRange(1, BATCH_MAX), default=1, help="Number of messages; above 1 only with --output json."
)
@click.option("--owner", help="Name of the consumer, shown to operators.")
@click.option("--with-state", "--stateful", "with_state", is_flag=True, help="Include the workflow state.")
@click.option(
    "--payload-out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File for the payload. Default: a new temporary file, which ack and nack remove.",
)
@pass_session
def lease_command(session: Session, /, queue: str, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Lease a message and print it as shell variables.

    Evaluate the output to set the variables that ack, nack and extend read. Exit code 4 means that no message was
    available.
    """
    if options["count"] > 1 and (options["payload_out"] is not None or not session.is_json):
        raise click.UsageError("--count above 1 needs --output json and does not work with --payload-out.")
    if options["is_blocking"] and options["wait"]:
        raise click.UsageError("Pass either --block or --wait.")
    try:
        with session.broker() as broker:
            is_found = _lease_and_print(session, broker, queue, options)
    except (FairlaneError, OSError) as error:
        if not session.is_json:
            shell.export_failure(exit_code_of(error))
        raise
    if not is_found:
        if not session.is_json:
            shell.export_failure(NOTHING)
        raise Quit(NOTHING)


def _lease_and_print(session: Session, broker: Broker, queue: str, options: dict[str, Any]) -> bool:
    """Lease messages and print them; return whether there were any."""
    deliveries = lease(
        broker,
        queue,
        options["count"],
        wait_ms=WAIT_TIME.forever_ms if options["is_blocking"] else options["wait"],
        visibility_ms=options["visibility"],
        owner=options["owner"],
        with_state=options["with_state"],
    )
    if not deliveries:
        return False
    with shell.returned_on_error(broker, deliveries):
        if session.is_json and options["payload_out"] is None:
            click.echo("\n".join(as_json(delivery) for delivery in deliveries))
        else:
            shell.export_message(
                broker,
                deliveries[0],
                options["payload_out"],
                is_json=session.is_json,
            )
    return True


def _from_environment(flag: str, variable: str, text: str, kind: type) -> Callable[[Command], Command]:
    return click.option(flag, envvar=variable, required=True, show_envvar=True, type=kind, help=text)


def message_options(command: Command) -> Command:
    """Add the options that name a message."""
    command = _from_environment("--id", shell.MESSAGE_ID, "Id of the message.", str)(command)
    return _from_environment("--queue", shell.NAME, "Queue that it was leased from.", str)(command)


def receipt_options(command: Command) -> Command:
    """Add the options that name a leased message."""
    return message_options(_from_environment("--token", shell.TOKEN, "Fencing token of its lease.", int)(command))


@broker_command(
    receipt_options,
    click.option("--cost", type=int, help="Actual cost of the message, charged to its fairness key."),
    name="ack",
)
def ack_command(broker: Broker, *, queue: str, id: str, token: int, cost: int | None) -> Printed:
    """Acknowledge a leased message. The broker deletes it together with its state."""
    _only(broker.ack_many(queue, [Receipt(id, token)], costs=None if cost is None else [cost]))
    shell.remove_temporary_files()
    return {"id": id, "queue": queue, "acked": True}, f"Acknowledged message {id}."


@broker_command(
    receipt_options,
    click.option("--error", default="", help="What went wrong; kept with the message."),
    click.option(
        "--intent",
        type=click.Choice(["failure", "defer", "dead"]),
        default="failure",
        show_default=True,
        help="Count a failed attempt, defer without one, or move the message to the dead letters at once.",
    ),
    click.option("--delay", type=DURATION, help="Time until it can be leased again. Default: the queue's backoff."),
    name="nack",
)
def nack_command(
    broker: Broker, *, queue: str, id: str, token: int, error: str, intent: NackIntent, delay: int | None
) -> Printed:
    """Return a leased message to its queue, because it failed or to defer it."""
    became: Became = _only(broker.nack_many(queue, [Receipt(id, token)], error=error, intent=intent, delay_ms=delay))
    shell.remove_temporary_files()
    printed = {"id": id, "queue": queue, "nacked": True, "intent": intent, "became": became}
    return printed, f"Returned message {id}: it {_BECAME[became]}."


@broker_command(
    receipt_options,
    click.option("--visibility", type=DURATION, help="New duration from now. Default: the queue's visibility timeout."),
    name="extend",
)
def extend_command(broker: Broker, *, queue: str, id: str, token: int, visibility: int | None) -> Printed:
    """Extend the lease of a message, counted from now."""
    expires_ms = _only(broker.extend_many(queue, [Receipt(id, token)], visibility_ms=visibility))
    facts = {"id": id, "queue": queue, "expires_ms": expires_ms}
    return facts, f"Extended the lease of message {id} until {instant(expires_ms)} UTC."


def _only(results: list[Result | FairlaneError]) -> Result:
    (result,) = results
    if isinstance(result, FairlaneError):
        raise result
    return result


@click.group(name="state")
def state_command() -> None:
    """Read and write the workflow state of a leased message."""


@state_command.command()
@message_options
@pass_session
def get(session: Session, *, queue: str, id: str) -> None:
    """Print the workflow state of a message. Exit code 4 means that it has none."""
    with session.broker() as broker:
        state, etag = broker.get_state(queue, id)
    if state is None:
        raise Quit(NOTHING)
    if session.is_json:
        session.answer({"state": state, "etag": etag}, "")
        return
    raw_output().write(state)


@state_command.command()
@receipt_options
@click.option("--file", "path", metavar="FILE", default="-", help="File with the state. Default: standard input.")
@click.option("--remove", "is_removing", is_flag=True, help="Remove the state instead.")
@click.option(
    "--etag",
    envvar=shell.STATE_ETAG,
    show_envvar=True,
    help="Version that you expect to replace. Default: no state exists yet.",
)
@pass_session
def put(session: Session, *, queue: str, id: str, token: int, path: str, is_removing: bool, etag: str | None) -> None:
    """Write the workflow state of a leased message.

    The state is written only if its version is still the expected one. Evaluate the output to set the new version.
    """
    state = None if is_removing else sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    with session.broker() as broker:
        request = SetState(queue=queue, receipt=Receipt(id, token), state=state, etag=etag or None)
        new_etag = broker.call(request).etag
    line = f"unset {shell.STATE_ETAG}" if new_etag is None else f"export {shell.STATE_ETAG}={new_etag}"
    session.answer({"id": id, "queue": queue, "etag": new_etag}, line)
