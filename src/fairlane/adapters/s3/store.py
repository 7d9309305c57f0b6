"""A store in S3, or in any service with the same conditional writes, such as Azure Blob Storage.

A sync writes a *segment*: an immutable object whose number grows by one, created only if there is none of that number.
So two processes cannot both write the next one. A process that takes over writes a *fence* under the next number; the
previous owner continues at exactly that number and finds it taken. The manifest names the owner and the *runs*, which
are merged segments. See ``log`` for the protocol and ``compaction`` for merging.

``sync`` writes all commits since the last one as one segment, and at most one per window, since each costs a round
trip and money.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from fairlane.adapters.s3.bucket import ObjectBucket
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
        bucket: ObjectBucket,
        *,
        window_ms: int = WINDOW_MS,
        ownership: Ownership | None = None,
        segments_max: int = SEGMENTS_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a store; ``recover`` opens it.

        Args:
            bucket: the bucket and prefix.
            window_ms: the minimum time between the starts of two writes; commits in between share the next write.
            ownership: the terms on which the store is owned.
            segments_max: the number of segments from which they are merged.
            monotonic: the clock for the window and for heartbeats.
        """
        if not 0 <= window_ms <= _WINDOW_MS_MAX:
            raise InvalidArgument(f"window_ms must be 0 to {_WINDOW_MS_MAX}, got {window_ms}.")
        super().__init__(ownership=ownership, monotonic=monotonic, thread_name="fairlane-s3-heartbeat")
        self._bucket = bucket
        self._window_s = window_ms / 1_000
        self._segments_max = segments_max
        self._compacting = threading.Lock()
        self._closing = threading.Event()
        self._last_write_s = monotonic() - self._window_s
        self._log = S3Log(bucket, self._tenure)

    # --------------------------------------------------------------------------------------------------------- opening

    def _open(self) -> tuple[Catalogue, Extent]:
        """Take over, which also writes a fence. A server that does not honour conditional writes is refused."""
        self._closing.clear()
        sent_s = self._tenure.now()
        catalogue = self._log.take(self._ownership)
        self._tenure.note(sent_s)
        return catalogue, catalogue.extent

    # ------------------------------------------------------------------------------------------------------- ownership

    def _send_heartbeat(self) -> None:
        with self._changing():
            self._log.renew()

    def _heartbeat(self) -> None:
        if self._has_failed:
            return
        super()._heartbeat()
        self.delete_dropped()
        while self.compact():
            pass

    def delete_dropped(self) -> None:
        """Delete the large bodies that synced commits have dropped; if that fails, the next opening does it."""
        with self._lock:
            unneeded = self._usable().take_unneeded()
        self._log.delete(unneeded)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Catalogue]:
        """Hold the lock for a write. If the write fails, its outcome is unknown, so the store counts as failed."""
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
        """Write all commits as one segment, which is durable on return. Waits first until the window is over.

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
        return self._log.read(self._usable().located(numbers))

    def fetch(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies as ``bodies`` does, without the lock while the bucket is asked; see ``RemoteStore``."""
        with self._lock:
            unsynced, log = self._unsynced, self._log
            located = self._usable().located([number for number in numbers if not unsynced.hides(number)])
        found = log.read(located)
        return [unsynced.bodies.get(number, found.get(number)) for number in numbers]

    def size(self) -> int:
        """Return the size of all objects in bytes."""
        with self._lock:
            return self._usable().size

    # ------------------------------------------------------------------------------------------------------ compaction

    def compact(self) -> bool:
        """Merge what should be merged next, concurrently with everything else. Return whether anything was merged.

        It may be interrupted anywhere: the next recovery deletes what is left over. Only one thread compacts at a time,
        since two would merge the same objects.
        """
        with self._compacting:
            return self._compact()

    def _compact(self) -> bool:
        # Requests run without the lock, so that commits are not delayed by a merge. Each time the lock is taken again,
        # the catalogue must be the same object: a reopened store has a new one, and everything read so far is
        # worthless.
        with self._lock:
            catalogue, log = self._usable(), self._log
            entries = plan(catalogue, segments_max=self._segments_max)
        if not entries:
            return False
        contents = log.contents(entries)
        with self._lock:
            if self._opened is not catalogue:
                return False  # it was reopened meanwhile
            merged = merge(catalogue, entries, contents, signature=log.signature)
        run = None
        if merged is not None:
            data, head, head_bytes = merged
            run = (log.add_run(head.last, data), head, head_bytes)
        with self._changing() as now:
            if now is not catalogue:
                return False
            unneeded = log.adopt(catalogue, entries, run)
        log.delete(unneeded)
        return True

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, give up ownership, and close. A store that has failed is closed as it is."""
        self._closing.set()
        super().close()

    def _release(self) -> None:
        self._log.release()

    def _forget(self) -> None:
        self._log = S3Log(self._bucket, self._tenure)
