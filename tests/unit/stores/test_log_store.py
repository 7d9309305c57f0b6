"""Behaviour of the log beyond the contract: kills, failed syncs, damage told from a torn end, and bounded space."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane.adapters.folder.file_system import SystemFiles
from fairlane.adapters.folder.high_water import RESERVE_MIN, HighWater, boot_id, read_high_water, write_high_water
from fairlane.adapters.log.body_index import BodyIndex
from fairlane.adapters.log.store import LogStore
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreDamaged, StoreFailed, StoreLocked
from fairlane.ports.store import Extent
from fairlane.testing.store_contract import commit_of
from tests.kit.damage.kinds import active_in, head_in, used
from tests.unit.stores.processes import held_open, write_and_die

COMMITS = 40


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[LogStore]:
    store = LogStore(folder, **options)
    store.recover()
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed before its high-water mark covered any commit."""
    folder = tmp_path_factory.mktemp("killed") / "store"
    assert write_and_die(folder, commits=COMMITS, kind="log") == -signal.SIGKILL
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


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(at)
        opened_file.write(data)


def check_refused(folder: Path, match: str) -> None:
    """Expect that opening is refused, and that every file is as it was."""
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(StoreDamaged, match=match):
        LogStore(folder).recover()
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def check_holds(store: LogStore, commits: int) -> None:
    """Check that a store holds what ``write_and_die`` wrote."""
    assert [page.sequence for page in store.pages(0)] == list(range(1, commits + 1))
    numbers = range(1, commits + 1)
    assert store.bodies(numbers) == [b"%d" % number * 500 for number in numbers]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_synced_commits_survive_a_killed_process(tmp_path: Path, durability: str) -> None:
    """A process that is killed right after a sync leaves every commit, with either durability."""
    assert write_and_die(tmp_path, commits=COMMITS, durability=durability, kind="log") == -signal.SIGKILL
    with opened(tmp_path) as store:
        check_holds(store, COMMITS)


def test_a_torn_end_opens_with_the_commits_before(folder: Path) -> None:
    """A log whose last record is torn, as when power fails, keeps the commits before, each whole."""
    active = active_in(folder)
    overwrite(active, used(active) - 600, bytes(600))
    with opened(folder) as store:
        check_holds(store, COMMITS - 1)


def test_a_torn_end_issues_no_sequence_again(folder: Path) -> None:
    """Within the last second a loss can't be told from a torn end; but no id is issued again."""
    active = active_in(folder)
    overwrite(active, used(active) - 600, bytes(600))
    store = LogStore(folder)
    extent = store.recover()
    assert (extent.next_sequence, extent.reserved) == (COMMITS, 1 + RESERVE_MIN)
    store.close()
    again = LogStore(folder)
    assert again.recover() == extent, "closing without a commit must not forget the reservation"
    again.close()


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_damaged_record_that_others_follow_is_refused(tmp_path: Path, part: str) -> None:
    """Later records say that it was durable once, so it is not torn: nothing is opened, changed or deleted."""
    with opened(tmp_path) as store:
        for sequence in range(1, 20):
            store.write(commit_of(sequence, 1, bodies=[(sequence, b"x" * 500)]))
            store.sync()
    active = active_in(tmp_path)
    at = head_in(active, used(active) // 2)
    overwrite(active, at + (50 if part == "head" else 400), b"damaged!")
    check_refused(tmp_path, "unreadable, and commits come after" if part == "head" else "is damaged")


def test_records_that_were_not_synced_may_be_torn_in_any_order(tmp_path: Path) -> None:
    """After a power loss, a later record without an earlier one is no damage if neither was synced."""
    store = LogStore(tmp_path / "store", files=OtherBoot("one"))
    store.recover()
    store.write(commit_of(1, 1))
    store.sync()
    end = used(active_in(tmp_path / "store"))
    store.write(commit_of(2, 1, bodies=[(2, b"two" * 500)]))
    store.write(commit_of(3, 1, bodies=[(3, b"three" * 500)]))
    crashed = shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    store.close()
    active = active_in(crashed)
    overwrite(active, head_in(active, end), bytes(512))
    with opened(crashed, files=OtherBoot("two")) as again:
        assert [page.sequence for page in again.pages(0)] == [1]
        again.write(commit_of(2, 1, bodies=[(2, b"TWO" * 500)]))  # as long as the torn one
        again.sync()
    with opened(crashed, files=OtherBoot("two")) as again:
        assert [page.sequence for page in again.pages(0)] == [1, 2], "the record after the torn one must not come back"


class OtherBoot(SystemFiles):
    """The files of a machine that was started anew."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def boot_id(self) -> str:
        return self._boot


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_a_lost_end_is_refused_when_the_mark_covers_it(covered: Path, count: int) -> None:
    """The log alone looks torn; the high-water mark tells that more was answered."""
    active = active_in(covered)
    end = used(active)
    overwrite(active, end - count, bytes(count))
    check_refused(covered, r"ends before sequence \d+, but commits before sequence 41 were answered")


def test_a_shortened_segment_is_refused(folder: Path) -> None:
    """A segment never shrinks, so one that is too short has lost something, even where only zeros were."""
    active = active_in(folder)
    os.truncate(active, active.stat().st_size - 1)
    check_refused(folder, "bytes, not")


def test_sequences_are_reserved_on_disk_before_they_are_used(tmp_path: Path) -> None:
    """At any time the mark on disk is ahead of what was written."""
    with opened(tmp_path) as store:
        end = 1
        for count in (1, RESERVE_MIN, 3 * RESERVE_MIN):
            store.write(commit_of(end, count))
            end += count
            mark = read_high_water(tmp_path)
            assert mark is not None
            assert mark.reserved >= end


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    """One process writes at a time; the other, or a second store in this one, gets an error."""
    store = LogStore(tmp_path)
    with held_open(tmp_path, kind="log"), pytest.raises(StoreLocked, match="Another process has the store open"):
        store.recover()
    store.recover()
    with pytest.raises(StoreLocked, match="this process has"):
        LogStore(tmp_path).recover()
    store.write(commit_of(1, 1))
    store.close()


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """A folder with anything else in it is refused, and nothing is put there."""
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(InvalidArgument, match="not a Fairlane store"):
        LogStore(tmp_path).recover()
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters.txt"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A store of a later version is not touched, and both versions are named."""
    with opened(tmp_path):
        pass
    (tmp_path / "FAIRLANE").write_text("fairlane store, log 2\n")
    with pytest.raises(StoreCorrupt, match=r"has format 2.*supports 1"):
        LogStore(tmp_path).recover()


class BrokenFiles(SystemFiles):
    """Files that cannot be written or synced for a while."""

    def __init__(self) -> None:
        self.fails = ""

    def write(self, handle: int, parts: Any, at: int) -> None:
        if self.fails == "write":
            super().write(handle, [b"".join(parts)[:300]], at)
            raise OSError(28, "No space left on device")
        super().write(handle, parts, at)

    def sync(self, handle: int) -> None:
        if self.fails == "sync":
            raise OSError(5, "Input/output error")
        super().sync(handle)


@pytest.mark.parametrize("what", ["write", "sync"])
def test_after_a_failure_nothing_is_written_until_recovery(tmp_path: Path, what: str) -> None:
    """A failed write or sync is final for the open log: the kernel may report success for the next sync without it."""
    files = BrokenFiles()
    with opened(tmp_path, files=files) as store:
        store.write(commit_of(1, 1, bodies=[(1, b"one")]))
        store.sync()
        files.fails = what
        with pytest.raises(StoreFailed, match=f"could not {what}"):
            write_and_sync(store)
        files.fails = ""
        with pytest.raises(StoreFailed, match="not been recovered"):
            store.write(commit_of(2, 1))
        with pytest.raises(StoreFailed, match="not been recovered"):
            store.sync()
        end = store.recover().next_sequence
        assert end == (2 if what == "write" else 3), "a whole record counts, a part of one does not"
        store.write(commit_of(end, 1, bodies=[(9, b"nine")]))
        store.sync()
    with opened(tmp_path) as again:
        assert again.bodies([1, 9]) == [b"one", b"nine"]


def write_and_sync(store: LogStore) -> None:
    store.write(commit_of(2, 1, bodies=[(2, b"two" * 500)]))
    store.sync()


def test_recovery_without_closing_keeps_written_commits(tmp_path: Path) -> None:
    """Reopening in the same process loses nothing that reached the log."""
    with opened(tmp_path) as store:
        store.write(commit_of(1, 2, bodies=[(1, b"one")]))
        assert store.recover() == Extent(first=1, base=1, next_sequence=3)
        assert store.bodies([1]) == [b"one"]


@pytest.mark.parametrize("how", ["oldest", "random", "latest"])
def test_the_disk_is_bounded_while_a_backlog_drains_slowly(tmp_path: Path, how: str) -> None:
    """With a standing backlog, whichever messages go first, the files take at most 1.6 times what is alive and kept."""
    chance, alive, worst = random.Random(1), list[int](), 0.0
    backlog, kept, size = 4_000, 1_000, 1024
    with opened(tmp_path, durability="os", segment_bytes_max=64 * 1024) as store:
        for sequence in range(1, 12_000):
            dropped = []
            if len(alive) >= backlog:
                at = {"oldest": 0, "latest": -1}.get(how, chance.randrange(len(alive)))
                dropped = [alive.pop(at)]
            alive.append(sequence)
            trim = max(sequence - kept, 1)
            store.write(commit_of(sequence, 1, bodies=[(sequence, b"x" * size)], dropped=dropped, base=trim, trim=trim))
            if sequence > backlog and sequence % 250 == 0:
                worst = max(worst, store.size() / (len(alive) * size + kept * 8))
        assert all(body == b"x" * size for body in store.bodies(alive))
    assert worst <= 1.6
    with opened(tmp_path) as store:
        assert all(body == b"x" * size for body in store.bodies(alive))


def test_the_space_of_dropped_bodies_is_returned_on_demand(tmp_path: Path) -> None:
    """When the disk is short, segments that hold nothing are deleted at once, and sparse ones are moved."""
    body = os.urandom(1 << 20)
    numbers = range(1, 101)
    with opened(tmp_path, durability="os") as store:
        for number in numbers:
            store.write(commit_of(number, 1, bodies=[(number, body)]))
        store.write(commit_of(101, 1, dropped=list(numbers)))
        store.reclaim()
        store.reclaim()
        assert store.size() < 20 * len(body)
        assert [page.sequence for page in store.pages(0)] == list(range(1, 102))


def test_a_damaged_body_is_reported_and_the_rest_can_be_read(tmp_path: Path) -> None:
    """Damage in a segment that is full is found when it is read; the store opens, and other bodies are whole."""
    with opened(tmp_path, segment_bytes_max=8192) as store:
        for sequence in range(1, 20):
            store.write(commit_of(sequence, 1, bodies=[(sequence, b"body %02d" % sequence * 100)]))
    full = next(file for file in (tmp_path / "log").glob("*.segment") if b"body 02body" in file.read_bytes())
    overwrite(full, full.read_bytes().index(b"body 02"), b"BODY")
    with opened(tmp_path) as store:
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.bodies([2])
        assert store.bodies([1, 3]) == [b"body 01" * 100, b"body 03" * 100]


def test_other_users_have_no_access(tmp_path: Path) -> None:
    """Whatever the umask, the folders are 0700 and the files 0600."""
    before = os.umask(0)
    try:
        with opened(tmp_path / "store") as store:
            store.write(commit_of(1, 1))
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")}
    assert modes == {0o700, 0o600}


def test_the_index_of_bodies_agrees_with_a_dictionary() -> None:
    """In whatever order numbers come and go, each has the place that it was given last."""
    chance, index, model = random.Random(2), BodyIndex(), dict[int, tuple[int, int]]()
    for step in range(60_000):
        number = step if chance.random() < 0.7 else chance.randrange(1 << 20)
        place = (chance.randint(1, 9), step)
        if chance.random() < 0.55:
            assert index.put(number, *place) == model.get(number)
            model[number] = place
        else:
            number = chance.choice((number, max(0, step - chance.randrange(5_000))))
            assert index.remove(number) == model.pop(number, None)
    assert list(index) == sorted(model)
    assert len(index) == len(model)
    assert all(index.find(number) == model.get(number) for number in range(0, 70_000, 7))


class HeldBack:
    """Prepares files in a thread that waits for a sign."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.has_begun = False

    def __call__(self, work: Callable[[], None]) -> None:
        def run() -> None:
            self.go.wait()
            work()

        self.has_begun = True
        threading.Thread(target=run, daemon=True).start()


def check_waits(background: HeldBack, call: Callable[[], None]) -> None:
    """Check that a call ends only after the file in the making was given the sign to go on."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(timeout=0.1)
    assert thread.is_alive()
    background.go.set()
    thread.join()


def write_body(store: LogStore, number: int) -> None:
    store.write(commit_of(number, 1, bodies=[(number, bytes(100_000))]))


def segment_sizes(folder: Path) -> list[int]:
    return [file.stat().st_size for file in (folder / "log").glob("*.segment")]


def test_a_log_is_closed_once_no_file_is_in_the_making(tmp_path: Path) -> None:
    """Closing waits for a file in the making, which the next start could take and lose to the thread that makes it."""
    background = HeldBack()
    store = LogStore(tmp_path, background=background)
    store.recover()
    for number in range(1, 7):
        write_body(store, number)
    assert background.has_begun
    check_waits(background, store.close)
    assert segment_sizes(tmp_path) == [1 << 20]


def test_a_log_makes_one_file_at_a_time(tmp_path: Path) -> None:
    """A commit that needs the next segment waits for the one in the making, as a second one may not fit on the disk."""
    background = HeldBack()
    with opened(tmp_path, background=background) as store:
        for number in range(1, 11):
            write_body(store, number)
        check_waits(background, lambda: write_body(store, 11))
        assert segment_sizes(tmp_path) == [1 << 20, 1 << 20]
