"""A store in PostgreSQL, or in an engine that speaks like it.

A database holds any number of stores, each under a *namespace*, and each owned by one process at a time; ``ownership``
tells how. ``sync`` sends all commits that were written in one transaction, which PostgreSQL keeps whole. Nothing is
ever left open between two calls, and one connection is all there is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import psycopg

from fairlane.adapters.postgres.connection import Connection, connect, failure, is_transient
from fairlane.adapters.postgres.log import PostgresLog
from fairlane.adapters.postgres.schema import migrate
from fairlane.adapters.shared.owned_store import OwnedStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.adapters.store_url import NAMESPACE
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.store import Extent, StoredPage

Durability = Literal["fsync", "os"]

_NAMESPACE_LENGTH_MAX = 200
_SLICE_COUNT_MAX = 64
_ATTEMPTS_MAX = 5
T = TypeVar("T")


class PostgresStore(OwnedStore[PostgresLog]):
    """A ``Store`` in a database, for one process at a time."""

    def __init__(
        self,
        conninfo: str,
        *,
        namespace: str = NAMESPACE,
        durability: Durability = "fsync",
        ownership: Ownership | None = None,
        answer_ms: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the store; ``recover`` opens it.

        Args:
            conninfo: where the database is, as a URL or as libpq's pairs.
            namespace: which of the stores in the database; made if it is not there.
            durability: with ``"fsync"`` what was synced is on the disk of the server, with ``"os"`` it survives this
                process, but the server may lose the last moments when it goes down.
            ownership: on what terms the store is owned.
            answer_ms: how long the server may take to answer anything, before the store counts as failed; None for as
                long as it takes.
            monotonic: the clock by which the owner knows when it must ask whether it still is.
        """
        if not 0 < len(namespace) <= _NAMESPACE_LENGTH_MAX or not namespace.isprintable():
            raise InvalidArgument(f"A namespace has 1 to {_NAMESPACE_LENGTH_MAX} printable characters.")
        if durability not in {"fsync", "os"}:
            raise InvalidArgument(f"durability must be 'fsync' or 'os', not {durability!r}.")
        super().__init__(ownership=ownership, monotonic=monotonic, keeper_name="fairlane-postgres-keeper")
        self._conninfo = conninfo
        self._namespace = namespace
        self._is_synchronous = durability == "fsync"
        self._answer_ms = answer_ms
        self._epoch: int | None = None
        self._sessions: set[str] = set()
        self._connection: Connection | None = None

    # --------------------------------------------------------------------------------------------------------- opening

    def _open(self) -> tuple[PostgresLog, Extent]:
        session = f"fairlane {secrets.token_hex(12)}"
        connection = connect(
            self._conninfo,
            session=session,
            patience_ms=self._ownership.heartbeat_timeout_ms,
            is_synchronous=self._is_synchronous,
            answer_ms=self._answer_ms,
        )
        try:
            migrate(connection)
            log = PostgresLog(connection, self._namespace)
            extent = self._take(log, session)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return log, extent

    def _take(self, log: PostgresLog, session: str) -> Extent:
        """Become the owner, or the same anew. A session of ours counts even if we never heard that it got the store."""
        sent_s = self._tenure.now()
        try:
            holder = log.holder()
            if holder.session not in self._sessions:
                if self._epoch is not None:
                    raise self._tenure.fence(self._taken_over())
                self._ownership.check_free(owner=holder.owner, left_ms=holder.left_ms)
            self._sessions.add(session)
            self._epoch, extent = log.take(self._ownership, session=session, holder=holder)
        except psycopg.Error as error:
            raise failure(error, "ownership the store") from error
        self._tenure.note(sent_s)
        return extent

    def _taken_over(self) -> str:
        return f"Another process has taken over the namespace {self._namespace!r}."

    def _renew_lease(self) -> None:
        epoch = self._epoch or 0
        if not self._ask(
            lambda log: log.renew(epoch=epoch, heartbeat_timeout_ms=self._ownership.heartbeat_timeout_ms),
            "renew the lease",
        ):
            self._has_failed = True
            raise self._tenure.fence(self._taken_over())

    # --------------------------------------------------------------------------------------------------------- writing

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
                return log.commit(change, epoch=epoch, heartbeat_timeout_ms=self._ownership.heartbeat_timeout_ms)
            except psycopg.Error as error:
                if not is_transient(error):
                    raise
        return log.commit(change, epoch=epoch, heartbeat_timeout_ms=self._ownership.heartbeat_timeout_ms)

    # --------------------------------------------------------------------------------------------------------- reading

    def _read_pages(self, sequence: int) -> list[StoredPage]:
        return self._ask(lambda log: log.pages(sequence, count_max=_SLICE_COUNT_MAX), "read pages")

    def _page_start(self, sequence: int) -> int:
        return self._ask(lambda log: log.page_start(sequence), "read pages")

    def _read_bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        return self._ask(lambda log: log.bodies(numbers), "read bodies")

    def size(self) -> int:
        """Return how many bytes pages and bodies have; what the server needs beside them is not counted."""
        with self._lock:
            self._usable()
            return self._ask(PostgresLog.size, "tell the size")

    # --------------------------------------------------------------------------------------------------------- closing

    def _release(self) -> None:
        epoch = self._epoch or 0
        self._ask(lambda log: log.release(epoch=epoch), "release the store")

    def _let_go(self) -> None:
        super()._let_go()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _forget(self) -> None:
        self._epoch = None
        self._sessions.clear()

    def _ask(self, ask: Callable[[PostgresLog], T], doing: str) -> T:
        log = self._usable()
        try:
            return ask(log)
        except psycopg.Error as error:
            self._has_failed = True
            raise failure(error, doing) from error
