"""A store in PostgreSQL, or in an engine that speaks like it.

A database holds any number of stores, each under a *namespace*, and each owned by one process at a time; ``ownership``
tells how. ``write`` only remembers a commit; ``sync`` sends all that were written in one transaction, which PostgreSQL
keeps whole. Nothing is ever left open between two calls, and one connection is all there is.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import psycopg

from fairlead.adapters.ownership import Claim, Keeper, Tenure, keeper_of
from fairlead.adapters.postgres_connection import Connection, connect, failure, is_transient
from fairlead.adapters.postgres_log import PostgresLog
from fairlead.adapters.postgres_schema import migrate
from fairlead.adapters.store_url import NAMESPACE
from fairlead.adapters.succession import EMPTY, check_unbroken
from fairlead.adapters.unsynced import Unsynced
from fairlead.errors import InvalidArgument, StoreFailed
from fairlead.ports.store import Commit, Extent, StoredPage

Durability = Literal["fsync", "os"]

_NAMESPACE_LENGTH_MAX = 200
_SLICE_COUNT_MAX = 64
_ATTEMPTS_MAX = 5
T = TypeVar("T")


class PostgresStore:
    """A ``Store`` in a database, for one process at a time."""

    def __init__(
        self,
        conninfo: str,
        *,
        namespace: str = NAMESPACE,
        durability: Durability = "fsync",
        claim: Claim | None = None,
        answer_ms: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the store; ``recover`` opens it.

        Args:
            conninfo: where the database is, as a URL or as libpq's pairs.
            namespace: which of the stores in the database; made if it is not there.
            durability: with ``"fsync"`` what was synced is on the disk of the server, with ``"os"`` it survives this
                process, but the server may lose the last moments when it goes down.
            claim: on what terms the store is owned.
            answer_ms: how long the server may take to answer anything, before the store counts as failed; None for as
                long as it takes.
            monotonic: the clock by which the owner knows when it must ask whether it still is.
        """
        if not 0 < len(namespace) <= _NAMESPACE_LENGTH_MAX or not namespace.isprintable():
            raise InvalidArgument(f"A namespace has 1 to {_NAMESPACE_LENGTH_MAX} printable characters.")
        if durability not in {"fsync", "os"}:
            raise InvalidArgument(f"durability must be 'fsync' or 'os', not {durability!r}.")
        self._conninfo = conninfo
        self._namespace = namespace
        self._is_synchronous = durability == "fsync"
        self._claim = claim if claim is not None else Claim()
        self._answer_ms = answer_ms
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._tenure = Tenure(self._claim.lease_ms, monotonic)
        self._epoch: int | None = None
        self._sessions: set[str] = set()
        self._connection: Connection | None = None
        self._log: PostgresLog | None = None
        self._keeper: Keeper | None = None
        self._has_failed = False
        self._unsynced = Unsynced(EMPTY)

    # --------------------------------------------------------------------------------------------------------- opening

    def recover(self) -> Extent:
        """Open, or open anew after a failure, and return how far the store reaches.

        The epoch grows with each opening, so nothing that an earlier connection sent can arrive afterwards.

        Raises:
            StoreLocked: another process owns the store.
            StoreFenced: another process has taken it over from this one.
        """
        with self._lock:
            self._tenure.check()
            self._disconnect()
            session = f"fairlead {secrets.token_hex(12)}"
            patience_ms = self._claim.lease_ms
            connection = connect(
                self._conninfo,
                session=session,
                patience_ms=patience_ms,
                is_synchronous=self._is_synchronous,
                answer_ms=self._answer_ms,
            )
            try:
                migrate(connection)
                extent = self._take(PostgresLog(connection, self._namespace), session)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._has_failed = False
            self._unsynced = Unsynced(extent)
            if self._keeper is None:
                self._keeper = keeper_of(self._claim, self._keep, name="fairlead-postgres-keeper")
            return extent

    def _take(self, log: PostgresLog, session: str) -> Extent:
        """Become the owner, or the same anew. A session of ours counts even if we never heard that it got the store."""
        sent_s = self._tenure.now()
        try:
            holder = log.holder()
            if holder.session not in self._sessions:
                if self._epoch is not None:
                    raise self._tenure.fence(self._taken_over())
                self._claim.check_free(owner=holder.owner, left_ms=holder.left_ms)
            self._sessions.add(session)
            self._epoch, extent = log.take(self._claim, session=session, holder=holder)
        except psycopg.Error as error:
            raise failure(error, "claim the store") from error
        self._tenure.note(sent_s)
        self._log = log
        return extent

    def _taken_over(self) -> str:
        return f"Another process has taken over the namespace {self._namespace!r}."

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
        with self._lock:
            self._tenure.check()
            sent_s = self._tenure.now()
            epoch = self._epoch or 0
            if not self._ask(lambda log: log.renew(epoch=epoch, lease_ms=self._claim.lease_ms), "renew the lease"):
                self._has_failed = True
                raise self._tenure.fence(self._taken_over())
            self._tenure.note(sent_s)

    def _keep(self) -> None:
        if self._tenure.is_due and not self._has_failed:
            self.renew()

    # --------------------------------------------------------------------------------------------------------- writing

    def write(self, commit: Commit) -> None:
        """Add a commit. Nothing is sent before ``sync``."""
        with self._lock:
            self._tenure.check()
            self._usable()
            self._unsynced.add(commit, page_start=self._page_start)

    def sync(self) -> None:
        """Send everything written so far as one transaction, which is durable on return.

        Raises:
            StoreFenced: another process has taken over; nothing was committed.
        """
        with self._lock:
            self._tenure.check()
            self._usable()
            if self._unsynced.count:
                self._commit()

    def _commit(self) -> None:
        change, epoch = self._unsynced, self._epoch or 0
        sent_s = self._tenure.now()
        if not self._ask(lambda log: self._send(log, change, epoch), "commit"):
            is_fenced = self._ask(PostgresLog.epoch, "tell its owner") != epoch
            self._has_failed = True
            if is_fenced:
                raise self._tenure.fence(self._taken_over())
            raise StoreFailed(f"The log does not end at {change.before.next_sequence}; something else wrote to it.")
        self._tenure.note(sent_s)
        self._unsynced = Unsynced(change.after)

    def _send(self, log: PostgresLog, change: Unsynced, epoch: int) -> bool:
        for _ in range(_ATTEMPTS_MAX - 1):
            try:
                return log.commit(change, epoch=epoch, lease_ms=self._claim.lease_ms)
            except psycopg.Error as error:
                if not is_transient(error):
                    raise
        return log.commit(change, epoch=epoch, lease_ms=self._claim.lease_ms)

    # --------------------------------------------------------------------------------------------------------- reading

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while pages := self._slice(sequence):
            yield from pages
            sequence = pages[-1].next_sequence

    def _slice(self, sequence: int) -> list[StoredPage]:
        """Return some pages, beginning with the one that holds a sequence, or else the first after it."""
        with self._lock:
            self._usable()
            unsynced = self._unsynced
            sequence = max(sequence, unsynced.after.first)
            end = unsynced.before.next_sequence
            if sequence >= end:
                return list(unsynced.pages_from(sequence))
            pages = self._ask(lambda log: log.pages(sequence, count_max=_SLICE_COUNT_MAX), "read pages")
        pages = [page for page in pages if page.sequence < end]
        check_unbroken(pages, sequence)
        return pages

    def _page_start(self, sequence: int) -> int:
        return self._ask(lambda log: log.page_start(sequence), "read pages")

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the order asked; None for one that is not there."""
        with self._lock:
            self._usable()
            unsynced = self._unsynced
            wanted = [number for number in numbers if not unsynced.hides(number)]
            found = self._ask(lambda log: log.bodies(wanted), "read bodies") if wanted else {}
            return [unsynced.bodies.get(number, found.get(number)) for number in numbers]

    def size(self) -> int:
        """Return how many bytes pages and bodies have; what the server needs beside them is not counted."""
        with self._lock:
            self._usable()
            return self._ask(PostgresLog.size, "tell the size")

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, give the store up for others, and let go. A store that has failed is let go as it is."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        with self._lock:
            try:
                if self._log is not None and not self._has_failed:
                    self.sync()
                    epoch = self._epoch or 0
                    with contextlib.suppress(StoreFailed):  # then the lease runs out by itself
                        self._ask(lambda log: log.release(epoch=epoch), "release the store")
            finally:
                self._disconnect()
                self._epoch = None
                self._sessions.clear()
                self._tenure = Tenure(self._claim.lease_ms, self._monotonic)

    def _disconnect(self) -> None:
        connection, self._connection, self._log = self._connection, None, None
        if connection is not None:
            connection.close()

    def _usable(self) -> PostgresLog:
        if self._log is None:
            raise StoreFailed("The store is not open.")
        if self._has_failed:
            raise StoreFailed("The store has failed and was not recovered since.")
        return self._log

    def _ask(self, ask: Callable[[PostgresLog], T], doing: str) -> T:
        log = self._usable()
        try:
            return ask(log)
        except psycopg.Error as error:
            self._has_failed = True
            raise failure(error, doing) from error
