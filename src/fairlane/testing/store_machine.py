"""A store beside a naive model of it, driven by Hypothesis, which this module needs."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import settings as Settings  # noqa: N812  it is a class
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fairlane.ports.store import Commit, Extent, Store, StoredPage
from fairlane.testing.store_samples import check_same, page_of


class _Machine(RuleBasedStateMachine):
    """Every call of a store in every order. The model is two plain containers, searched from end to end."""

    make_store: Callable[[], Store]
    reopen_store: Callable[[Store], Store]

    @initialize()
    def make(self) -> None:
        """Begin with an empty store."""
        self.store = self.make_store()
        self.extent = self.store.recover()
        self.counts_from = self.extent.next_sequence - 1
        self.pages: list[StoredPage] = []
        self.bodies: dict[int, bytes] = {}
        self.number = 0

    @rule(
        count=st.integers(0, 5),
        sizes=st.lists(st.sampled_from([0, 1, 100, 5000]), max_size=4),
        seed=st.integers(0, 2**16),
        base_step=st.integers(0, 6),
        trim_lag=st.none() | st.integers(0, 6),
    )
    def write(self, count: int, sizes: list[int], seed: int, base_step: int, trim_lag: int | None) -> None:
        """Add a commit: some records and bodies, some dropped, the base moved, pages trimmed."""
        start = self.extent.next_sequence
        end = start + count
        base = min(self.extent.base + base_step, end)
        trim = 0 if trim_lag is None else max(base - trim_lag, 0)
        bodies = [(self.number + at, b"%d" % at * size) for at, size in enumerate(sizes, start=1)]
        self.number += len(bodies)
        dropped = self._some_numbers(seed)
        page = page_of(start, end)
        commit = Commit(
            sequence=start, next_sequence=end, page=page, bodies=bodies, dropped=dropped, base=base, trim=trim
        )
        self.store.write(commit)
        self._follow(commit)

    @rule()
    def sync(self) -> None:
        """Sync."""
        self.store.sync()

    @rule()
    def reopen(self) -> None:
        """Close and open anew."""
        self.store = self.reopen_store(self.store)
        check_same(self.store.recover(), self.extent, "extent after reopening")

    @rule(behind=st.none() | st.integers(-3, 60))
    def read_pages(self, behind: int | None) -> None:
        """Read the pages from anywhere on, and from 0, which is before the first wherever that is."""
        after = 0 if behind is None else max(0, self.counts_from + behind)
        expected = [page for page in self.pages if page.next_sequence - 1 > after]
        check_same(list(self.store.pages(after)), expected, f"pages after {after}")

    @invariant()
    def bodies_agree(self) -> None:
        """Every body that should be there is there, and no other."""
        if hasattr(self, "store"):
            numbers = list(range(self.number + 2))
            check_same(self.store.bodies(numbers), [self.bodies.get(each) for each in numbers], "bodies")

    def teardown(self) -> None:
        """Close, so that the next example can begin."""
        if hasattr(self, "store"):
            self.store.close()

    def _some_numbers(self, seed: int) -> list[int]:
        chance = random.Random(seed)
        return [chance.randrange(self.number + 2) for _ in range(chance.randrange(4))]

    def _follow(self, commit: Commit) -> None:
        if commit.next_sequence > commit.sequence:
            self.pages.append(StoredPage(commit.sequence, commit.next_sequence, commit.page))
        self.pages = [page for page in self.pages if page.next_sequence > commit.trim]
        self.bodies.update(commit.bodies)
        for number in commit.dropped:
            self.bodies.pop(number, None)
        first = self.pages[0].sequence if self.pages else commit.next_sequence
        self.extent = Extent(first=first, base=commit.base, next_sequence=commit.next_sequence)


def check_against_model(
    make_store: Callable[[], Store], reopen_store: Callable[[Store], Store], *, settings: Settings | None = None
) -> None:
    """Put stores through every kind of call in many orders, and compare each answer with a naive model's.

    Args:
        make_store: returns a new, empty store, not yet recovered.
        reopen_store: closes a store and returns it, or another on what it left, open.
        settings: of Hypothesis, such as how many examples.
    """
    methods = {"make_store": staticmethod(make_store), "reopen_store": staticmethod(reopen_store)}
    machine = type("StoreMachine", (_Machine,), methods)
    run_state_machine_as_test(machine, settings=settings)
