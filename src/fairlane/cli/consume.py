"""The command ``consume``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

import click

from fairlane.cli.errors import NOTHING, REFUSED, Quit
from fairlane.cli.formatting import as_json, message_count
from fairlane.cli.interaction import stoppable
from fairlane.cli.leases import lease
from fairlane.cli.output import raw_output
from fairlane.cli.parameters import DURATION, QUEUE, WAIT_TIME, WaitTime
from fairlane.cli.payload_streams import copy_payload
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Receipt

_BATCH = 32
_SHOWN = 10


@click.command(name="consume")
@QUEUE
@click.option("--follow", "-f", is_flag=True, help="Keep waiting for messages until interrupted.")
@click.option(
    "--count", type=click.IntRange(min=1), help=f"Stop after this many messages. Default without --ack: {_SHOWN}."
)
@click.option("--wait", type=WAIT_TIME, default=0, help="How long to wait for the next message. Default: do not wait.")
@click.option(
    "--ack/--no-ack",
    "is_acking",
    default=None,
    help="Acknowledge printed messages, or leave them leased. Default: return them when the command ends.",
)
@click.option("--visibility", type=DURATION, help="How long the leases last. Default: the queue's visibility timeout.")
@click.option("--owner", help="Name of the consumer, shown to operators.")
@pass_session
def consume_command(
    session: Session,
    queue: str,
    *,
    follow: bool,
    count: int | None,
    wait: int,
    is_acking: bool | None,
    visibility: int | None,
    owner: str | None,
) -> None:
    """Print the payloads of messages, one per line; with --ack, acknowledge them.

    With --ack each message is acknowledged after it has been written, so it is gone from the queue. With --no-ack it
    stays leased; use the id and token that --output json prints to acknowledge it later. Without either, the first
    messages are printed, and returned to the queue when the command ends.

    The command ends when the queue is empty, unless --follow or --wait is given. Exit code 4 means that no message was
    printed. With --output json each line is a complete message. A payload above payload_bytes_max is printed as it
    arrives; JSON has only its size.
    """
    if follow and is_acking is None:
        raise click.UsageError("--follow needs --ack or --no-ack.")
    if is_acking is None and count is None:
        count = _SHOWN
    wait_ms = WaitTime.forever_ms if follow else wait
    with stoppable(), session.broker() as broker:
        printer = MessagePrinter(broker, queue, raw_output(), is_json=session.is_json, is_acking=is_acking)
        try:
            while batch := _BATCH if count is None else min(_BATCH, count - printer.printed):
                deliveries = lease(broker, queue, batch, wait_ms=wait_ms, visibility_ms=visibility, owner=owner)
                if not deliveries:
                    break
                printer.take(deliveries)
        finally:
            printer.end()
    if printer.lost:
        lost = message_count(printer.lost)
        click.echo(f"{lost} printed but not acknowledged, because their leases had ended.", err=True)
        raise Quit(REFUSED)
    if not printer.printed:
        raise Quit(NOTHING)


@dataclass(slots=True)
class MessagePrinter:
    """Prints leased messages and settles them."""

    broker: Broker
    queue: str
    output: BinaryIO
    is_json: bool
    is_acking: bool | None
    printed: int = 0
    lost: int = 0
    """How many messages were printed but could not be acknowledged."""
    shown: list[Receipt] = field(default_factory=list)
    """What was printed and is to be returned."""

    def take(self, deliveries: list[Delivery]) -> None:
        """Print messages and acknowledge them; return those that could not be printed to the queue."""
        count = 0
        try:
            for delivery in deliveries:
                self._print(delivery)
                count += 1
        finally:
            self.printed += count
            self._settle(deliveries[:count], deliveries[count:])

    def end(self) -> None:
        """Return what was printed but is neither acknowledged nor to stay leased."""
        if not self.shown:
            return
        with suppress(FairlaneError):  # then they return when their leases end
            self.broker.nack_many(self.queue, self.shown, intent="defer", delay_ms=0)
        click.echo(f"{message_count(len(self.shown))} printed and returned. Pass --ack to acknowledge them.", err=True)

    def _print(self, delivery: Delivery) -> None:
        if self.is_json:
            self.output.write(as_json(delivery).encode(errors="replace"))
        else:
            copy_payload(self.broker, delivery, self.output)
        self.output.write(b"\n")
        self.output.flush()

    def _settle(self, printed: list[Delivery], unprinted: list[Delivery]) -> None:
        if unprinted:
            with suppress(FairlaneError):
                self.broker.nack_many(self.queue, _receipts(unprinted), intent="defer", delay_ms=0)
        if printed and self.is_acking:
            results = self.broker.ack_many(self.queue, _receipts(printed))
            self.lost += sum(result is not None for result in results)
        elif self.is_acking is None:
            self.shown += _receipts(printed)


def _receipts(deliveries: list[Delivery]) -> list[Receipt]:
    return [Receipt(delivery.id, delivery.token) for delivery in deliveries]
