"""A sealed segment becomes one whole file, or none."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fairlane.adapters import parquet_export
from fairlane.adapters.parquet_export import Export, exported, remove_unfinished
from fairlane.errors import InvalidArgument, JournalTrimmed, StoreCorrupt, StoreFailed
from fairlane.journal.codec import encode
from fairlane.journal.identity import JournalIdentity
from fairlane.journal.records import Acked, AnyRecord, Baseline, Sealed, SegmentImage
from fairlane.ports.store import StoredPage
from tests.kit.waiting import PATIENCE_S

JOURNAL = JournalIdentity(journal_id="00000000000000aa", since=7)
NAME = "journal-00000000000000aa-00000000000000000001-00000000000000000009.parquet"


def export_segment(segment: SegmentImage, pages: Iterable[StoredPage], folder: Path) -> Export:
    """Export a segment of the journal that these tests are about."""
    return parquet_export.export_segment(segment, pages, folder, journal=JOURNAL)


def segment(first: int, end: int) -> SegmentImage:
    """Return a sealed segment of which only the sequences matter."""
    return SegmentImage(first, end, 0, 0, 0)


def page(sequence: int, count: int) -> StoredPage:
    """Return a page of acks; the message of number n is acked at sequence n."""
    numbers = list(range(sequence, sequence + count))
    return StoredPage(sequence, sequence + count, encode([Acked(sequence, "q", numbers)], 500))


PAGES = [page(1, 3), page(4, 3), page(7, 3)]


COLUMNS = ["sequence", "at_ms", "kind", "queue", "message_id", "cost", "journal_id"]


def sequences(path: Path) -> list[int]:
    """Return the sequences of the events in a file."""
    column: list[int] = pq.read_table(path)["sequence"].to_pylist()
    return column


def test_a_segment_is_a_file_named_for_its_sequences(tmp_path: Path) -> None:
    """Sequences 1 to 9 are in the file of that name, and the answer says so."""
    export = export_segment(segment(1, 10), PAGES, tmp_path / "new" / "folder")
    assert export.path == tmp_path / "new" / "folder" / NAME
    assert (export.first, export.last, export.events, export.is_new) == (1, 9, 9, True)
    assert export.size == export.path.stat().st_size
    assert [entry.name for entry in export.path.parent.iterdir()] == [NAME]
    rows = pq.read_table(export.path, columns=COLUMNS).to_pylist()
    assert rows[8] == {
        "sequence": 9,
        "at_ms": 500,
        "kind": "acked",
        "queue": "q",
        "message_id": "0000000000000009",
        "cost": None,
        "journal_id": "00000000000000aa",
    }


def test_a_file_says_what_it_covers_and_how_it_is_sorted(tmp_path: Path) -> None:
    """Version, range and journal are in the metadata, and pages are packed with zstd."""
    footer = pq.read_metadata(export_segment(segment(1, 10), PAGES, tmp_path).path)
    told = {name: value for name, value in footer.metadata.items() if name.startswith(b"fairlane.")}
    assert told == {
        b"fairlane.events.version": b"6",
        b"fairlane.journal.first": b"1",
        b"fairlane.journal.last": b"9",
        b"fairlane.journal.id": b"00000000000000aa",
        b"fairlane.journal.since": b"7",
    }
    group = footer.row_group(0)
    assert [sorting.column_index for sorting in group.sorting_columns] == [0]
    assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}


def test_only_what_is_inside_the_segment_is_exported(tmp_path: Path) -> None:
    """Pages before, after and across the ends give the file nothing that is outside."""
    assert sequences(export_segment(segment(5, 8), PAGES, tmp_path).path) == [5, 6, 7]


def test_a_page_with_the_seal_in_it_is_cut_there(tmp_path: Path) -> None:
    """The seal is the first event of the next segment, though it was committed with the last of this one."""
    records: list[AnyRecord] = [Acked(1, "q", [1, 2]), Sealed(3, 1, 0, 500, 99), Acked(4, "q", [4])]
    pages = [StoredPage(1, 5, encode(records, 500)), page(5, 2)]
    assert sequences(export_segment(segment(1, 3), pages, tmp_path).path) == [1, 2]
    assert sequences(export_segment(segment(3, 7), pages, tmp_path).path) == [3, 4, 5, 6]
    assert exported(tmp_path).gaps(JOURNAL.journal_id) == []


def test_a_segment_without_events_is_a_file_without_rows(tmp_path: Path) -> None:
    """What recovery alone needs is covered by a file, so that it is no gap in the exports."""
    record = Baseline(1, [], {}, [], [], 1, 0, 0)
    export = export_segment(segment(1, 2), [StoredPage(1, 2, encode([record], 500))], tmp_path)
    assert (export.events, sequences(export.path)) == (0, [])


def test_an_export_that_is_there_is_kept(tmp_path: Path) -> None:
    """A second export reads no page and leaves the file alone."""
    first = export_segment(segment(1, 10), PAGES, tmp_path)
    before = first.path.stat()
    again = export_segment(segment(1, 10), iter(()), tmp_path)
    assert (again.is_new, again.events, again.size) == (False, 9, first.size)
    assert (again.path.stat().st_ino, again.path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", ["empty", "cut", "footer", "stranger"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, damage: str) -> None:
    """What can't be a whole export of this segment does not pass for one."""
    path = export_segment(segment(1, 10), PAGES, tmp_path).path
    whole = path.read_bytes()
    other = export_segment(segment(1, 7), PAGES, tmp_path / "other").path.read_bytes()
    footer = whole[:-300] + bytes(len(whole[-300:-8])) + whole[-8:]
    path.write_bytes({"empty": b"", "cut": whole[:-100], "footer": footer, "stranger": other}[damage])
    assert export_segment(segment(1, 10), PAGES, tmp_path).is_new
    assert path.read_bytes() == whole


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is held in memory than a group: pages are taken as needed and written when there are enough."""
    monkeypatch.setattr(parquet_export, "_GROUP_ROWS", 5)
    footer = pq.read_metadata(export_segment(segment(1, 10), PAGES, tmp_path).path)
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [6, 3]
    monkeypatch.setattr(parquet_export, "_GROUP_BYTES", 1)
    footer = pq.read_metadata(export_segment(segment(2, 10), PAGES, tmp_path).path)
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [2, 3, 3]


# ------------------------------------------------------------------------------------------------------------ bad days


@pytest.mark.parametrize(
    ("pages", "error"),
    [
        ([], JournalTrimmed),
        (PAGES[1:], JournalTrimmed),
        ([PAGES[0], PAGES[2]], StoreCorrupt),
        (PAGES[:2], StoreCorrupt),
        ([StoredPage(1, 10, b"nonsense")], StoreCorrupt),
    ],
    ids=["none", "trimmed", "hole", "short", "unreadable"],
)
def test_a_journal_that_is_not_all_there_is_not_exported(
    tmp_path: Path, pages: list[StoredPage], error: type[Exception]
) -> None:
    """A file never claims to cover what its pages did not hold."""
    with pytest.raises(error):
        export_segment(segment(1, 10), pages, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_segment_without_sequences_is_refused(tmp_path: Path) -> None:
    """There is no file for nothing."""
    with pytest.raises(InvalidArgument):
        export_segment(segment(5, 5), PAGES, tmp_path)


def test_a_folder_that_is_a_file_is_a_failure(tmp_path: Path) -> None:
    """What the system says about the folder is the cause."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed) as caught:
        export_segment(segment(1, 10), PAGES, tmp_path / "file" / "below")
    assert isinstance(caught.value.__cause__, NotADirectoryError)
    with pytest.raises(StoreFailed):
        exported(tmp_path / "file")


def test_a_disk_without_room_is_a_failure_and_leaves_nothing(tmp_path: Path) -> None:
    """A write that the system refuses ends the export; when there is room again it succeeds."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(StoreFailed) as caught:
            export_segment(segment(1, 10), PAGES, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []
    assert export_segment(segment(1, 10), PAGES, tmp_path).events == 9


def test_a_file_that_can_not_be_made_durable_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is given only after the disk has the bytes."""

    def fsync(_handle: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreFailed, match="the disk is gone"):
        export_segment(segment(1, 10), PAGES, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [StoreFailed("The store is not open."), KeyboardInterrupt()])
def test_an_export_that_is_broken_off_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    """Whatever the pages end with is passed on as it is, and no file stays."""

    def pages() -> Iterator[StoredPage]:
        yield PAGES[0]
        raise error

    with pytest.raises(type(error)) as caught:
        export_segment(segment(1, 10), pages(), tmp_path)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
from tests.unit.journal.test_parquet_export import PAGES, export_segment, segment

def pages():
    yield PAGES[0]
    os.kill(os.getpid(), 9)

export_segment(segment(1, 10), pages(), Path(sys.argv[1]))
"""


def test_an_export_that_is_killed_leaves_nothing_that_counts(tmp_path: Path) -> None:
    """After kill -9 in the middle only a hidden file is there; it is not listed, and the next export replaces it."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    result = subprocess.run(command, timeout=PATIENCE_S, check=False, cwd=Path(__file__).parents[3])
    assert result.returncode == -signal.SIGKILL
    left = exported(tmp_path)
    assert (left.files, left.unfinished) == ((), (tmp_path / f".{NAME}.new",))
    assert export_segment(segment(1, 10), PAGES, tmp_path).events == 9
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


# ------------------------------------------------------------------------------------------------------------- listing


def touch(folder: Path, *spans: tuple[int, int]) -> list[tuple[str, tuple[int, int], str]]:
    """Make empty files of exports, and return how they should be listed."""
    listed = []
    for first, last in spans:
        name = f"journal-00000000000000aa-{str(first).rjust(20, '0')}-{str(last).rjust(20, '0')}.parquet"
        (folder / name).touch()
        listed.append(("00000000000000aa", (first, last), name))
    return listed


@pytest.mark.parametrize(
    ("spans", "gaps"),
    [
        ([], []),
        ([(5, 9)], []),
        ([(1, 9), (10, 12), (13, 10**15)], []),
        ([(1, 9), (20, 29), (31, 40)], [(10, 19), (30, 30)]),
        ([(1, 30), (5, 9), (31, 40)], []),
        ([(1, 30), (5, 9), (35, 40)], [(31, 34)]),
    ],
    ids=["none", "one", "whole", "two gaps", "overlap", "overlap and gap"],
)
def test_the_gaps_are_what_no_file_covers(tmp_path: Path, spans: list[Any], gaps: list[Any]) -> None:
    """Files are listed in order, with the stretches between them that are missing."""
    listed = touch(tmp_path, *spans)
    found = exported(tmp_path)
    assert (list(found.files), found.gaps("00000000000000aa")) == (listed, gaps)


def test_other_files_and_leftovers_are_not_listed(tmp_path: Path) -> None:
    """Only names of exports count; leftovers are told apart and can be removed, and nothing else is."""
    listed = touch(tmp_path, (1, 9))
    for name in ("notes.txt", "journal-1-9.parquet", f"{NAME}.crc", f"x{NAME}", f".{NAME}.new"):
        (tmp_path / name).touch()
    found = exported(tmp_path)
    assert list(found.files) == listed
    assert found.unfinished == (tmp_path / f".{NAME}.new",)
    assert remove_unfinished(tmp_path) == 1
    assert remove_unfinished(tmp_path) == 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        ["notes.txt", "journal-1-9.parquet", f"{NAME}.crc", f"x{NAME}", NAME]
    )


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    """Before the first export there is no folder, and that is no error."""
    found = exported(tmp_path / "none")
    assert (found.files, found.unfinished) == ((), ())


def test_a_journal_that_took_the_place_of_another_overwrites_nothing(tmp_path: Path) -> None:
    """The same sequences of two journals are two files, and what is missing is told for each journal."""
    ours = export_segment(segment(1, 4), PAGES, tmp_path)
    other = JournalIdentity(journal_id="f" * 16)
    theirs = parquet_export.export_segment(segment(4, 7), PAGES, tmp_path, journal=other)
    assert pq.read_table(theirs.path, columns=["journal_id"])["journal_id"].unique().to_pylist() == ["f" * 16]
    again = parquet_export.export_segment(segment(1, 4), PAGES, tmp_path, journal=other)
    assert (again.is_new, ours.path.exists(), again.path != ours.path) == (True, True, True)
    assert [file.covers for file in exported(tmp_path).of("f" * 16)] == [(1, 3), (4, 6)]
