"""Stores in memory that several simulated nodes can reach: one owner at a time, fenced by epochs, as in PostgreSQL.

``SharedLog`` is the server's side, which keeps durable commits and knows the owner; ``SharedStore`` is a node's side,
at the end of a link that may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.shared.ownership import Ownership, Tenure
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage
from tests.kit.auditor.books import violated
from tests.kit.cluster.links import Link

T = TypeVar("T")


class SharedLog:
    """The log of one group, with its owner.

    Attributes:
        on_durable: called with each commit, in order.
        on_recover: called whenever somebody becomes the owner.
        writers: of each epoch in which something was committed, the session that did.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.content = MemoryStore()
        self.content.recover()
        self.epoch = 0
        self.owner: str | None = None
        self.session: str | None = None
        self.owned_until_ms = 0
        self.writers: dict[int, str] = {}
        self.on_durable: Callable[[Commit], None] = lambda _commit: None
        self.on_recover: Callable[[], None] = lambda: None

    def take(
        self, ownership: Ownership, *, session: str, sessions: set[str], was_owner: bool
    ) -> tuple[int, Extent] | None:
        """Give ownership to a node; return the new epoch and the extent of the log.

        Returns None to one who was the owner before and is no longer.

        Raises:
            StoreLocked: the owner lives, and is another.
        """
        if self.session not in sessions:
            if was_owner:
                return None
            left_ms = self.owned_until_ms - self._now_ms()
            ownership.check_free(owner=self.owner, session=self.session or "", left_ms=left_ms)
        self.epoch += 1
        self.owner, self.session = ownership.owner, session
        self.owned_until_ms = self._now_ms() + ownership.heartbeat_timeout_ms
        self.on_recover()
        return self.epoch, self.content.recover()

    def renew(self, *, epoch: int, heartbeat_timeout_ms: int) -> bool:
        """Renew ownership; return whether the epoch is the current one."""
        if epoch != self.epoch:
            return False
        self.owned_until_ms = self._now_ms() + heartbeat_timeout_ms
        return True

    def commit(self, commits: Sequence[Commit], *, epoch: int, session: str, heartbeat_timeout_ms: int) -> bool:
        """Add commits, all or none; return whether they came from the owner."""
        if not self.renew(epoch=epoch, heartbeat_timeout_ms=heartbeat_timeout_ms):
            return False
        if self.writers.setdefault(epoch, session) != session:
            violated(f"{session} and {self.writers[epoch]} have both committed under epoch {epoch}")
        for commit in commits:
            self.content.write(commit)
            self.on_durable(commit)
        return True

    def release(self, *, epoch: int) -> None:
        """Release ownership."""
        if epoch == self.epoch:
            self.owner = self.session = None

    def kept_bodies(self) -> dict[int, bytes]:
        """Return all bodies, by number."""
        return dict(self.content._bodies)

    def journal(self) -> MemoryStore:
        """Return a copy of what is durable."""
        copy = self.content.copy()
        copy.recover()
        return copy


class SharedStore:
    """A ``Store`` over a shared log, for one node at a time."""

    def __init__(
        self, log: SharedLog, link: Link, *, ownership: Ownership, name: str, monotonic: Callable[[], float]
    ) -> None:
        self._log = log
        self._link = link
        self._ownership = ownership
        self._name = name
        self._monotonic = monotonic
        self._tenure = Tenure(ownership, monotonic)
        self._number = 0
        self._sessions: set[str] = set()
        self._session = ""
        self._epoch: int | None = None
        self._is_open = False
        self._commits: list[Commit] = []
        self._unsynced = Unsynced(log.content._extent)

    def recover(self) -> Extent:
        """Take ownership, again if necessary, and return the extent of the log."""
        self._tenure.check()
        self._is_open = False
        self._number += 1
        sent_s, session = self._tenure.now(), f"{self._name}/{self._number}"
        was_owner = self._epoch is not None
        self._sessions.add(session)  # it counts even if we never hear that it got the store
        taken = self._link.call(
            lambda: self._log.take(self._ownership, session=session, sessions=self._sessions, was_owner=was_owner)
        )
        if taken is None:
            raise self._tenure.fence("Another node has taken over.")
        self._epoch, extent = taken
        self._session = session
        self._tenure.note(sent_s)
        self._commits, self._unsynced, self._is_open = [], Unsynced(extent), True
        return extent

    def check_owned(self) -> None:
        """Check that this node still owns the store; ask the log only after a silence longer than the lease, or in
        doubt.
        """
        self._tenure.check()
        if not self._is_open or self._tenure.has_lapsed:
            self.renew()
        elif self._log.owner not in (None, self._ownership.owner):  # a late request of its own to open it does no harm
            violated(f"{self._session} answers from memory, although {self._log.session} has taken over")

    def keep(self) -> None:
        """Renew ownership if that is due, as a thread does for real stores."""
        if self._is_open and self._tenure.is_due:
            self.renew()

    def renew(self) -> None:
        """Renew ownership."""
        self._tenure.check()
        sent_s, epoch = self._tenure.now(), self._opened()
        if not self._ask(
            lambda: self._log.renew(epoch=epoch, heartbeat_timeout_ms=self._ownership.heartbeat_timeout_ms)
        ):
            self._is_open = False
            raise self._tenure.fence("Another node has taken over.")
        self._tenure.note(sent_s)

    def write(self, commit: Commit) -> None:
        """Add a commit; nothing is sent before ``sync``."""
        self._tenure.check()
        self._opened()
        self._unsynced.add(commit, page_start=self._log.content._page_start)
        self._commits.append(commit)

    def sync(self) -> None:
        """Send everything written so far, provided that this node is still the owner."""
        self._tenure.check()
        epoch, commits, session = self._opened(), self._commits, self._session
        if not commits:
            return
        sent_s = self._tenure.now()
        heartbeat_timeout_ms = self._ownership.heartbeat_timeout_ms
        if not self._ask(
            lambda: self._log.commit(commits, epoch=epoch, session=session, heartbeat_timeout_ms=heartbeat_timeout_ms)
        ):
            self._is_open = False
            raise self._tenure.fence("Another node has taken over.")
        self._tenure.note(sent_s)
        self._commits, self._unsynced = [], Unsynced(self._unsynced.after)

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        self._opened()
        end = self._unsynced.before.next_sequence
        for page in self._ask(lambda: list(self._log.content.pages(after)), is_change=False):
            if page.sequence < end:
                yield page
        yield from self._unsynced.pages_from(after + 1)

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the requested order; None for a missing one."""
        self._opened()
        found = self._ask(lambda: self._log.content.bodies(numbers), is_change=False)
        new, hides = self._unsynced.bodies, self._unsynced.hides
        return [new.get(number) if hides(number) else body for number, body in zip(numbers, found, strict=True)]

    def size(self) -> int:
        """Return the size of pages and bodies in bytes."""
        return self._log.content.size()

    def close(self) -> None:
        """Sync, release ownership, and close."""
        try:
            if self._is_open:
                self.sync()
                epoch = self._opened()
                self._ask(lambda: self._log.release(epoch=epoch))
        finally:
            self._is_open = False
            self._epoch = None
            self._sessions.clear()
            self._tenure = Tenure(self._ownership, self._monotonic)

    def _opened(self) -> int:
        if not self._is_open or self._epoch is None:
            raise StoreFailed("The store is not open.")
        return self._epoch

    def _ask(self, ask: Callable[[], T], *, is_change: bool = True) -> T:
        try:
            return self._link.call(ask, is_change=is_change)
        except StoreFailed:
            self._is_open = False
            raise
