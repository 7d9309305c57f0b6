"""Behaviour of the RocksDB store beyond the contract: durability through kills and failures, and clear errors."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreDamaged, StoreFailed, StoreLocked
from fairlane.ports.store import Extent
from fairlane.testing.store_contract import commit_of
from tests.kit.waiting import wait_until
from tests.unit.stores.processes import held_open, write_and_die


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[RocksDbStore]:
    store = RocksDbStore(folder, **options)
    store.recover()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Limit the size of files in the operating system, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def largest(folder: Path, suffix: str) -> Path:
    return max(folder.rglob(f"*{suffix}"), key=lambda file: file.stat().st_size)


def damage(file: Path, at: int) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(at)
        opened_file.write(b"damaged!")


def check_holds(store: RocksDbStore, commits: int) -> None:
    """Check that a store holds what ``write_and_die`` wrote."""
    assert [page.sequence for page in store.pages(0)] == list(range(1, commits + 1))
    numbers = range(1, commits + 1)
    assert store.bodies(numbers) == [b"%d" % number * 500 for number in numbers]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_synced_commits_survive_a_killed_process(tmp_path: Path, durability: str) -> None:
    """A process that is killed right after a sync leaves every commit, with either durability."""
    assert write_and_die(tmp_path, commits=40, durability=durability) == -signal.SIGKILL
    with opened(tmp_path) as store:
        check_holds(store, 40)


def test_a_torn_log_opens_with_the_first_commits(tmp_path: Path) -> None:
    """A log that lost its end, as when power fails, keeps the commits before, each whole."""
    write_and_die(tmp_path, commits=40)
    log = largest(tmp_path, ".log")
    os.truncate(log, log.stat().st_size - 5000)
    store = RocksDbStore(tmp_path)
    kept = store.recover().next_sequence - 1
    assert 0 < kept < 40
    check_holds(store, kept)
    store.write(commit_of(kept + 1, 1))
    store.close()


@pytest.mark.parametrize("rest", [bytes(3000), b"\xa5" * 3000])
def test_a_log_with_garbage_at_its_end_opens(tmp_path: Path, rest: bytes) -> None:
    """Bytes that a file system may append to a log that was being written are ignored."""
    write_and_die(tmp_path, commits=5)
    with largest(tmp_path, ".log").open("ab") as log:
        log.write(rest)
    with opened(tmp_path) as store:
        check_holds(store, 5)


def test_damage_within_the_log_is_refused(tmp_path: Path) -> None:
    """A commit that cannot be read and is followed by others is damage: nothing is opened, changed or deleted."""
    write_and_die(tmp_path, commits=40)
    log = largest(tmp_path, ".log")
    damage(log, log.stat().st_size // 2)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(StoreDamaged, match=r"bytes are unreadable at offset \d+, and \d+ commits come after") as caught:
        RocksDbStore(tmp_path).recover()
    assert log.name in caught.value.cause
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_store_open_in_another_process_is_refused(tmp_path: Path) -> None:
    """One process writes at a time, and the other gets an error; afterwards it can open the store."""
    store = RocksDbStore(tmp_path)
    with held_open(tmp_path), pytest.raises(StoreLocked, match="Another process has the store open"):
        store.recover()
    assert store.recover().next_sequence == 1
    store.close()


def test_a_store_open_in_this_process_is_refused(tmp_path: Path) -> None:
    """A second store on the folder is refused, and the first continues."""
    with opened(tmp_path) as store:
        with pytest.raises(StoreLocked, match="This process has the store open already"):
            RocksDbStore(tmp_path).recover()
        store.write(commit_of(1, 1))
        store.sync()


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """A folder with anything else in it is refused, and nothing is put there."""
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(InvalidArgument, match="not a Fairlane store"):
        RocksDbStore(tmp_path).recover()
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters.txt"]


def test_a_folder_that_was_only_begun_is_taken(tmp_path: Path) -> None:
    """A process that died while it made the store is no obstacle."""
    (tmp_path / ".FAIRLANE.new").write_text("fair")
    with opened(tmp_path) as store:
        assert list(store.pages(0)) == []


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A store of a later version is not touched, and both versions are named."""
    with opened(tmp_path):
        pass
    (tmp_path / "FAIRLANE").write_text("fairlane store, format 2\n")
    with pytest.raises(StoreCorrupt, match=r"has format 2.*supports 1"):
        RocksDbStore(tmp_path).recover()


def test_an_unreadable_mark_is_reported(tmp_path: Path) -> None:
    """A mark that names no format is damage, not a foreign folder."""
    with opened(tmp_path):
        pass
    (tmp_path / "FAIRLANE").write_bytes(b"\xff\x00")
    with pytest.raises(StoreCorrupt, match="should name the format"):
        RocksDbStore(tmp_path).recover()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    """A path through a file cannot be a folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="Cannot use the folder"):
        RocksDbStore(tmp_path / "file" / "store").recover()


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    """A misspelt durability must not become a weaker one."""
    with pytest.raises(InvalidArgument, match="durability"):
        RocksDbStore(tmp_path, durability="fsnyc")  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST"])
def test_a_damaged_root_is_reported(tmp_path: Path, name: str) -> None:
    """If RocksDB finds its root damaged, the store is corrupt."""
    write_and_die(tmp_path, commits=3)
    root = next(tmp_path.rglob(f"{name}*"))
    root.write_bytes(b"damaged" + root.read_bytes()[7:-1])
    with pytest.raises(StoreCorrupt):
        RocksDbStore(tmp_path).recover()


def test_a_lost_root_is_not_replaced_by_a_new_store(tmp_path: Path) -> None:
    """If RocksDB would create a new database and ignore the existing data, the store is corrupt."""
    write_and_die(tmp_path, commits=3)
    next(tmp_path.rglob("CURRENT")).unlink()
    with pytest.raises(StoreCorrupt, match="the file CURRENT is missing"):
        RocksDbStore(tmp_path).recover()


def test_a_damaged_page_is_reported_and_the_store_can_be_recovered_at_once(tmp_path: Path) -> None:
    """A read that finds damage raises, and its traceback does not keep the database locked."""
    with opened(tmp_path) as store:
        store.write(commit_of(1, 5000))
    with opened(tmp_path):
        pass  # opening moved the log into tables
    damage(largest(tmp_path, ".sst"), 0)
    with opened(tmp_path) as store, pytest.raises(StoreCorrupt, match="read pages") as caught:
        list(store.pages(0))
    assert caught.value.__cause__ is not None
    assert store.recover().next_sequence == 5001
    store.close()


def test_a_failed_write_is_reported_and_recovery_repairs_it(tmp_path: Path) -> None:
    """When the disk is full, the write fails, no more writes are accepted, and recovery finds complete commits."""
    with opened(tmp_path) as store:
        store.write(commit_of(1, 1, bodies=[(1, b"one")]))
        store.sync()
        with files_limited_to(200_000), pytest.raises(StoreFailed, match="could not write") as caught:
            store.write(commit_of(2, 1, bodies=[(2, bytes(1_000_000))]))
        with pytest.raises(StoreFailed, match="not been recovered"):
            store.write(commit_of(2, 1))
        with pytest.raises(StoreFailed, match="not been recovered"):
            store.sync()
        assert caught.value.__traceback__ is not None
        assert store.recover() == Extent(first=1, base=1, next_sequence=2)
        store.write(commit_of(2, 1, bodies=[(2, b"two")]))
        store.sync()
        assert store.bodies([1, 2]) == [b"one", b"two"]


def test_recovery_without_closing_keeps_written_commits(tmp_path: Path) -> None:
    """Reopening in the same process loses nothing that reached the log."""
    with opened(tmp_path) as store:
        store.write(commit_of(1, 2, bodies=[(1, b"one")]))
        assert store.recover() == Extent(first=1, base=1, next_sequence=3)
        assert store.bodies([1]) == [b"one"]


def test_the_space_of_dropped_bodies_is_freed(tmp_path: Path) -> None:
    """A hundred times as much as is kept passes through the store without making it grow."""
    body = os.urandom(64 * 1024)
    with opened(tmp_path, durability="os") as store:
        for sequence in range(1, 6001):
            dropped = [sequence - 50] if sequence > 50 else []
            trim = max(sequence - 50, 0)
            store.write(
                commit_of(sequence, 1, bodies=[(sequence, body)], dropped=dropped, base=max(trim, 1), trim=trim)
            )
        assert store.size() < 6000 * len(body) // 2


def test_the_space_of_large_bodies_is_returned_on_demand(tmp_path: Path) -> None:
    """Deletions of 300 bodies would stay in memory for hours; what they take, but for the log, is returned at once."""
    body = os.urandom(1 << 20)
    numbers = range(1, 301)
    with opened(tmp_path, durability="os") as store:
        for number in numbers:
            store.write(commit_of(number, 1, bodies=[(number, body)]))
        store.write(commit_of(301, 1, dropped=list(numbers)))
        assert store.size() > 280 * len(body)
        store.reclaim()
        wait_until(lambda: store.size() < 100 * len(body), what="the space is returned")
        assert [page.sequence for page in store.pages(0)] == list(range(1, 302))


def test_a_store_that_is_closed_returns_nothing(tmp_path: Path) -> None:
    """The disk may be short while the broker can't open its store."""
    store = RocksDbStore(tmp_path)
    store.reclaim()


def test_trimming_many_pages_at_once_leaves_the_rest(tmp_path: Path) -> None:
    """Many pages are deleted as a range, and are gone after reopening."""
    with opened(tmp_path) as store:
        for sequence in range(1, 1001):
            store.write(commit_of(sequence, 1))
        store.write(commit_of(1001, 1, base=900, trim=900))
        assert [page.sequence for page in store.pages(0)] == list(range(900, 1002))
    with opened(tmp_path) as store:
        assert [page.sequence for page in store.pages(0)] == list(range(900, 1002))


@pytest.mark.parametrize("exists", [True, False])
def test_other_users_have_no_access(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, exists: bool) -> None:
    """Whatever the umask and the folder were, the folder is 0700, and a store that was open to others is closed."""
    folder = tmp_path / "store"
    before = os.umask(0)
    try:
        if exists:
            folder.mkdir()
        with opened(folder) as store:
            store.write(commit_of(1, 1))
            store.sync()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with opened(folder):
        pass
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not [path for path in folder.rglob("*.sst") if path.stat().st_mode & 0o077]
    assert f"Other users could read the store {folder}." in caplog.text
