"""The command ``consume``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import click

from fairlane.cli.door import Door
from fairlane.cli.durations import DURATION, PATIENCE, Patience
from fairlane.cli.errors import REFUSED, Stop
from fairlane.cli.output import as_json, raw_output
from fairlane.cli.patience import lease
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.cli.stopping import stoppable
from fairlane.cli.tables import messages
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Receipt

_BATCH = 32


@click.command(name="consume")
@QUEUE
@click.option("--follow", "-f", is_flag=True, help="Go on waiting for messages until interrupted.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@click.option("--wait", type=PATIENCE, default=0, help="How long to wait for the next before it ends; not at all.")
@click.option("--ack/--no-ack", "is_acking", default=True, help="Ack what was printed, or leave it leased.")
@click.option("--visibility", type=DURATION, help="How long the leases last; by default what the policy says.")
@click.option("--owner", help="Who leases them, for those who look.")
@pass_session
def consume_command(
    session: Session,
    queue: str,
    *,
    follow: bool,
    count: int | None,
    wait: int,
    is_acking: bool,
    visibility: int | None,
    owner: str | None,
) -> None:
    """Print the payloads of messages, a line each, and ack them.

    A message is acked once it has been written. It ends when nothing is left, unless told to --follow or to --wait.
    With --output json each line is a whole message; with --no-ack its id and token are there to ack it later.
    """
    wait_ms = Patience.forever_ms if follow else wait
    with stoppable(), session.door() as door:
        consuming = Consuming(door, queue, raw_output(), is_json=session.is_json, is_acking=is_acking)
        left = count
        while left is None or left > 0:
            most = _BATCH if left is None else min(_BATCH, left)
            deliveries = lease(door, queue, most, wait_ms=wait_ms, visibility_ms=visibility, owner=owner)
            if not deliveries:
                break
            consuming.take(deliveries)
            left = None if left is None else left - len(deliveries)
    if consuming.lost:
        click.echo(f"{messages(consuming.lost)} printed but not acked: their leases had ended.", err=True)
        raise Stop(REFUSED)


@dataclass(slots=True)
class Consuming:
    """Messages on their way to standard output."""

    door: Door
    queue: str
    output: BinaryIO
    is_json: bool
    is_acking: bool
    lost: int = 0

    def take(self, deliveries: list[Delivery]) -> None:
        """Print messages, and ack those that were printed; what could not be printed is given back."""
        printed = 0
        try:
            for delivery in deliveries:
                self._print(delivery)
                printed += 1
        finally:
            self._settle(deliveries[:printed], deliveries[printed:])

    def _print(self, delivery: Delivery) -> None:
        content = as_json(delivery).encode(errors="replace") if self.is_json else delivery.payload
        self.output.write(content + b"\n")
        self.output.flush()

    def _settle(self, printed: list[Delivery], unseen: list[Delivery]) -> None:
        if unseen:
            with suppress(FairlaneError):
                self.door.nack_many(self.queue, _receipts(unseen), intent="defer", delay_ms=0)
        if printed and self.is_acking:
            results = self.door.ack_many(self.queue, _receipts(printed))
            self.lost += sum(result is not None for result in results)


def _receipts(deliveries: list[Delivery]) -> list[Receipt]:
    return [Receipt(delivery.id, delivery.token) for delivery in deliveries]
