"""A store in S3, or in whatever honours its conditional writes.

A commit is a *segment*: an object that is never changed, under a number that grows by one, made only if there is none
of that number. So two processes can't both write the next one. Who takes a store over writes a *fence* in the place of
the next segment; the owner before goes on at that very place, and finds that it is too late. The manifest tells who
owns the store and which *runs* it has, objects that segments were merged into. It is changed by compare-and-set.

``write`` only remembers a commit; ``sync`` writes all as one segment, and not more often than once in a window, since
each costs a round trip and money.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from fairlead.adapters.ownership import Claim, Keeper, Tenure, keeper_of
from fairlead.adapters.s3_bucket import S3Bucket
from fairlead.adapters.s3_catalogue import Catalogue
from fairlead.adapters.s3_compaction import SEGMENTS_MAX, merge, plan
from fairlead.adapters.s3_log import S3Log
from fairlead.adapters.succession import EMPTY, check_unbroken
from fairlead.adapters.unsynced import Unsynced
from fairlead.errors import InvalidArgument, StoreFailed, StoreFenced
from fairlead.ports.store import Commit, Extent, StoredPage

WINDOW_MS = 100
_WINDOW_MS_MAX = 60_000


class S3Store:
    """A ``Store`` in a bucket, for one process at a time."""

    def __init__(
        self,
        bucket: S3Bucket,
        *,
        window_ms: int = WINDOW_MS,
        claim: Claim | None = None,
        segments_max: int = SEGMENTS_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the store; ``recover`` opens it.

        Args:
            bucket: where it is.
            window_ms: how much time is between the beginnings of two writes, at least; what comes meanwhile shares the
                next.
            claim: on what terms the store is owned.
            segments_max: as many segments are left before they are merged.
            monotonic: the clock of the window, and by which the owner knows when it must ask whether it still is.
        """
        if not 0 <= window_ms <= _WINDOW_MS_MAX:
            raise InvalidArgument(f"window_ms is from 0 to {_WINDOW_MS_MAX}, not {window_ms}.")
        self._bucket = bucket
        self._window_s = window_ms / 1_000
        self._claim = claim if claim is not None else Claim()
        self._segments_max = segments_max
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._compacting = threading.Lock()
        self._closing = threading.Event()
        self._begin_tenure()
        self._keeper: Keeper | None = None
        self._catalogue: Catalogue | None = None
        self._has_failed = False
        self._last_write_s = monotonic() - self._window_s
        self._unsynced = Unsynced(EMPTY)

    def _begin_tenure(self) -> None:
        self._tenure = Tenure(self._claim.lease_ms, self._monotonic)
        self._log = S3Log(self._bucket, self._tenure)

    # --------------------------------------------------------------------------------------------------------- opening

    def recover(self) -> Extent:
        """Open, or open anew after a failure, and return how far the store reaches.

        The epoch grows with each opening, and a fence is written, so nothing that was sent before can arrive
        afterwards.

        Raises:
            StoreLocked: another process owns the store.
            StoreFenced: another process has taken it over from this one.
            InvalidArgument: the server does not honour conditional writes.
        """
        with self._lock:
            self._tenure.check()
            self._catalogue = None
            self._closing.clear()
            sent_s = self._tenure.now()
            catalogue = self._log.take(self._claim)
            self._tenure.note(sent_s)
            self._catalogue = catalogue
            self._has_failed = False
            self._unsynced = Unsynced(catalogue.extent)
            if self._keeper is None:
                self._keeper = keeper_of(self._claim, self._keep, name="fairlead-s3-keeper")
            return catalogue.extent

    # ------------------------------------------------------------------------------------------------------- ownership

    def check_owned(self) -> None:
        """Make sure that the store is still ours; ask only if we were silent for so long that it may not be."""
        self._tenure.check()
        if self._has_failed or self._tenure.has_lapsed:
            self.renew()

    def renew(self) -> None:
        """Show a sign of life.

        Raises:
            StoreFenced: another process has taken over.
        """
        with self._changing():
            sent_s = self._tenure.now()
            self._log.renew()
            self._tenure.note(sent_s)

    def _keep(self) -> None:
        if self._has_failed:
            return
        if self._tenure.is_due:
            self.renew()
        while self.compact():
            pass

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Catalogue]:
        """Change something, alone; if it fails, nobody knows what was changed."""
        with self._lock:
            self._tenure.check()
            catalogue = self._usable()
            try:
                yield catalogue
            except BaseException:
                self._has_failed = True
                raise

    # --------------------------------------------------------------------------------------------------------- writing

    def write(self, commit: Commit) -> None:
        """Add a commit. Nothing is sent before ``sync``."""
        with self._lock:
            self._tenure.check()
            self._usable()
            self._unsynced.add(commit, page_start=lambda sequence: self._slice(sequence)[0].sequence)

    def sync(self) -> None:
        """Write everything as one segment, which is durable on return; wait before that until the window is over.

        Raises:
            StoreFenced: another process has taken over; nothing was written.
        """
        if self._unsynced.count:
            self._closing.wait(max(0.0, self._last_write_s + self._window_s - self._monotonic()))
        with self._changing() as catalogue:
            change = self._unsynced
            if change.count:
                sent_s = self._last_write_s = self._monotonic()
                self._log.add_segment(catalogue, change)
                self._tenure.note(sent_s)
                self._unsynced = Unsynced(change.after)

    # --------------------------------------------------------------------------------------------------------- reading

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while pages := self._slice(sequence):
            yield from pages
            sequence = pages[-1].next_sequence

    def _slice(self, sequence: int) -> list[StoredPage]:
        """Return the pages of one object, beginning with the one that holds a sequence, or else the first after it."""
        with self._lock:
            catalogue, unsynced = self._usable(), self._unsynced
            sequence = max(sequence, unsynced.after.first)
            if sequence >= unsynced.before.next_sequence:
                return list(unsynced.pages_from(sequence))
            entry = catalogue.holder(sequence)
            pages = [] if entry is None else self._log.pages(entry)
        pages = [page for page in pages if page.next_sequence > sequence]
        check_unbroken(pages, sequence)
        return pages

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the order asked; None for one that is not there."""
        with self._lock:
            catalogue, unsynced = self._usable(), self._unsynced
            found: dict[int, bytes] = {}
            wanted: dict[str, list[tuple[int, int, int]]] = {}
            for number in dict.fromkeys(numbers):
                place = None if unsynced.hides(number) else catalogue.place(number)
                if place is not None:
                    entry, offset, size = place
                    wanted.setdefault(entry.name, []).append((number, offset, size))
            for name, parts in wanted.items():
                found.update(self._log.bodies(name, parts))
            return [unsynced.bodies.get(number, found.get(number)) for number in numbers]

    def size(self) -> int:
        """Return how many bytes the objects have."""
        with self._lock:
            return self._usable().size

    # ------------------------------------------------------------------------------------------------------ compaction

    def compact(self) -> bool:
        """Merge what should be merged next, beside everything else; return whether there was anything.

        It may be interrupted anywhere: what is left over is deleted by the next recovery. One thread does it at a time,
        since what two would merge is the same.
        """
        with self._compacting:
            return self._compact()

    def _compact(self) -> bool:
        with self._lock:
            catalogue, log = self._usable(), self._log
            entries = plan(catalogue, segments_max=self._segments_max)
        if not entries:
            return False
        contents = log.contents(entries)
        with self._lock:
            if self._catalogue is not catalogue:
                return False  # it was opened anew meanwhile
            merged = merge(catalogue, entries, contents, signature=log.signature)
        run = None
        if merged is not None:
            data, head, head_bytes = merged
            run = (log.add_run(head.last, data), head, head_bytes)
        with self._changing() as now:
            if now is not catalogue:
                return False
            doomed = log.adopt(catalogue, entries, run)
        log.delete(doomed)
        return True

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, give the store up for others, and let go. A store that has failed is let go as it is."""
        self._closing.set()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        with self._lock:
            try:
                if self._catalogue is not None and not self._has_failed:
                    self.sync()
                    with contextlib.suppress(StoreFailed, StoreFenced):  # then the lease runs out by itself
                        self._log.release()
            finally:
                self._catalogue = None
                self._begin_tenure()

    def _usable(self) -> Catalogue:
        if self._catalogue is None:
            raise StoreFailed("The store is not open.")
        if self._has_failed:
            raise StoreFailed("The store has failed and was not recovered since.")
        return self._catalogue
