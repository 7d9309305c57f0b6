"""The contract that every store must satisfy, as tests for any adapter.

Derive a test class from ``StoreContract`` and implement ``make_store``; pytest, unittest or plain calls can run it.
``fairlane.testing.store_machine`` covers what no list of cases can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from fairlane.adapters.system import SystemEntropy
from fairlane.broker.handlers.internal import IdentifyJournal
from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit, Extent, RemoteStore, Store, StoredPage
from fairlane.testing.stepped import SteppedBroker

_BIG_BODY_BYTES = 16 << 20
_MANY = 500
_TEXT_LENGTH_MAX = 500


class StoreContract:
    """The contract of ``fairlane.ports.store.Store``. Each test creates its own store.

    Attributes:
        counts_from: the number before the first sequence of a new store. Sequences in the tests count from there.
    """

    counts_from = 0

    def make_store(self) -> Store:
        """Return a new, empty store that is not yet recovered."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store:
        """Close a store and open it again, preferably as another object on the same data."""
        store.close()
        store.recover()
        return store

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Provide a new, open store, and close it afterwards."""
        store = self.make_store()
        store.recover()
        try:
            yield store
        finally:
            store.close()

    def commit(self, sequence: int, count: int, *, base: int = 1, trim: int = 0, **bodies: Any) -> Commit:  # noqa: ANN401 - see commit_of
        """Return a commit with ``count`` records; see ``commit_of``."""
        first = self.counts_from
        return commit_of(first + sequence, count, base=first + base, trim=first + trim if trim else 0, **bodies)

    def extent(self, first: int, *, base: int, end: int) -> Extent:
        """Return the extent that a store should report."""
        counted = self.counts_from
        return Extent(first=counted + first, base=counted + base, next_sequence=counted + end)

    def starts(self, pages: Iterator[StoredPage]) -> list[int]:
        """Return the first sequence of each page."""
        return [page.sequence - self.counts_from for page in pages]

    def test_a_new_store_is_empty(self) -> None:
        """An empty store begins and ends at its first sequence and holds no pages or bodies."""
        store = self.make_store()
        check_same(store.recover(), self.extent(1, base=1, end=1), "extent of a new store")
        check_same(list(store.pages(0)), [], "pages of a new store")
        check_same(store.bodies([1, 2]), [None, None], "bodies of a new store")
        store.close()

    def test_what_was_synced_is_there_after_reopening(self) -> None:
        """Pages, bodies, base and end are the same after the store is opened again."""
        with self.opened() as store:
            store.write(self.commit(1, 3, bodies=[(1, b"one"), (2, b"")]))
            store.write(self.commit(4, 1, bodies=[(3, b"three")], base=2))
            store.sync()
            before = list(store.pages(0))
            again = self.reopen(store)
            check_same(again.recover(), self.extent(1, base=2, end=5), "extent")
            check_same(list(again.pages(0)), before, "pages")
            check_same(again.bodies([3, 2, 1]), [b"three", b"", b"one"], "bodies")
            again.close()

    def test_what_was_written_is_visible_before_it_is_synced(self) -> None:
        """Reads see a commit as soon as it is written."""
        with self.opened() as store:
            store.write(self.commit(1, 2, bodies=[(7, b"seven")]))
            begin, end = self.counts_from + 1, self.counts_from + 3
            check_same(list(store.pages(0)), [StoredPage(begin, end, page_of(begin, end))], "pages")
            check_same(store.bodies([7]), [b"seven"], "bodies")

    def test_pages_begin_with_the_one_that_holds_the_next_sequence(self) -> None:
        """Reading after any position returns exactly the pages that hold later sequences."""
        with self.opened() as store:
            for sequence, count in ((1, 3), (4, 1), (5, 4)):
                store.write(self.commit(sequence, count))
            for after in range(10):
                expected = [start for start, last in ((1, 3), (4, 4), (5, 8)) if last > after]
                check_same(self.starts(store.pages(self.counts_from + after)), expected, f"pages after {after}")

    def test_bodies_come_in_the_order_asked(self) -> None:
        """Bodies can be requested in any order and repeatedly; an empty request returns an empty list."""
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(number, b"%d" % number) for number in range(1, 6)]))
            check_same(store.bodies([5, 1, 9, 1]), [b"5", b"1", None, b"1"], "bodies")
            check_same(store.bodies([]), [], "no bodies")

    def test_what_a_remote_store_fetches_is_what_it_reads(self) -> None:
        """Small and large bodies, written, synced and dropped, are fetched as ``bodies`` returns them."""
        with self.opened() as store:
            if not isinstance(store, RemoteStore):
                return
            bodies = [(1, b"one"), (2, bytes(200_000)), (3, b"three"), (4, bytes(200_000))]
            for commit in (self.commit(1, 1, bodies=bodies), self.commit(2, 1, dropped=[3, 4])):
                store.write(commit)
                for when in ("unsynced", "synced"):
                    for number in range(6):
                        check_same(store.fetch([number]), store.bodies([number]), f"body {number}, {when}")
                    check_same(store.fetch([2, 9, 1]), [bytes(200_000), None, b"one"], f"bodies, {when}")
                    store.sync()

    def test_dropped_bodies_are_gone(self) -> None:
        """A dropped body is gone at once and after reopening; the other bodies stay."""
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(1, b"one"), (2, b"two")]))
            store.write(self.commit(2, 1, dropped=[1]))
            check_same(store.bodies([1, 2]), [None, b"two"], "bodies")
            store.sync()
            again = self.reopen(store)
            check_same(again.bodies([1, 2]), [None, b"two"], "bodies after reopening")
            again.close()

    def test_a_body_may_be_dropped_by_the_commit_that_adds_it(self) -> None:
        """A body that one commit adds and drops is never visible."""
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(1, b"one"), (2, b"two")], dropped=[1]))
            check_same(store.bodies([1, 2]), [None, b"two"], "bodies")

    def test_dropping_what_is_not_there_does_nothing(self) -> None:
        """Dropping a number that was never used, or was dropped before, succeeds."""
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(1, b"one")], dropped=[77]))
            store.write(self.commit(2, 1, dropped=[1, 77]))
            store.write(self.commit(3, 1, dropped=[1]))
            check_same(store.bodies([1, 77]), [None, None], "bodies")

    def test_trimming_deletes_whole_pages(self) -> None:
        """Pages that end at or before the trim are deleted; a page that reaches past it stays complete."""
        with self.opened() as store:
            store.write(self.commit(1, 3))
            store.write(self.commit(4, 3))
            store.write(self.commit(7, 1, base=6, trim=3))
            check_same(self.starts(store.pages(0)), [1, 4, 7], "pages trimmed to 3")
            store.write(self.commit(8, 1, base=6, trim=4))
            check_same(self.starts(store.pages(0)), [4, 7, 8], "pages trimmed to 4")
            store.write(self.commit(9, 1, base=8, trim=8))
            store.sync()
            again = self.reopen(store)
            check_same(again.recover(), self.extent(8, base=8, end=10), "extent")
            check_same(self.starts(again.pages(0)), [8, 9], "pages trimmed to 8")
            again.close()

    def test_trimming_may_leave_no_page(self) -> None:
        """A commit may trim its own page; the next commit continues where the last one ended."""
        with self.opened() as store:
            store.write(self.commit(1, 3))
            store.write(self.commit(4, 2, base=6, trim=6))
            check_same(list(store.pages(0)), [], "pages")
            store.sync()
            again = self.reopen(store)
            check_same(again.recover(), self.extent(6, base=6, end=6), "extent")
            again.write(self.commit(6, 1, base=6, trim=6))
            check_same(self.starts(again.pages(0)), [6], "pages")
            again.close()

    def test_trimming_never_passes_the_base(self) -> None:
        """Recovery needs the pages from the base on: the store rejects a commit that would trim them, or keeps them."""
        with self.opened() as store:
            store.write(self.commit(1, 3))
            store.write(self.commit(4, 3))
            is_refused(lambda: store.write(self.commit(7, 1, base=2, trim=7)))
            check_same(self.starts(store.pages(0))[:2], [1, 4], "pages from the base on")

    def test_a_commit_without_records_has_no_page(self) -> None:
        """Bodies can be dropped and pages trimmed without a record."""
        with self.opened() as store:
            store.write(self.commit(1, 2, bodies=[(1, b"one")]))
            store.write(self.commit(3, 0, dropped=[1], base=3))
            store.write(self.commit(3, 1, base=3))
            check_same(self.starts(store.pages(0)), [1, 3], "pages")
            check_same(store.bodies([1]), [None], "bodies")

    def test_a_commit_that_does_not_follow_is_refused(self) -> None:
        """A commit that leaves a gap or overlaps changes nothing: another process wrote, or the broker is wrong."""
        with self.opened() as store:
            store.write(self.commit(1, 3, bodies=[(1, b"one")]))
            store.sync()
            for sequence in (1, 3, 5):
                wrong = self.commit(sequence, 1, bodies=[(2, b"two")], dropped=[1])
                check_refused(partial(store.write, wrong), f"a commit at {sequence}")
            check_same(store.recover(), self.extent(1, base=1, end=4), "extent")
            check_same(self.starts(store.pages(0)), [1], "pages")
            check_same(store.bodies([1, 2]), [b"one", None], "bodies")

    def test_pages_can_be_read_while_more_are_written(self) -> None:
        """A reader that continues after writes and other reads sees every earlier page once, in order."""
        with self.opened() as store:
            for sequence in range(1, _MANY):
                store.write(self.commit(sequence, 1, bodies=[(sequence, b"%d" % sequence)]))
            seen = []
            for page in store.pages(0):
                at = page.sequence - self.counts_from
                seen.append(at)
                if len(seen) < _MANY:
                    store.write(self.commit(_MANY - 1 + len(seen), 1))
                    check_same(store.bodies([at]), [b"%d" % at], "body")
            check_same(seen[: _MANY - 1], list(range(1, _MANY)), "pages that were there")
            check_same(seen, list(range(1, len(seen) + 1)), "pages")

    def test_an_unfinished_read_of_pages_hinders_nothing(self) -> None:
        """A store can be reopened while a reader has not read all pages."""
        with self.opened() as store:
            store.write(self.commit(1, 1))
            store.write(self.commit(2, 1))
            pages = store.pages(0)
            check_same(next(pages).sequence, self.counts_from + 1, "first page")
            again = self.reopen(store)
            check_same(self.starts(again.pages(0)), [1, 2], "pages")
            again.close()

    def test_a_body_may_be_big(self) -> None:
        """A body of 16 MiB is returned unchanged."""
        body = bytes(range(256)) * (_BIG_BODY_BYTES // 256)
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(1, body), (2, b"small")]))
            store.sync()
            again = self.reopen(store)
            check_same(again.bodies([2, 1]), [b"small", body], "bodies")
            again.close()

    def test_many_small_commits_keep_their_order(self) -> None:
        """Hundreds of commits with occasional syncs are read in order from any position."""
        with self.opened() as store:
            for sequence in range(1, _MANY + 1):
                store.write(self.commit(sequence, 1, bodies=[(sequence, b"%d" % sequence)]))
                if sequence % 50 == 0:
                    store.sync()
            again = self.reopen(store)
            check_same(self.starts(again.pages(self.counts_from + 123)), list(range(124, _MANY + 1)), "pages after 123")
            check_same(again.bodies([_MANY, 1]), [b"%d" % _MANY, b"1"], "bodies")
            again.close()

    def test_numbers_of_bodies_may_be_great(self) -> None:
        """Bodies keep their numbers up to 2**53 - 1, the largest that a double represents exactly."""
        numbers = [(1 << 47) + 1, (1 << 47) + 2, (1 << 53) - 1]
        with self.opened() as store:
            store.write(self.commit(1, 1, bodies=[(number, b"%d" % number) for number in numbers]))
            store.write(self.commit(2, 1, dropped=numbers[:1]))
            store.sync()
            again = self.reopen(store)
            expected = [None, *(b"%d" % number for number in numbers[1:]), None, None]
            check_same(again.bodies([*numbers, 1, 2]), expected, "bodies")
            again.close()

    def test_the_size_grows_with_what_is_kept(self) -> None:
        """A store with a megabyte in it reports a greater size than an empty one."""
        with self.opened() as store:
            before = store.size()
            store.write(self.commit(1, 1, bodies=[(1, bytes(range(256)) * 4096)]))
            store.sync()
            check_same(store.size() > before, expected=True, what="whether the size has grown")

    def test_a_closed_store_refuses_all_but_recover(self) -> None:
        """Closing twice succeeds; every other call on a closed store is rejected."""
        with self.opened() as store:
            store.write(self.commit(1, 1))
            store.close()
            store.close()
            check_refused(lambda: store.write(self.commit(2, 1)), "a write")
            check_refused(store.sync, "a sync")
            check_refused(lambda: list(store.pages(0)), "a read of pages")
            check_refused(lambda: store.bodies([1]), "a read of bodies")
            check_same(store.recover(), self.extent(1, base=1, end=2), "extent")

    def test_a_journal_keeps_its_id_and_no_other_store_has_it(self) -> None:
        """A broker finds the id of its journal again after reopening, and gives a new store another one."""
        store, other = self.make_store(), self.make_store()
        journal_id = _opened_journal(store)
        check_same(_opened_journal(store), journal_id, "journal id after reopening")
        check_same(len(journal_id), 16, "length of a journal id")
        check_same(_opened_journal(other) == journal_id, expected=False, what="whether two stores share a journal id")

    def test_a_restored_journal_gets_a_new_id_for_good(self) -> None:
        """A journal that was declared restored has a new id from there on, after reopening too."""
        store = self.make_store()
        before = _opened_journal(store)
        renewed = _opened_journal(store, skip=1_000)
        check_same(renewed == before, expected=False, what="whether a restored journal keeps its id")
        check_same(_opened_journal(store), renewed, "journal id after reopening")


def page_of(sequence: int, next_sequence: int) -> bytes:
    """Return page bytes that are unique to these sequences."""
    return b"".join(b"%d;" % each for each in range(sequence, next_sequence))


def commit_of(
    sequence: int,
    count: int,
    *,
    bodies: Sequence[tuple[int, bytes]] = (),
    dropped: Sequence[int] = (),
    base: int = 1,
    trim: int = 0,
) -> Commit:
    """Return a commit with ``count`` records and a page that is unique to its sequences."""
    end = sequence + count
    page = page_of(sequence, end)
    return Commit(sequence=sequence, next_sequence=end, page=page, bodies=bodies, dropped=dropped, base=base, trim=trim)


def _opened_journal(store: Store, *, skip: int | None = None) -> str:
    """Open a broker on a store, declare the store restored if ``skip`` is given, and return the id of its journal."""
    broker = SteppedBroker(store, entropy=SystemEntropy())
    if skip is not None:
        broker.engine.renew_journal(skip=skip)
    try:
        return broker.call(IdentifyJournal()).journal_id
    finally:
        broker.close()


def check_same(actual: object, expected: object, what: str) -> None:
    """Fail the test unless the actual value equals the expected one."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def check_refused(call: Callable[[], object], what: str) -> None:
    """Fail the test unless the store rejects a call."""
    if not is_refused(call):
        raise AssertionError(f"The store accepted {what} but should reject it.")


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether a call raises ``StoreFailed`` or ``ValueError``."""
    try:
        call()
    except (StoreFailed, ValueError):
        return True
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}..."
