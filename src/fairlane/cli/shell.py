"""How a leased message is handed to a shell and back: lines of ``export``, and files for payload and state."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

from fairlane.cli.door import Door
from fairlane.cli.output import as_json
from fairlane.cli.parameters import written
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Receipt

NAME: Final = "FAIRLANE_QUEUE_NAME"
MESSAGE_ID: Final = "FAIRLANE_QUEUE_MESSAGE_ID"
TOKEN: Final = "FAIRLANE_QUEUE_TOKEN"  # noqa: S105 - the name of a variable
PAYLOAD_PATH: Final = "FAIRLANE_QUEUE_PAYLOAD_PATH"
STATE_PATH: Final = "FAIRLANE_QUEUE_STATE_PATH"
STATE_ETAG: Final = "FAIRLANE_QUEUE_STATE_ETAG"
KEY: Final = "FAIRLANE_QUEUE_KEY"
ATTEMPT: Final = "FAIRLANE_QUEUE_ATTEMPT"
CORRELATION_ID: Final = "FAIRLANE_QUEUE_CORRELATION_ID"
VARIABLES: Final = (
    NAME, MESSAGE_ID, TOKEN, PAYLOAD_PATH, STATE_PATH, STATE_ETAG, KEY, ATTEMPT, CORRELATION_ID,
)  # fmt: skip
_PREFIX = "fairlane-"


@contextmanager
def or_given_back(door: Door, deliveries: list[Delivery]) -> Iterator[None]:
    """Defer leased messages if they can't be handed over, so that nobody waits for their leases to end."""
    try:
        yield
    except BaseException:
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        with suppress(FairlaneError):
            door.nack_many(deliveries[0].queue, receipts, intent="defer", delay_ms=0)
        raise


def give(delivery: Delivery, path: Path | None, *, is_json: bool) -> None:
    """Write the payload, and the state if there is one, to files, and print what a shell or a program needs."""
    payload_path = _write(delivery.payload, path)
    state_path = None if delivery.state is None else _write(delivery.state, None)
    if is_json:
        facts = {
            name: getattr(delivery, name) for name in Delivery.__struct_fields__ if name not in ("payload", "state")
        }
        click.echo(as_json(facts | {"payload_path": str(payload_path), "state_path": state_path and str(state_path)}))
        return
    values = {
        NAME: delivery.queue,
        MESSAGE_ID: delivery.id,
        TOKEN: str(delivery.token),
        PAYLOAD_PATH: str(payload_path),
        KEY: written(delivery.fairness_key),
        ATTEMPT: str(delivery.attempt),
        CORRELATION_ID: delivery.correlation_id,
    }
    if state_path is not None and delivery.state_etag is not None:
        values |= {STATE_PATH: str(state_path), STATE_ETAG: delivery.state_etag}
    click.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items()))
    if unsaid := [name for name in VARIABLES if name not in values]:
        click.echo(f"unset {' '.join(unsaid)}")


def take_back(exit_code: int) -> None:
    """Print lines that let ``eval`` forget the message before, and fail with an exit code."""
    click.echo(f"unset {' '.join(VARIABLES)}\n(exit {exit_code})")


def _write(content: bytes, path: Path | None) -> Path:
    """Write to a file, or to a new temporary one that only its owner can read."""
    if path is not None:
        path.write_bytes(content)
        return path.absolute()
    handle, name = tempfile.mkstemp(prefix=_PREFIX)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(name)


def remove_payload() -> None:
    """Remove the temporary files that ``dequeue`` made; those that it was told to write stay."""
    for variable in (PAYLOAD_PATH, STATE_PATH):
        path = Path(os.environ.get(variable, ""))
        if path.name.startswith(_PREFIX) and path.parent == Path(tempfile.gettempdir()):
            path.unlink(missing_ok=True)
