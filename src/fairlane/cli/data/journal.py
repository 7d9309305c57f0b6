"""The command ``journal export``."""

from __future__ import annotations

from pathlib import Path

import click

from fairlane.cli.interaction import stoppable
from fairlane.cli.parameters import FOLDER
from fairlane.cli.session import Session, pass_session
from fairlane.verbs.journal import Events, OnTrimmed

_EVENTS = 10_000


@click.group(name="journal")
def journal_command() -> None:
    """Export the journal for the pipeline and for what-if."""


@journal_command.command(name="export")
@click.option("--to", "folder", type=FOLDER, required=True, help="Folder for the Parquet files.")
@click.option("--queue", help="In a cluster: a queue of the group whose journal to export.")
@pass_session
def export_command(session: Session, *, folder: Path, queue: str | None) -> None:
    """Export new journal events as Parquet files.

    The command continues where the folder ends, so it can be interrupted and repeated. A server's journal is exported
    to its end, that of a data folder (--data) up to its last sealed segment.
    """
    with stoppable():
        files = _from_folder(session, folder) if session.endpoint.is_embedded else _from_server(session, folder, queue)
    session.answer([str(path) for path in files], f"New files in {folder}: {len(files)}.")


def _from_server(session: Session, folder: Path, queue: str | None) -> list[Path]:
    from fairlane.assembly import export_events
    from fairlane.client import Client

    endpoint = session.endpoint
    with Client(endpoint.server, api_key=endpoint.api_key, tls=endpoint.tls(), timeout=endpoint.timeout_s) as client:

        def read(after: int, on_trimmed: OnTrimmed) -> Events:
            return client.read_journal(after, count=_EVENTS, queue=queue, on_trimmed=on_trimmed)

        return export_events(
            read, folder, tell=lambda position: click.echo(f"exported up to position {position:,}", err=True)
        )


def _from_folder(session: Session, folder: Path) -> list[Path]:
    from fairlane.assembly import export_journal, open_broker

    before = set(folder.glob("journal-*.parquet"))
    with open_broker(session.endpoint.store) as broker:
        return [path for path in export_journal(broker, folder) if path not in before]
