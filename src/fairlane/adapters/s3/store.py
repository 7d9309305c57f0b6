"""A store in S3, or in whatever honours its conditional writes.

A commit is a *segment*: an object that is never changed, under a number that grows by one, made only if there is none
of that number. So two processes can't both write the next one. Who takes a store over writes a *fence* in the place of
the next segment; the owner before goes on at that very place, and finds that it is too late. The manifest tells who
owns the store and which *runs* it has, objects that segments were merged into. It is changed by compare-and-set.

``sync`` writes all commits since the last as one segment, and not more often than once in a window, since each costs a
round trip and money.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.adapters.s3.catalogue import Catalogue
from fairlane.adapters.s3.compaction import SEGMENTS_MAX, merge, plan
from fairlane.adapters.s3.log import S3Log
from fairlane.adapters.shared.owned_store import OwnedStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.errors import InvalidArgument
from fairlane.ports.store import Extent, StoredPage

WINDOW_MS = 100
_WINDOW_MS_MAX = 60_000


class S3Store(OwnedStore[Catalogue]):
    """A ``Store`` in a bucket, for one process at a time."""

    def __init__(
        self,
        bucket: S3Bucket,
        *,
        window_ms: int = WINDOW_MS,
        ownership: Ownership | None = None,
        segments_max: int = SEGMENTS_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the store; ``recover`` opens it.

        Args:
            bucket: where it is.
            window_ms: how much time is between the beginnings of two writes, at least; what comes meanwhile shares the
                next.
            ownership: on what terms the store is owned.
            segments_max: as many segments are left before they are merged.
            monotonic: the clock of the window, and by which the owner knows when it must ask whether it still is.
        """
        if not 0 <= window_ms <= _WINDOW_MS_MAX:
            raise InvalidArgument(f"window_ms is from 0 to {_WINDOW_MS_MAX}, not {window_ms}.")
        super().__init__(ownership=ownership, monotonic=monotonic, keeper_name="fairlane-s3-keeper")
        self._bucket = bucket
        self._window_s = window_ms / 1_000
        self._segments_max = segments_max
        self._compacting = threading.Lock()
        self._closing = threading.Event()
        self._last_write_s = monotonic() - self._window_s
        self._log = S3Log(bucket, self._tenure)

    # --------------------------------------------------------------------------------------------------------- opening

    def _open(self) -> tuple[Catalogue, Extent]:
        """Write a fence, too. A server that does not honour conditional writes is refused."""
        self._closing.clear()
        sent_s = self._tenure.now()
        catalogue = self._log.take(self._ownership)
        self._tenure.note(sent_s)
        return catalogue, catalogue.extent

    # ------------------------------------------------------------------------------------------------------- ownership

    def _renew_lease(self) -> None:
        with self._changing():
            self._log.renew()

    def _keep(self) -> None:
        if self._has_failed:
            return
        super()._keep()
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

    def _read_pages(self, sequence: int) -> Sequence[StoredPage]:
        entry = self._usable().holder(sequence)
        return [] if entry is None else self._log.pages(entry)

    def _read_bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        catalogue = self._usable()
        found: dict[int, bytes] = {}
        wanted: dict[str, list[tuple[int, int, int]]] = {}
        for number in numbers:
            place = catalogue.place(number)
            if place is not None:
                entry, offset, size = place
                wanted.setdefault(entry.name, []).append((number, offset, size))
        for name, parts in wanted.items():
            found.update(self._log.bodies(name, parts))
        return found

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
            if self._opened is not catalogue:
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
        super().close()

    def _release(self) -> None:
        self._log.release()

    def _forget(self) -> None:
        self._log = S3Log(self._bucket, self._tenure)
