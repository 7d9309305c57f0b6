"""The commands ``store check``, ``store repair``, ``store copy`` and ``store restored``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.errors import REFUSED, Quit
from fairlane.cli.interaction import confirm, progress, stoppable
from fairlane.cli.session import Session, pass_session
from fairlane.data_folder import STORE_FOLDER, is_marked

if TYPE_CHECKING:  # the other commands need no store
    from fairlane.cli.terminal import Bar
    from fairlane.maintenance import StoreReport

_SHOWN = 20


@click.group(name="store")
def store_command() -> None:
    """Check, repair or copy a store that no server has open, or declare it restored."""


@store_command.command(name="check")
@click.argument("place", metavar="FOLDER|URL")
@pass_session
def check_command(session: Session, place: str) -> None:
    """Read a whole store and report what is damaged. Nothing is changed.

    FOLDER is the data folder of a server, or the folder of an embedded broker. Stop the server first. The command exits
    with 0 if the store is intact, with 1 if it is damaged, and with 3 if it could not be checked.
    """
    from fairlane.maintenance import check_store

    with stoppable(), progress("checking") as bar:
        report = check_store(_store_in(place), bar.set)
    session.answer(_facts(report), _text(_shown(place), report))
    if not report.is_whole:
        raise Quit(REFUSED)


@store_command.command(name="repair")
@click.argument("folder")
@click.option("--dry-run", is_flag=True, help="Only report what would be lost.")
@click.option("--yes", is_flag=True, help="Repair without asking.")
@pass_session
def repair_command(session: Session, folder: str, *, dry_run: bool, yes: bool) -> None:
    """Copy the readable part of a damaged store to a new store that takes its place.

    Stop the server first. The command reports what is lost, and asks before it changes anything. It keeps the damaged
    files in a folder damaged-N inside the data folder, and may be interrupted and repeated. New ids and fencing tokens
    are greater than any that may have been issued before.
    """
    from fairlane.maintenance import repair_store

    folder = _store_in(folder)
    with stoppable(), progress("reading") as bar:
        plan = repair_store(folder, is_dry_run=True, progress=bar.set)
    if plan.found.is_whole or dry_run:
        session.answer(_facts(plan.found), _text(folder, plan.found))
        return
    if not session.is_json:
        click.echo(_text(folder, plan.found), err=True)
    confirm("Repair the store and continue without what is lost?", is_sure=yes)
    with stoppable(), progress("repairing") as bar:
        done = repair_store(folder, is_dry_run=False, progress=bar.set)
    aside = done.aside or "the folder damaged-N that the interrupted repair made"
    session.answer(
        {**_facts(done.found), "next_sequence": done.next_sequence, "aside": str(done.aside or "")},
        f"Repaired {folder}. The damaged files are in {aside}. The next sequence is {done.next_sequence}.",
    )


@store_command.command(name="copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--cluster", is_flag=True, help="TO is the store of a cluster; its nodes may be running.")
@pass_session
def copy_command(session: Session, source: str, target: str, *, cluster: bool) -> None:
    """Copy a store to another place or kind of store, and compare the two.

    FROM and TO are folders, log:FOLDER, rocksdb:FOLDER or URLs. TO must be new or empty; for a server it is the folder
    store in its data folder. Stop the server first. The copy has all messages, leases and journal entries, and a new
    journal id, so that both can be used. Ids that were issued before stay valid.

    With --cluster the queues become a new group of the cluster, together with the config and the API keys. Config
    values that the cluster already has are not changed.
    """
    from fairlane.store_copy import copy_store

    with stoppable(), progress("copying") as bar:
        if cluster:
            _copy_to_cluster(session, _store_in(source), target, bar)
            return
        done = copy_store(_store_in(source), target, bar.set)
    session.answer(
        done,
        f"Copied {done.messages} messages and the journal up to sequence {done.last_sequence} to {_shown(target)}. "
        f"Its journal is {done.journal_id}, from {done.next_sequence} on.",
    )


def _copy_to_cluster(session: Session, source: str, target: str, bar: Bar) -> None:
    from fairlane.cluster.adoption import adopt_store

    done = adopt_store(source, target, bar.set)
    kept = f" The cluster keeps its own values of {', '.join(done.kept)}." if done.kept else ""
    session.answer(
        done,
        f"Copied {done.copy.messages} messages and the journal up to sequence {done.copy.last_sequence} to "
        f"{_shown(target)}, as the group {done.group} with {', '.join(done.queues)}.{kept}",
    )


@store_command.command(name="restored")
@click.argument("place", metavar="FOLDER|URL")
@click.option("--yes", is_flag=True, help="Change the store without asking.")
@pass_session
def restored_command(session: Session, place: str, *, yes: bool) -> None:
    """Declare that a store was restored from a backup, before a server opens it.

    The journal gets a new id, so that pipelines and other readers cannot mistake it for the journal before the restore.
    Ids and fencing tokens continue far above any that may have been issued since the backup. In a cluster, run the
    command for the store of each group.
    """
    from fairlane.maintenance import declare_restored

    confirm(f"Declare {_shown(place)} restored from a backup? Readers of its journal must start over.", is_sure=yes)
    with stoppable():
        done = declare_restored(_store_in(place))
    session.answer(done, f"The journal of {_shown(place)} is now {done.journal_id}, from {done.next_sequence} on.")


def _store_in(place: str) -> str:
    """Return the folder of the store if a place is the data folder of a server, which keeps it one folder deeper."""
    inner = Path(place) / STORE_FOLDER
    return str(inner) if inner.is_dir() or is_marked(Path(place)) else place


def _shown(place: str) -> str:
    """Return a place without the password in its URL."""
    from fairlane.assembly import is_url, shown_url

    return shown_url(place) if is_url(place) else _store_in(place)


def _facts(report: StoreReport) -> dict[str, object]:
    return {
        "is_whole": report.is_whole,
        "faults": list(report.faults),
        "readable_from": report.first,
        "readable_to": report.end - 1,
        "lost_sequences": _lost(report),
        "messages": report.messages,
        "unreadable": [{"queue": queue, "id": id_} for queue, id_ in report.unreadable],
    }


def _lost(report: StoreReport) -> list[int] | None:
    return [report.end, report.expected_end - 1] if report.end < report.expected_end else None


def _text(place: str, report: StoreReport) -> str:
    held = f"{report.messages} messages, journal readable from sequence {report.first} to {report.end - 1}"
    if report.is_whole:
        return f"{place} is intact: {held}."
    lines = [f"{place} is damaged.", *(f"- {fault}" for fault in report.faults), f"Readable: {held}."]
    if lost := _lost(report):
        lines.append(f"Lost: sequences {lost[0]} to {lost[1]} ({lost[1] - lost[0] + 1} events).")
    if report.unreadable:
        names = [f"{queue} {id_}" for queue, id_ in report.unreadable[:_SHOWN]]
        rest = len(report.unreadable) - len(names)
        lines.append(f"Unreadable messages: {', '.join(names)}{f' and {rest} more' if rest else ''}.")
    return "\n".join(lines)
