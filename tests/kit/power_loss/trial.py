"""Runs a log on a recording disk, lets power fail at every point, and compares what is recovered with the answers.

What must hold in every state that the disk may be in:

- The store opens: a power loss is never taken for damage.
- Every commit whose sync returned is there; each other one is there completely or not at all, and none without all
  before it.
- No sequence that was written may be issued again.

A recovered store then lives on, and power fails again: what an earlier life left behind must not come back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlane.adapters.log.store import LogStore
from fairlane.ports.store import Commit, Extent, StoredPage
from fairlane.testing.store_contract import page_of
from tests.kit.power_loss.disk import Crashes, Image, Note, RecordingDisk

FOLDER = Path("/store")
LIVES = 3
_SIZES = (0, 1, 90, 700, 2500)


@dataclass(frozen=True, slots=True)
class State:
    """What a store holds after a commit: a naive model."""

    pages: tuple[StoredPage, ...] = ()
    bodies: dict[int, bytes] = field(default_factory=dict)
    first: int = 1
    base: int = 1
    end: int = 1

    def after(self, commit: Commit) -> State:
        """Return the state after one more commit."""
        pages = self.pages
        if commit.next_sequence > commit.sequence:
            pages = (*pages, StoredPage(commit.sequence, commit.next_sequence, commit.page))
        pages = tuple(page for page in pages if page.next_sequence > commit.trim)
        bodies = {**self.bodies, **dict(commit.bodies)}
        for number in commit.dropped:
            bodies.pop(number, None)
        first = pages[0].sequence if pages else commit.next_sequence
        return State(pages, bodies, first, commit.base, commit.next_sequence)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: states that may be found after a crash.

    Attributes:
        states: the last that is certain to be durable, and each one after it.
        issued: sequences before it were written at some time.
    """

    states: tuple[State, ...]
    issued: int


@dataclass(frozen=True, slots=True)
class Loss(Exception):
    """A crash state that broke a promise."""

    where: str
    what: str


class Life:
    """One run of a store from an image on: random commits, syncs, reopenings; then power fails."""

    def __init__(self, image: Image | None, progress: Progress, chance: random.Random, *, boot: str) -> None:
        self.disk = RecordingDisk(image, boot=boot)
        self._chance = chance
        self._progress = progress
        self._number = max((number for state in progress.states for number in state.bodies), default=0) + 1_000
        self._segment_bytes = chance.choice((2048, 8192, 65536))

    def run(self, steps: int) -> None:
        """Live for some steps."""
        self.disk.note(self._progress)
        store = self._store()
        extent = store.recover()
        self._certain(_found(store, extent, self._progress))
        if extent.reserved:
            self._commit(store, skip_to=extent.reserved)
        for _ in range(steps):
            self._step(store)
        store.close()
        self._certain(self._progress.states[-1])

    def _store(self) -> LogStore:
        return LogStore(
            FOLDER,
            files=self.disk,
            background=lambda work: work(),
            entropy=self._chance.randbytes,
            segment_bytes_max=self._segment_bytes,
        )

    def _certain(self, state: State | None) -> None:
        assert state is not None
        self._progress = replace(self._progress, states=(state,))
        self.disk.note(self._progress)

    def _step(self, store: LogStore) -> None:
        kind = self._chance.random()
        if kind < 0.75:
            self._commit(store)
            if self._chance.random() < 0.8:
                self._sync(store)
        elif kind < 0.85:
            self._sync(store)
        elif kind < 0.92:
            store._high_water.note()
        elif kind < 0.97:
            store.close()
            self._certain(self._progress.states[-1])
            store.recover()
        else:
            store.reclaim()

    def _sync(self, store: LogStore) -> None:
        store.sync()
        self._certain(self._progress.states[-1])

    def _commit(self, store: LogStore, *, skip_to: int = 0) -> None:
        chance, state = self._chance, self._progress.states[-1]
        start = state.end
        end = max(start + chance.randint(0, 3), skip_to)
        base = min(state.base + chance.choice((0, 0, 3)), end)
        trim = max(base - chance.randrange(8), 0) if chance.random() < 0.3 else 0
        bodies = [(self._number + at, chance.randbytes(chance.choice(_SIZES))) for at in range(chance.randint(0, 3))]
        self._number += len(bodies)
        known = [*state.bodies]
        dropped = chance.sample(known, min(len(known), chance.choice((0, 1, 1, 2, 5))))
        page = page_of(start, min(end, start + 3)) + chance.randbytes(8)
        commit = Commit(
            sequence=start, next_sequence=end, page=page, bodies=bodies, dropped=dropped, base=base, trim=trim
        )
        states = (*self._progress.states, state.after(commit))
        self._progress = Progress(states, max(self._progress.issued, end))
        self.disk.note(self._progress)  # before the write: any part of it may be there
        store.write(commit)


def crash_states(seed: int, *, steps: int, lives: int = LIVES, torn: int = 2) -> Iterator[str]:
    """Yield a line for each crash state of a seed that was checked. Raises Loss if one breaks a promise.

    Args:
        seed: determines the run.
        steps: how long each life is.
        lives: how often power fails and the store lives on.
        torn: how many random states are tried after each operation, beside the two extreme ones.
    """
    chance = random.Random(seed)
    image, progress = None, Progress((State(),), 1)
    for life in range(lives):
        lived = Life(image, progress, chance, boot=f"boot {life}")
        lived.run(steps)
        survivors: list[tuple[Image, Progress]] = []
        for where, crashed, known in _crashes(lived.disk, chance, torn):
            name = f"seed {seed}, life {life}, operation {where}"
            check(crashed, known, name)
            yield name
            if chance.random() < 0.05:
                survivors.append((crashed, known))
        image, progress = chance.choice(survivors) if survivors else (lived.disk.start, progress)


def _crashes(disk: RecordingDisk, chance: random.Random, torn: int) -> Iterator[tuple[str, Image, Progress]]:
    crashes = Crashes(disk.start)
    progress = Progress((State(),), 1)
    for at, operation in enumerate(disk.operations):
        crashes.follow(operation)
        if isinstance(operation, Note):
            assert isinstance(operation.what, Progress)
            progress = operation.what
            continue
        yield f"{at}, all kept", crashes.kept(), progress
        yield f"{at}, all lost", crashes.lost(), progress
        for number in range(torn):
            yield f"{at}, torn {number}", crashes.torn(chance), progress


def check(image: Image, progress: Progress, where: str) -> None:
    """Open a crashed store, and compare it with what may be there. Raises Loss if it is not."""
    disk = RecordingDisk(image, boot="after the crash")
    store = LogStore(FOLDER, files=disk, background=lambda work: work(), segment_bytes_max=8192)
    try:
        extent = store.recover()
    except Exception as error:
        raise Loss(where, f"does not open: {error}") from error
    try:
        _compare(store, extent, progress, where)
    finally:
        store.close()


def _compare(store: LogStore, extent: Extent, progress: Progress, where: str) -> None:
    if _found(store, extent, progress) is None:
        ends = [state.end for state in progress.states]
        raise Loss(where, f"ends at {extent.next_sequence}, expected one of {ends}, or has other content")
    if max(extent.reserved, extent.next_sequence) < progress.issued:
        raise Loss(where, f"issues {extent.next_sequence} again; {progress.issued - 1} was issued")


def _found(store: LogStore, extent: Extent, progress: Progress) -> State | None:
    """Return which of the possible states a store is in; None if it is in none of them."""
    numbers = sorted({number for state in progress.states for number in state.bodies})
    bodies = {number: body for number, body in zip(numbers, store.bodies(numbers), strict=True) if body is not None}
    found = State(tuple(store.pages(0)), bodies, extent.first, extent.base, extent.next_sequence)
    return next((state for state in progress.states if state == found), None)
