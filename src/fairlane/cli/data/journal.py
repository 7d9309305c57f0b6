"""The command ``journal export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairlane.cli.output import answer
from fairlane.cli.session import Session, pass_session
from fairlane.cli.stopping import stoppable

FOLDER = click.Path(file_okay=False, path_type=Path)
_EVENTS = 10_000


@click.group(name="journal")
def journal_command() -> None:
    """Export the journal, for the pipeline and for what-if."""


@journal_command.command(name="export")
@click.option("--to", "folder", type=FOLDER, required=True, help="The folder to write Parquet files to.")
@click.option("--queue", help="In a cluster, a queue of the group whose journal it shall be.")
@pass_session
def export_command(session: Session, *, folder: Path, queue: str | None) -> None:
    """Write the events of the journal that are not in a folder yet, as Parquet. It can be interrupted and repeated.

    A server's journal is written up to its end, that of a folder as far as its segments are sealed.
    """
    with stoppable():
        files = _of_folder(session, folder) if session.place.is_embedded else _of_server(session, folder, queue)
    answer([str(path) for path in files], f"{len(files)} new files in {folder}.", is_json=session.is_json)


def _of_server(session: Session, folder: Path, queue: str | None) -> list[Path]:
    from fairlane.assembly import export_events
    from fairlane.client import Client

    place = session.place
    with Client(place.server, api_key=place.api_key, tls=place.tls(), timeout=place.timeout_s) as client:

        def read(after: int) -> tuple[Sequence[dict[str, Any]], int]:
            found = client.read_journal(after, count=_EVENTS, queue=queue)
            return found.events, found.position

        return export_events(read, folder, tell=lambda position: click.echo(f"up to {position:,}", err=True))


def _of_folder(session: Session, folder: Path) -> list[Path]:
    from fairlane.assembly import export_journal, open_broker

    before = set(folder.glob("journal-*.parquet"))
    with open_broker(session.place.store) as broker:
        return [path for path in export_journal(broker, folder) if path not in before]
