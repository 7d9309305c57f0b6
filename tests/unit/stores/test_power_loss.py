"""Whatever a disk makes of a power loss, the log opens, and has every commit whose sync returned."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice

import pytest

from tests.kit.power_loss.disk import Crashes, Image, Note, Operation, RecordingDisk, Sync, SyncFolder
from tests.kit.power_loss.trial import FOLDER, Life, Loss, Progress, State, check, crash_states

_STATES = 2_000
_STATES_LONG = 50_000


def states_of(seeds: Iterator[int]) -> Iterator[str]:
    return chain.from_iterable(crash_states(seed, steps=20) for seed in seeds)


def test_no_crash_state_loses_anything() -> None:
    """Every prefix of some recorded runs, with any part of what was not synced, recovers to what was answered."""
    assert sum(1 for _ in islice(states_of(iter(range(100))), _STATES)) == _STATES


@pytest.mark.long
def test_no_crash_state_of_many_runs_loses_anything() -> None:
    """The same for more runs than the gate has time for."""
    assert sum(1 for _ in islice(states_of(iter(range(100, 1_000))), _STATES_LONG)) == _STATES_LONG


@pytest.mark.parametrize("lie", [Sync, SyncFolder])
def test_a_disk_that_does_not_sync_is_found_out(lie: type[Operation]) -> None:
    """The model would notice a sync that is missing: with a kind of sync left out, something is lost."""
    with pytest.raises(Loss):
        check_runs(range(20), without=lie)


def check_runs(seeds: range, *, without: type[Operation]) -> None:
    for seed in seeds:
        check_run(random.Random(seed), without=without)


def check_run(chance: random.Random, *, without: type[Operation]) -> None:
    life = Life(None, Progress((State(),), 1), chance, boot="first")
    life.run(20)
    crashes, progress = Crashes(Image()), Progress((State(),), 1)
    for at, operation in enumerate(life.disk.operations):
        if isinstance(operation, Note):
            assert isinstance(operation.what, Progress)
            progress = operation.what
        elif not isinstance(operation, without):
            crashes.follow(operation)
            check(crashes.torn(chance), progress, f"{at}")


def test_a_sector_is_old_or_new_and_never_a_part_of_both() -> None:
    """A torn file consists of whole sectors, each as it was before the write or after it."""
    disk = RecordingDisk()
    handle = disk.create(FOLDER / "file")
    disk.write(handle, [b"a" * 2048], 0)
    disk.sync(handle)
    disk.sync_folder(FOLDER)
    disk.write(handle, [b"b" * 2048], 0)
    crashes = Crashes(disk.start)
    for operation in disk.operations:
        crashes.follow(operation)
    seen: set[bytes] = set()
    for seed in range(50):
        image = crashes.torn(random.Random(seed))
        (data,) = image.files.values()
        seen.update(data[at : at + 512] for at in range(0, 2048, 512))
    assert seen == {b"a" * 512, b"b" * 512}


def test_a_synced_file_without_a_synced_name_may_be_lost() -> None:
    """The name of a new file is durable only once its folder was synced."""
    disk = RecordingDisk()
    handle = disk.create(FOLDER / "file")
    disk.write(handle, [b"a"], 0)
    disk.sync(handle)
    crashes = Crashes(disk.start)
    for operation in disk.operations:
        crashes.follow(operation)
    assert crashes.lost().names == {}
    assert crashes.kept().names.keys() == {FOLDER / "file"}
