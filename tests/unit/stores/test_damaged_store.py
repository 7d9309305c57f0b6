"""A folder that has lost something is refused, and whatever was lost, no sequence is issued twice."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane.adapters.folder.high_water import (
    RESERVE_MIN,
    HighWater,
    HighWaterKeeper,
    boot_id,
    read_high_water,
    write_high_water,
)
from fairlane.adapters.folder.mark import ROCKSDB, write_mark
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.rocksdb.survey import survey_logs
from fairlane.errors import StoreDamaged
from fairlane.testing.store_contract import commit_of
from tests.unit.stores.processes import write_and_die

COMMITS = 40


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed before its high-water mark covered any commit."""
    folder = tmp_path_factory.mktemp("killed")
    write_and_die(folder, commits=COMMITS)
    return folder


@pytest.fixture
def folder(tmp_path: Path, killed: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(killed, tmp_path / "store")


@pytest.fixture
def covered(folder: Path) -> Path:
    """A store whose process was killed after its high-water mark covered all commits."""
    end = COMMITS + 1
    write_high_water(folder, HighWater(answered=end, synced=end, reserved=end + RESERVE_MIN, boot=boot_id()))
    return folder


def log_of(folder: Path) -> Path:
    return max(folder.rglob("*.log"), key=lambda file: file.stat().st_size)


def cut(file: Path, count: int) -> None:
    os.truncate(file, file.stat().st_size - count)


@contextmanager
def refused(folder: Path, match: str) -> Iterator[None]:
    """Expect that opening is refused, and that every file is as it was."""
    yield
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(StoreDamaged, match=match):
        RocksDbStore(folder).recover()
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.name in {at.name for at in before}} == before


@pytest.mark.parametrize("at", [0.0, 0.01, 0.5, 0.9])
def test_a_flipped_byte_in_the_log_is_refused(folder: Path, at: float) -> None:
    """Wherever the byte is, if commits follow, the file, the offset and the sequences are named."""
    log = log_of(folder)
    with (
        refused(folder, r"000004\.log: \d+ bytes are unreadable at offset \d+.* Sequences .*40 are"),
        log.open("r+b") as file,
    ):
        file.seek(int(log.stat().st_size * at))
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


def test_a_lost_length_does_not_hide_what_follows(folder: Path) -> None:
    """A record whose length is damaged, in the last block of a log, is still found to be followed by others."""
    log = log_of(folder)
    with refused(folder, "commits come after"), log.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack("<H", 30_000))


def test_a_zeroed_stretch_in_the_log_is_refused(folder: Path) -> None:
    """Zeros look like the unused end of a log, but commits follow."""
    with refused(folder, "bytes are unreadable"), log_of(folder).open("r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_a_cut_end_is_refused_when_the_mark_covers_it(covered: Path, count: int) -> None:
    """The log alone looks torn; the high-water mark tells that more was answered."""
    with refused(covered, r"ends before sequence \d+, but commits before sequence 41 were answered"):
        cut(log_of(covered), count)


def test_a_cut_end_that_the_mark_does_not_cover_starts_above_all_issued_sequences(folder: Path) -> None:
    """Within the last second a loss can't be told from a torn end; but no id is issued again."""
    cut(log_of(folder), 5000)
    store = RocksDbStore(folder)
    extent = store.recover()
    assert 1 < extent.next_sequence <= COMMITS
    assert extent.reserved == 1 + RESERVE_MIN
    store.close()
    again = RocksDbStore(folder)
    assert again.recover() == extent, "closing without a commit must not forget the reservation"
    again.close()


def test_a_closed_store_skips_nothing(folder: Path) -> None:
    """After an orderly end the next sequence follows on the last one."""
    store = RocksDbStore(folder)
    reserved = store.recover().reserved
    store.write(commit_of(COMMITS + 1, reserved - COMMITS))
    store.sync()
    store.close()
    again = RocksDbStore(folder)
    extent = again.recover()
    assert (extent.next_sequence, extent.reserved) == (reserved + 1, 0)
    again.close()


def test_each_crash_skips_one_reservation(tmp_path: Path) -> None:
    """What is skipped after a crash is no pace to reserve by: a broker that crashes over and over never runs out."""
    end, crashes = 1, 100
    for _ in range(crashes):
        keeper = HighWaterKeeper(tmp_path)
        end = keeper.begin(end, read_high_water(tmp_path) or HighWater()) + 1
        keeper.synced = keeper.answered = end
        keeper.note()
        keeper.abandon()
    mark = read_high_water(tmp_path)
    assert mark is not None
    assert mark.reserved < (crashes + 1) * (RESERVE_MIN + 1)


def test_sequences_are_reserved_on_disk_before_they_are_used(tmp_path: Path) -> None:
    """At any time the mark on disk is ahead of what was written, also when one commit takes more than was reserved."""
    store = RocksDbStore(tmp_path)
    store.recover()
    for count in (1, RESERVE_MIN, 3 * RESERVE_MIN):
        end = store._extent.next_sequence
        store.write(commit_of(end, count))
        mark = read_high_water(tmp_path)
        assert mark is not None
        assert mark.reserved >= end + count
    store.close()


@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_a_lost_log_is_refused(covered: Path, how: str) -> None:
    """A database without its log opens as if nothing had been written."""
    with refused(covered, r"ends before sequence 1, but commits before sequence 41 were answered"):
        log = log_of(covered)
        log.unlink() if how == "deleted" else os.truncate(log, 0)


def test_a_vanished_database_is_refused(folder: Path) -> None:
    """A folder that was a store is never taken for a new one."""
    with refused(folder, "existed before and is gone"):
        shutil.rmtree(folder / "rocksdb")


def test_a_database_without_root_and_log_is_refused(folder: Path) -> None:
    """RocksDB would create a new one in its place."""
    with refused(folder, "CURRENT and all data are gone"):
        (folder / "rocksdb" / "CURRENT").unlink()
        log_of(folder).unlink()


def test_a_missing_mark_is_refused(folder: Path) -> None:
    """A folder with a database is a store, whether or not it is marked."""
    with refused(folder, "its mark FAIRLANE is missing"):
        (folder / "FAIRLANE").unlink()


@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_a_lost_high_water_mark_is_refused(folder: Path, how: str) -> None:
    """Without it nobody knows which sequences were issued."""
    with refused(folder, "HIGH-WATER is missing or unreadable"):
        mark = folder / "HIGH-WATER"
        mark.unlink() if how == "deleted" else mark.write_bytes(bytes(mark.stat().st_size))


@pytest.mark.parametrize("at", [30, 4096 + 30])
def test_one_copy_of_the_high_water_mark_is_enough(folder: Path, at: int) -> None:
    """A torn or damaged block takes one copy; the other holds the same."""
    before = read_high_water(folder)
    with (folder / "HIGH-WATER").open("r+b") as file:
        file.seek(at)
        file.write(b"#")
    assert read_high_water(folder) == before
    store = RocksDbStore(folder)
    assert store.recover().next_sequence == COMMITS + 1
    store.close()


def test_a_folder_that_was_only_begun_is_no_loss(tmp_path: Path) -> None:
    """A process that died before it made the database leaves nothing to lose."""
    write_mark(tmp_path, ROCKSDB, is_made=False)
    store = RocksDbStore(tmp_path)
    assert store.recover().next_sequence == 1
    store.close()


def test_later_fragments_of_a_torn_commit_are_no_damage(tmp_path: Path) -> None:
    """The disk may have written the end of the last commit before its beginning; it was never answered."""
    store = RocksDbStore(tmp_path / "store")
    store.recover()
    store.write(commit_of(1, 1))
    begin = log_of(tmp_path / "store").stat().st_size
    store.write(commit_of(2, 1, bodies=[(2, bytes(range(256)) * 1024)]))
    torn = tmp_path / "torn"
    shutil.copytree(tmp_path / "store", torn)
    store.close()
    with log_of(torn).open("r+b") as file:
        file.seek(begin)
        file.write(bytes(1024))
    again = RocksDbStore(torn)
    assert again.recover().next_sequence == 2
    again.close()


def test_a_torn_log_that_an_earlier_start_left_behind_is_no_damage(folder: Path) -> None:
    """A machine that fails twice may keep the torn log beside the one that continues it: their numbers are joined."""
    log = log_of(folder)
    cut(log, 100)
    torn = log.read_bytes()
    store = RocksDbStore(folder)
    end = store.recover().next_sequence
    store.write(commit_of(end, 1))
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    store.close()
    (copy / "rocksdb" / log.name).write_bytes(torn)
    assert len(list(copy.rglob("*.log"))) == 2
    again = RocksDbStore(copy)
    assert again.recover().next_sequence == end + 1
    again.close()


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


@pytest.fixture
def several_logs(tmp_path: Path) -> Path:
    """A store with several logs that are all needed."""
    store = RocksDbStore(tmp_path / "store")
    store.recover()
    body = bytes(range(256)) * 4096
    for sequence in range(1, 71):
        store.write(commit_of(sequence, 1, bodies=[(sequence, body)]))
    store.sync()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "store", copy)
    store.close()
    assert len(logs_of(copy)) > 1
    return copy


def test_several_logs_are_one_sequence(several_logs: Path) -> None:
    """The survey reads all of them as one."""
    survey = survey_logs(several_logs / "rocksdb")
    assert survey.damage is None
    assert survey.reach == 71


@pytest.mark.parametrize("how", ["cut", "emptied"])
def test_a_log_that_does_not_follow_is_refused(several_logs: Path, how: str) -> None:
    """The end of a log that is not the last cannot be torn."""
    with refused(several_logs, "commits are missing|are unreadable"):
        log = logs_of(several_logs)[-2]
        cut(log, 2_000_000 if how == "cut" else log.stat().st_size)


class TestWithoutSync:
    """With durability ``os`` a crash of the machine may lose what was answered, and that is no damage."""

    @pytest.fixture
    def unsynced(self, tmp_path: Path) -> Path:
        """A store on which nothing was ever synced, though everything was answered."""
        write_and_die(tmp_path / "store", commits=COMMITS, durability="os")
        self.write_mark(tmp_path / "store", boot_id())
        return tmp_path / "store"

    def write_mark(self, folder: Path, boot: str) -> None:
        write_high_water(folder, HighWater(answered=COMMITS + 1, reserved=1 + RESERVE_MIN, boot=boot))

    def test_a_cut_end_is_damage_while_the_machine_runs(self, unsynced: Path) -> None:
        """The operating system had the commits, so nothing but damage takes them away."""
        with refused(unsynced, "commits before sequence 41 were answered"):
            cut(log_of(unsynced), 5000)

    @pytest.mark.parametrize("hole", [False, True])
    def test_a_restarted_machine_may_have_lost_commits(
        self, unsynced: Path, caplog: pytest.LogCaptureFixture, *, hole: bool
    ) -> None:
        """The store opens with what is left, above all issued sequences."""
        self.write_mark(unsynced, "another run of the machine")
        log = log_of(unsynced)
        if hole:
            with log.open("r+b") as file:
                file.seek(8192)
                file.write(bytes(4096))
        else:
            cut(log, 5000)
        store = RocksDbStore(unsynced)
        extent = store.recover()
        assert 1 < extent.next_sequence < COMMITS
        assert extent.reserved == 1 + RESERVE_MIN
        assert "durability was 'os'" in caplog.text
        store.close()
