"""The commands ``state …``: workflow state that stays with a message from attempt to attempt."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fairlane.cli import shell as handover
from fairlane.cli.errors import NOTHING, Stop
from fairlane.cli.leases import message_options, receipt_options
from fairlane.cli.output import answer, raw_output
from fairlane.cli.session import Session, pass_session
from fairlane.model.message import Delivery


@click.group(name="state")
def state_command() -> None:
    """Read and write the workflow state of a leased message."""


@state_command.command()
@message_options
@pass_session
def get(session: Session, *, queue: str, id: str) -> None:
    """Print the workflow state of a message; exit code 4 if there is none."""
    with session.door() as door:
        state, etag = door.get_state(queue, id)
    if state is None:
        raise Stop(NOTHING)
    if session.is_json:
        answer({"state": state, "etag": etag}, "", is_json=True)
        return
    raw_output().write(state)


@state_command.command()
@receipt_options
@click.option("--file", "path", metavar="FILE", default="-", help="Where the state is; by default standard input.")
@click.option("--remove", "is_removing", is_flag=True, help="Remove the state instead.")
@click.option(
    "--etag",
    envvar=handover.STATE_ETAG,
    show_envvar=True,
    help="The version that is there now, as far as you know; by default that there is none.",
)
@pass_session
def put(
    session: Session,
    *,
    queue: str,
    id: str,
    token: int,
    path: str,
    is_removing: bool,
    etag: str | None,
) -> None:
    """Write the workflow state of a leased message, and print the line that exports its new version.

    It is written only if nobody else has written meanwhile.
    """
    state = None if is_removing else sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    with session.door() as door:
        new_etag = door.set_state(_held(queue, id, token), state, etag=etag or None)
    line = f"unset {handover.STATE_ETAG}" if new_etag is None else f"export {handover.STATE_ETAG}={new_etag}"
    answer({"id": id, "queue": queue, "etag": new_etag}, line, is_json=session.is_json)


def _held(queue: str, message_id: str, token: int) -> Delivery:
    """Return what has the right to a leased message, without the message."""
    return Delivery(
        id=message_id,
        queue=queue,
        token=token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=1,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )
