"""The faulty store loses what a disk may lose, never more, and repeats it by seed."""

from __future__ import annotations

import random

import pytest

from fairlane.errors import StoreFailed
from fairlane.ports.store import Extent
from fairlane.testing.faulty_store import Fault, FaultyStore
from fairlane.testing.store_contract import commit_of


def store_of(seed: int = 1, **rates: float) -> FaultyStore:
    store = FaultyStore(random.Random(seed), rates=rates)  # type: ignore[arg-type]
    store.recover()
    return store


def write_from(store: FaultyStore, first: int, last: int) -> None:
    for sequence in range(first, last + 1):
        store.write(commit_of(sequence, 1, bodies=[(sequence, b"%d" % sequence)]))


def check_is_first_few(store: FaultyStore, extent: Extent) -> None:
    """Check that pages and bodies are those of the commits before the end, and of no other."""
    kept = extent.next_sequence - 1
    assert [page.sequence for page in store.pages(0)] == list(range(1, kept + 1))
    assert store.bodies([kept, kept + 1]) == [b"%d" % kept if kept else None, None]


def test_a_crash_keeps_synced_commits_and_a_prefix_of_the_rest() -> None:
    """Over many seeds every number of unsynced commits survives, from none to all, and always whole ones."""
    survivors = set()
    for seed in range(60):
        store = store_of(seed)
        write_from(store, 1, 3)
        store.sync()
        write_from(store, 4, 7)
        assert store.volatile_count == 4
        store.crash()
        extent = store.recover()
        check_is_first_few(store, extent)
        survivors.add(extent.next_sequence - 1)
    assert survivors == {3, 4, 5, 6, 7}


def test_what_recovery_has_returned_is_never_lost() -> None:
    """A crash right after a recovery changes nothing."""
    for seed in range(20):
        store = store_of(seed)
        write_from(store, 1, 5)
        store.crash()
        extent = store.recover()
        store.crash()
        assert store.recover() == extent


def test_a_crashed_store_refuses_all_but_recover() -> None:
    """A crashed process does not continue."""
    store = store_of()
    write_from(store, 1, 1)
    store.crash()
    with pytest.raises(StoreFailed, match="not open"):
        store.write(commit_of(2, 1))
    with pytest.raises(StoreFailed, match="not open"):
        list(store.pages(0))


@pytest.mark.parametrize(("fault", "survives"), [("before_write", False), ("after_write", True)])
def test_a_failed_write_survives_or_not_as_armed(fault: Fault, survives: bool) -> None:
    """A write that was never made and one that was made raise the same error."""
    store = store_of()
    write_from(store, 1, 1)
    store.sync()
    store.faults.arm(fault)
    with pytest.raises(StoreFailed):
        store.write(commit_of(2, 1))
    assert (store.volatile_count == 1) is survives


def test_after_a_failure_nothing_is_accepted_until_recovery() -> None:
    """Writes and syncs are refused, reads are not."""
    store = store_of()
    write_from(store, 1, 1)
    store.faults.arm("sync")
    with pytest.raises(StoreFailed, match="injected fault"):
        store.sync()
    for call in (store.sync, lambda: store.write(commit_of(2, 1))):
        with pytest.raises(StoreFailed, match="call recover"):
            call()
    assert store.bodies([1]) == [b"1"]
    extent = store.recover()
    write_from(store, extent.next_sequence, 2)
    store.sync()


def test_a_failed_sync_may_keep_any_prefix() -> None:
    """Over many seeds every number of the commits that a failed sync should cover exists afterwards."""
    survivors = set()
    for seed in range(60):
        store = store_of(seed)
        write_from(store, 1, 3)
        store.faults.arm("sync")
        with pytest.raises(StoreFailed):
            store.sync()
        extent = store.recover()
        check_is_first_few(store, extent)
        survivors.add(extent.next_sequence - 1)
    assert survivors == {0, 1, 2, 3}


def test_a_full_disk_stays_full_until_freed() -> None:
    """Recovery works on a full disk, and writing does not."""
    store = store_of()
    store.faults.arm("full")
    for _ in range(3):
        with pytest.raises(StoreFailed, match="full"):
            store.write(commit_of(1, 1))
        store.recover()
    store.free()
    write_from(store, 1, 1)
    store.sync()


def test_a_failed_read_affects_nothing_else() -> None:
    """A read that fails once can be repeated, and writing goes on."""
    store = store_of()
    write_from(store, 1, 1)
    store.faults.arm("read", times=2)
    with pytest.raises(StoreFailed):
        list(store.pages(0))
    with pytest.raises(StoreFailed):
        store.bodies([1])
    assert store.bodies([1]) == [b"1"]
    store.sync()


def test_a_failed_recovery_can_be_repeated() -> None:
    """What was durable waits for a recovery that works."""
    store = store_of()
    write_from(store, 1, 2)
    store.close()
    store.faults.arm("recover", times=2)
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.recover()
    assert store.recover() == Extent(first=1, base=1, next_sequence=3)


def test_random_faults_repeat_with_the_seed() -> None:
    """The same seed and the same calls fail in the same way and keep the same commits."""

    def history(seed: int) -> list[object]:
        store = store_of(seed, before_write=0.1, after_write=0.1, sync=0.2, read=0.0)
        seen: list[object] = []
        end = 1
        for _ in range(200):
            try:
                store.write(commit_of(end, 1))
                end += 1
                store.sync()
            except StoreFailed as failure:
                end = store.recover().next_sequence
                seen.append((str(failure), end))
        return seen

    assert history(5) == history(5)
    assert history(5) != history(6)


def test_disarming_ends_all_faults() -> None:
    """Neither armed nor random faults happen any more."""
    store = store_of(sync=1.0)
    store.faults.arm("before_write", times=5)
    store.faults.disarm()
    write_from(store, 1, 3)
    store.sync()
    assert store.volatile_count == 0
