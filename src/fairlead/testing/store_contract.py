"""What every store must do, as tests that any adapter can be put through.

Make a class of your tests from ``StoreContract`` and say in ``make_store`` how a store is made; pytest, unittest and
plain calls can run it. See ``fairlead.testing.store_machine`` for what no list of cases covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fairlead.ports.store import Extent, Store, StoredPage
from fairlead.testing.store_samples import check_refused, check_same, commit_of, is_refused, page_of

_BIG_BODY_BYTES = 16 << 20
_MANY = 500


def _starts(pages: Iterator[StoredPage]) -> list[int]:
    return [page.sequence for page in pages]


class StoreContract:
    """The contract of ``fairlead.ports.store.Store``. Each test makes a store of its own."""

    def make_store(self) -> Store:
        """Return a new, empty store, not yet recovered."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store:
        """Close a store and return it opened anew; better, another object on what the first left behind."""
        store.close()
        store.recover()
        return store

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Lend a new store, open."""
        store = self.make_store()
        store.recover()
        try:
            yield store
        finally:
            store.close()

    def test_a_new_store_is_empty(self) -> None:
        """A store that nothing was written to begins and ends at 1 and holds nothing."""
        store = self.make_store()
        check_same(store.recover(), Extent(first=1, base=1, next_sequence=1), "extent of a new store")
        check_same(list(store.pages(0)), [], "pages of a new store")
        check_same(store.bodies([1, 2]), [None, None], "bodies of a new store")
        store.close()

    def test_what_was_synced_is_there_after_reopening(self) -> None:
        """Pages, bodies, base and end are the same through another opening."""
        with self.opened() as store:
            store.write(commit_of(1, 3, bodies=[(1, b"one"), (2, b"")]))
            store.write(commit_of(4, 1, bodies=[(3, b"three")], base=2))
            store.sync()
            before = list(store.pages(0))
            again = self.reopen(store)
            check_same(again.recover(), Extent(first=1, base=2, next_sequence=5), "extent")
            check_same(list(again.pages(0)), before, "pages")
            check_same(again.bodies([3, 2, 1]), [b"three", b"", b"one"], "bodies")
            again.close()

    def test_what_was_written_is_visible_before_it_is_synced(self) -> None:
        """Reads see a commit as soon as it is written."""
        with self.opened() as store:
            store.write(commit_of(1, 2, bodies=[(7, b"seven")]))
            check_same(list(store.pages(0)), [StoredPage(1, 3, page_of(1, 3))], "pages")
            check_same(store.bodies([7]), [b"seven"], "bodies")

    def test_pages_begin_with_the_one_that_holds_the_next_sequence(self) -> None:
        """For every place inside, at the ends of, and outside pages, exactly the pages with later sequences come."""
        with self.opened() as store:
            for sequence, count in ((1, 3), (4, 1), (5, 4)):
                store.write(commit_of(sequence, count))
            for after in range(10):
                expected = [start for start, last in ((1, 3), (4, 4), (5, 8)) if last > after]
                check_same(_starts(store.pages(after)), expected, f"pages after {after}")

    def test_bodies_come_in_the_order_asked(self) -> None:
        """Bodies may be asked for in any order, more than once, and none at all."""
        with self.opened() as store:
            store.write(commit_of(1, 1, bodies=[(number, b"%d" % number) for number in range(1, 6)]))
            check_same(store.bodies([5, 1, 9, 1]), [b"5", b"1", None, b"1"], "bodies")
            check_same(store.bodies([]), [], "no bodies")

    def test_dropped_bodies_are_gone(self) -> None:
        """A dropped body is gone at once and after reopening, and the others stay."""
        with self.opened() as store:
            store.write(commit_of(1, 1, bodies=[(1, b"one"), (2, b"two")]))
            store.write(commit_of(2, 1, dropped=[1]))
            check_same(store.bodies([1, 2]), [None, b"two"], "bodies")
            store.sync()
            again = self.reopen(store)
            check_same(again.bodies([1, 2]), [None, b"two"], "bodies after reopening")
            again.close()

    def test_a_body_may_be_dropped_by_the_commit_that_adds_it(self) -> None:
        """What comes and goes in one commit is never seen."""
        with self.opened() as store:
            store.write(commit_of(1, 1, bodies=[(1, b"one"), (2, b"two")], dropped=[1]))
            check_same(store.bodies([1, 2]), [None, b"two"], "bodies")

    def test_dropping_what_is_not_there_does_nothing(self) -> None:
        """A number that was never used, or was dropped before, can be dropped."""
        with self.opened() as store:
            store.write(commit_of(1, 1, bodies=[(1, b"one")], dropped=[77]))
            store.write(commit_of(2, 1, dropped=[1, 77]))
            store.write(commit_of(3, 1, dropped=[1]))
            check_same(store.bodies([1, 77]), [None, None], "bodies")

    def test_trimming_deletes_whole_pages(self) -> None:
        """Pages that end at or before the trim are gone; one that reaches past it stays whole."""
        with self.opened() as store:
            store.write(commit_of(1, 3))
            store.write(commit_of(4, 3))
            store.write(commit_of(7, 1, base=6, trim=3))
            check_same(_starts(store.pages(0)), [1, 4, 7], "pages trimmed to 3")
            store.write(commit_of(8, 1, base=6, trim=4))
            check_same(_starts(store.pages(0)), [4, 7, 8], "pages trimmed to 4")
            store.write(commit_of(9, 1, base=8, trim=8))
            store.sync()
            again = self.reopen(store)
            check_same(again.recover(), Extent(first=8, base=8, next_sequence=10), "extent")
            check_same(_starts(again.pages(0)), [8, 9], "pages trimmed to 8")
            again.close()

    def test_trimming_may_leave_no_page(self) -> None:
        """Even the page of the commit that trims may go; the next is written where the last ended."""
        with self.opened() as store:
            store.write(commit_of(1, 3))
            store.write(commit_of(4, 2, base=6, trim=6))
            check_same(list(store.pages(0)), [], "pages")
            store.sync()
            again = self.reopen(store)
            check_same(again.recover(), Extent(first=6, base=6, next_sequence=6), "extent")
            again.write(commit_of(6, 1, base=6, trim=6))
            check_same(_starts(again.pages(0)), [6], "pages")
            again.close()

    def test_trimming_never_passes_the_base(self) -> None:
        """Recovery needs the pages from the base on: a commit that would trim them is refused, or spares them."""
        with self.opened() as store:
            store.write(commit_of(1, 3))
            store.write(commit_of(4, 3))
            is_refused(lambda: store.write(commit_of(7, 1, base=2, trim=7)))
            check_same(_starts(store.pages(0))[:2], [1, 4], "pages from the base on")

    def test_a_commit_without_records_has_no_page(self) -> None:
        """Bodies can be dropped and pages trimmed without a record."""
        with self.opened() as store:
            store.write(commit_of(1, 2, bodies=[(1, b"one")]))
            store.write(commit_of(3, 0, dropped=[1], base=3))
            store.write(commit_of(3, 1, base=3))
            check_same(_starts(store.pages(0)), [1, 3], "pages")
            check_same(store.bodies([1]), [None], "bodies")

    def test_a_commit_that_does_not_follow_is_refused(self) -> None:
        """A commit that leaves a gap or overlaps changes nothing: another wrote, or the broker is out of step."""
        with self.opened() as store:
            store.write(commit_of(1, 3, bodies=[(1, b"one")]))
            store.sync()
            for sequence in (1, 3, 5):
                wrong = commit_of(sequence, 1, bodies=[(2, b"two")], dropped=[1])
                check_refused(partial(store.write, wrong), f"a commit at {sequence}")
            check_same(store.recover(), Extent(first=1, base=1, next_sequence=4), "extent")
            check_same(_starts(store.pages(0)), [1], "pages")
            check_same(store.bodies([1, 2]), [b"one", None], "bodies")

    def test_pages_can_be_read_while_more_are_written(self) -> None:
        """Reading on after writes and other reads misses nothing that was there, in order and once."""
        with self.opened() as store:
            for sequence in range(1, _MANY):
                store.write(commit_of(sequence, 1, bodies=[(sequence, b"%d" % sequence)]))
            seen = []
            for page in store.pages(0):
                seen.append(page.sequence)
                if len(seen) < _MANY:
                    store.write(commit_of(_MANY - 1 + len(seen), 1))
                    check_same(store.bodies([page.sequence]), [b"%d" % page.sequence], "body")
            check_same(seen[: _MANY - 1], list(range(1, _MANY)), "pages that were there")
            check_same(seen, list(range(1, len(seen) + 1)), "pages")

    def test_an_unfinished_read_of_pages_hinders_nothing(self) -> None:
        """A store can be reopened while someone has not read all pages."""
        with self.opened() as store:
            store.write(commit_of(1, 1))
            store.write(commit_of(2, 1))
            pages = store.pages(0)
            check_same(next(pages).sequence, 1, "first page")
            again = self.reopen(store)
            check_same(_starts(again.pages(0)), [1, 2], "pages")
            again.close()

    def test_a_body_may_be_big(self) -> None:
        """A body of 16 MiB comes back as it was."""
        body = bytes(range(256)) * (_BIG_BODY_BYTES // 256)
        with self.opened() as store:
            store.write(commit_of(1, 1, bodies=[(1, body), (2, b"small")]))
            store.sync()
            again = self.reopen(store)
            check_same(again.bodies([2, 1]), [b"small", body], "bodies")
            again.close()

    def test_many_small_commits_keep_their_order(self) -> None:
        """Hundreds of commits, synced now and then, are read in order from anywhere."""
        with self.opened() as store:
            for sequence in range(1, _MANY + 1):
                store.write(commit_of(sequence, 1, bodies=[(sequence, b"%d" % sequence)]))
                if sequence % 50 == 0:
                    store.sync()
            again = self.reopen(store)
            check_same(_starts(again.pages(123)), list(range(124, _MANY + 1)), "pages after 123")
            check_same(again.bodies([_MANY, 1]), [b"%d" % _MANY, b"1"], "bodies")
            again.close()

    def test_the_size_grows_with_what_is_kept(self) -> None:
        """A store takes more with a megabyte in it than without."""
        with self.opened() as store:
            before = store.size()
            store.write(commit_of(1, 1, bodies=[(1, bytes(range(256)) * 4096)]))
            store.sync()
            check_same(store.size() > before, expected=True, what="whether the size has grown")

    def test_a_closed_store_refuses_all_but_recover(self) -> None:
        """Closing twice is harmless; using what is closed is told."""
        with self.opened() as store:
            store.write(commit_of(1, 1))
            store.close()
            store.close()
            check_refused(lambda: store.write(commit_of(2, 1)), "a write")
            check_refused(store.sync, "a sync")
            check_refused(lambda: list(store.pages(0)), "a read of pages")
            check_refused(lambda: store.bodies([1]), "a read of bodies")
            check_same(store.recover(), Extent(first=1, base=1, next_sequence=2), "extent")
