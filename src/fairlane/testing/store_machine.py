"""Compares a store with a naive model of it in a Hypothesis state machine. This module needs Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import settings as Settings  # noqa: N812 - it is a class
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fairlane.ports.store import Commit, Extent, Store, StoredPage
from fairlane.testing.store_contract import check_same, page_of


class _Machine(RuleBasedStateMachine):
    """Every call of a store, in every order. The model is two plain containers that are searched from end to end."""

    make_store: Callable[[], Store]
    reopen_store: Callable[[Store], Store]

    @initialize()
    def make(self) -> None:
        """Start with an empty store."""
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
        """Write a commit that adds records and bodies, drops bodies, moves the base and trims pages."""
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
        """Sync the store."""
        self.store.sync()

    @rule()
    def reopen(self) -> None:
        """Close the store and open it again."""
        self.store = self.reopen_store(self.store)
        check_same(self.store.recover(), self.extent, "extent after reopening")

    @rule(behind=st.none() | st.integers(-3, 60))
    def read_pages(self, behind: int | None) -> None:
        """Read the pages after any position, including 0, which precedes the first page of every store."""
        after = 0 if behind is None else max(0, self.counts_from + behind)
        expected = [page for page in self.pages if page.next_sequence - 1 > after]
        check_same(list(self.store.pages(after)), expected, f"pages after {after}")

    @invariant()
    def bodies_agree(self) -> None:
        """Check that the store holds exactly the bodies of the model."""
        if hasattr(self, "store"):
            numbers = list(range(self.number + 2))
            check_same(self.store.bodies(numbers), [self.bodies.get(each) for each in numbers], "bodies")

    def teardown(self) -> None:
        """Close the store before the next example."""
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
    """Call stores in many orders, and compare each answer with that of a naive model.

    Args:
        make_store: returns a new, empty store that is not yet recovered.
        reopen_store: closes a store, and returns an open one on the same data.
        settings: Hypothesis settings, such as the number of examples.
    """
    methods = {"make_store": staticmethod(make_store), "reopen_store": staticmethod(reopen_store)}
    machine = type("StoreMachine", (_Machine,), methods)
    run_state_machine_as_test(machine, settings=settings)
