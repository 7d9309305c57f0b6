"""What a shell evaluates: the variables of a leased message, and completion scripts.

``fairlane lease`` hands a message to a shell script as ``export`` lines, with payload and workflow state in files.
``ack``, ``nack``, ``extend`` and ``state`` read those variables back.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import click
from click.shell_completion import get_completion_class

from fairlane.cli.formatting import as_json
from fairlane.cli.payload_streams import copy_payload
from fairlane.cli.session import Broker
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Receipt, key_text

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
_TEMPORARY_PREFIX = "fairlane-"
_STARTUP_FILES = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/fairlane.fish",
}


@contextmanager
def returned_on_error(broker: Broker, deliveries: list[Delivery]) -> Iterator[None]:
    """Return leased messages to the queue if the block fails, so that they need not wait until the leases end."""
    try:
        yield
    except BaseException:
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        with suppress(FairlaneError):
            broker.nack_many(deliveries[0].queue, receipts, intent="defer", delay_ms=0)
        raise


def export_message(broker: Broker, delivery: Delivery, path: Path | None, *, is_json: bool) -> None:
    """Write payload and state to files, and print the variables of the message, or the same facts as JSON."""
    payload_path = _write(partial(copy_payload, broker, delivery), path)
    state = delivery.state
    state_path = None if state is None else _write(lambda file: file.write(state), None)
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
        KEY: key_text(delivery.fairness_key),
        ATTEMPT: str(delivery.attempt),
        CORRELATION_ID: delivery.correlation_id,
    }
    if state_path is not None and delivery.state_etag is not None:
        values |= {STATE_PATH: str(state_path), STATE_ETAG: delivery.state_etag}
    click.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items()))
    # A previous message may have set variables that this one does not have.
    if unset := [name for name in VARIABLES if name not in values]:
        click.echo(f"unset {' '.join(unset)}")


def export_failure(exit_code: int) -> None:
    """Print lines that unset the variables of the previous message and make ``eval`` fail with an exit code."""
    click.echo(f"unset {' '.join(VARIABLES)}\n(exit {exit_code})")


def _write(fill: Callable[[BinaryIO], object], path: Path | None) -> Path:
    """Write a file; without a path, a new temporary file that only its owner can read."""
    if path is not None:
        with path.open("wb") as file:
            fill(file)
        return path.absolute()
    handle, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def remove_temporary_files() -> None:
    """Remove the temporary files that ``lease`` created. Files that the user chose stay."""
    for variable in (PAYLOAD_PATH, STATE_PATH):
        path = Path(os.environ.get(variable, ""))
        if path.name.startswith(_TEMPORARY_PREFIX) and path.parent == Path(tempfile.gettempdir()):
            path.unlink(missing_ok=True)


_COMPLETION_USAGE = """\b
Enable completion in the current shell:
  bash, zsh   eval "$(fairlane completion bash)"
  fish        fairlane completion fish | source

\b
Add that line to your startup file to enable it for good:
"""


@click.command(
    name="completion",
    epilog=_COMPLETION_USAGE + "\n".join(f"  {shell:<10}  {file}" for shell, file in _STARTUP_FILES.items()),
)
@click.argument("shell", type=click.Choice(list(_STARTUP_FILES)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options and the names of queues.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"Completion for {shell} is not available.")
    root = context.find_root()
    script = kind(root.command, {}, "fairlane", "_FAIRLANE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
