"""GET /v1/reports: tables, alarms and report of the data pipeline, and the progress of journal readers.

The setting ``reports`` names a folder. ``fairlane pipeline run`` writes its ``tables`` and alarms, and ``fairlane
report`` its ``report``; the server only reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.gateway.caller import Caller
from fairlane.model.views import ReaderView
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import Exchange
from fairlane.verbs.keys import EVERY

T = TypeVar("T")

TABLES: Final = "tables"
REPORT: Final = Path("report", "page.json")
_MANIFEST: Final = "manifest.json"
_ALARMS: Final = "alarms.json"
_BYTES_MAX: Final = 32 * 1024 * 1024
_PARTITION: Final = "day="


class TableNow(msgspec.Struct, frozen=True, kw_only=True):
    """One table: its latest day, the time of its last change, and its size."""

    name: str
    newest_day: str | None
    changed_ms: int
    files: int
    size_bytes: int


class PipelineNow(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the tables: the last sequence number, and the time of the last event."""

    run: int
    format: str
    events: int
    sequence: int | None
    horizon_ms: int
    days: int
    gaps: int
    is_whole: bool
    tables: list[TableNow]


class AlarmNow(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm that a run of the pipeline has found in the tables."""

    kind: str
    queue: str
    subject: str
    since_ms: int
    text: str


class Reports(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole answer. ``state`` says whether a folder is configured, and whether it has tables or a report."""

    state: Literal["not_set", "empty", "there"]
    at_ms: int
    journal_end: int
    readers: list[ReaderView]
    pipeline: PipelineNow | None = None
    alarms: list[AlarmNow] = []
    report_ms: int | None = None
    report: dict[str, Any] | None = None


class _JournalNow(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a journal that is in the tables: ranges of sequences, each with the instants of its events."""

    covered: tuple[tuple[int, int, int | None, int | None], ...] = ()
    is_ended: bool = False


class _Board(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the file of alarms that are needed here."""

    raised: list[AlarmNow] = []


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the pipeline's manifest that are needed here."""

    run: int = 0
    format: str = ""
    journals: tuple[_JournalNow, ...] = ()
    gaps: tuple[dict[str, Any], ...] = ()
    days: tuple[date, ...] = ()
    horizon_ms: int = 0
    events: int = 0
    swap: dict[str, Any] | None = None


async def reports(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with tables, alarms, readers and report."""
    exchange.query()
    caller.check("admin", EVERY)
    server.tally.calls["reports"] += 1
    folder = server.reports
    pipeline, alarms, written_ms, report = (
        (None, [], None, None) if folder is None else await asyncio.to_thread(_read_folder, folder)
    )
    is_there = pipeline is not None or report is not None
    brokers = server.gateway.brokers()  # a node of a cluster has several, each with its own journal
    answer = Reports(
        state="not_set" if folder is None else "there" if is_there else "empty",
        at_ms=server.observed.now_ms(),
        journal_end=max((broker.journal_end() for broker in brokers), default=0),
        readers=[reader for broker in brokers for reader in await broker.readers()],
        pipeline=pipeline,
        alarms=alarms,
        report_ms=written_ms,
        report=report,
    )
    await exchange.answer(answer)


def _read_folder(folder: Path) -> tuple[PipelineNow | None, list[AlarmNow], int | None, dict[str, Any] | None]:
    board = _read(folder / TABLES / _ALARMS, _Board) or _Board()
    return _pipeline(folder / TABLES), board.raised, *_report(folder / REPORT)


def _pipeline(folder: Path) -> PipelineNow | None:
    manifest = _read(folder / _MANIFEST, _Manifest)
    if manifest is None:
        return None
    covered = [journal.covered for journal in manifest.journals if not journal.is_ended]
    return PipelineNow(
        run=manifest.run,
        format=manifest.format,
        events=manifest.events,
        sequence=max((ranges[-1][1] for ranges in covered if ranges), default=None),
        horizon_ms=manifest.horizon_ms,
        days=len(manifest.days),
        gaps=len(manifest.gaps),
        is_whole=manifest.swap is None,
        tables=[_table(path) for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] not in "._"],
    )


def _table(folder: Path) -> TableNow:
    days, newest_ms, files, size = set(), 0, 0, 0
    for path in _files(folder):
        if path.parent.name.startswith(_PARTITION):
            days.add(path.parent.name.removeprefix(_PARTITION))
        try:
            found = path.stat()
        except FileNotFoundError:
            continue  # a pipeline run has just replaced it
        newest_ms = max(newest_ms, found.st_mtime_ns // 1_000_000)
        files += 1
        size += found.st_size
    return TableNow(
        name=folder.name, newest_day=max(days, default=None), changed_ms=newest_ms, files=files, size_bytes=size
    )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.parquet") if path.name[0] not in "._")


def _report(path: Path) -> tuple[int | None, dict[str, Any] | None]:
    report = _read(path, dict[str, Any])
    return (None, None) if report is None else (path.stat().st_mtime_ns // 1_000_000, report)


def _read(path: Path, kind: type[T]) -> T | None:
    """Decode a JSON file; return None if it does not exist.

    Raises:
        StoreCorrupt: the file cannot be read or decoded.
    """
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise StoreCorrupt(f"{path} has more than {_BYTES_MAX} bytes.")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"{path} cannot be read: {error}.") from error
