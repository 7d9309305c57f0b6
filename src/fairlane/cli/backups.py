"""The commands ``backup`` and ``restore``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from fairlane.cli.interaction import progress, stoppable
from fairlane.cli.parameters import FOLDER
from fairlane.cli.session import Session, pass_session
from fairlane.data_folder import STORE_FOLDER, mark_made


@click.command(name="backup")
@click.argument("folder", type=FOLDER)
@click.option("--queue", help="In a cluster: a queue of the group to back up.")
@pass_session
def backup_command(session: Session, *, folder: Path, queue: str | None) -> None:
    """Back up the store of a running server to a new folder.

    The server keeps running. The backup has everything that was answered before its mark, which the command prints and
    stores in FOLDER/backup.json. It is read and verified before the command ends. With --data, a folder that no server
    has open is backed up. The API key needs the right admin on all queues. A backup holds payloads and the hashes of
    API keys, so keep it as safe as the server.
    """
    from fairlane.backup import back_up

    with stoppable(), session.broker() as broker, progress("backing up") as bar:
        mark = back_up(broker, folder, queue=queue, progress=bar.set)
    at = datetime.fromtimestamp(mark.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    session.answer(
        mark, f"Backed up {mark.messages} messages and the journal up to position {mark.position} ({at}) to {folder}."
    )


@click.command(name="restore")
@click.argument("backup", type=FOLDER)
@click.argument("target", metavar="TO")
@pass_session
def restore_command(session: Session, *, backup: Path, target: str) -> None:
    """Restore a backup to a new data folder, or to a store at a URL.

    TO must be new or empty: a URL, or the data folder of a server that has not been started or whose store is gone. The
    whole backup is read and compared with the copy. The restored store has a new journal id, so readers of the journal
    notice the restore. Its ids continue far above any that may have been issued since the backup, so no id is issued
    twice.
    """
    from fairlane.assembly import is_place, shown_url
    from fairlane.backup import restore_backup

    is_data = not is_place(target)
    with stoppable(), progress("restoring") as bar:
        done = restore_backup(backup, str(Path(target) / STORE_FOLDER) if is_data else target, bar.set)
    if is_data:
        mark_made(Path(target), sequence=done.next_sequence)
    shown = target if is_data else shown_url(target)
    session.answer(
        done,
        f"Restored {done.messages} messages and the journal up to position {done.last_sequence} to {shown}. "
        f"Its journal is {done.journal_id}, from {done.next_sequence} on.",
    )
