"""A store in PostgreSQL, or in a compatible engine.

A database holds any number of stores, each under a *namespace* and owned by one process at a time; see ``ownership``.
``sync`` sends all written commits in one transaction. A store uses one connection, and no transaction stays open
between two calls.
"""

from __future__ import annotations

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
_SESSION = "fairlane "
"""What the names of all sessions begin with, so that they are recognised in ``pg_stat_activity``."""
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
        """Create a store; ``recover`` opens it.

        Args:
            conninfo: the database, as a URL or as libpq's key-value pairs.
            namespace: the name of the store in the database; created if it does not exist.
            durability: with ``"fsync"`` synced commits are on the server's disk; with ``"os"`` they survive this
                process, but the server may lose the last moments if it crashes.
            ownership: the terms on which the store is owned.
            answer_ms: how long the server may take for an answer before the store counts as failed; None for no limit.
            monotonic: the clock for heartbeats.
        """
        if not 0 < len(namespace) <= _NAMESPACE_LENGTH_MAX or not namespace.isprintable():
            raise InvalidArgument(
                f"A namespace must have 1 to {_NAMESPACE_LENGTH_MAX} printable characters, got {namespace!r:.100}."
            )
        if durability not in {"fsync", "os"}:
            raise InvalidArgument(f"durability must be 'fsync' or 'os', got {durability!r}.")
        super().__init__(ownership=ownership, monotonic=monotonic, thread_name="fairlane-postgres-heartbeat")
        self._conninfo = conninfo
        self._namespace = namespace
        self._is_synchronous = durability == "fsync"
        self._answer_ms = answer_ms
        self._epoch: int | None = None
        self._sessions: set[str] = set()
        self._connection: Connection | None = None

    # --------------------------------------------------------------------------------------------------------- opening

    def _open(self) -> tuple[PostgresLog, Extent]:
        session = f"{_SESSION}{self._ownership.new_session()}"
        connection = connect(
            self._conninfo,
            session=session,
            network_timeout_ms=self._ownership.heartbeat_timeout_ms,
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
        """Become the owner, or renew an own ownership.

        A session of ours counts as ours even if its answer never arrived, so this process is not locked out by itself.
        """
        sent_s = self._tenure.now()
        try:
            holder = log.holder()
            if holder.session not in self._sessions:
                if self._epoch is not None:
                    raise self._tenure.fence(self._taken_over())
                theirs = (holder.session or "").removeprefix(_SESSION)
                self._ownership.check_free(owner=holder.owner, session=theirs, left_ms=holder.left_ms)
            self._sessions.add(session)
            self._epoch, extent = log.take(self._ownership, session=session, holder=holder)
        except psycopg.Error as error:
            raise failure(error, "take ownership of the store") from error
        self._tenure.note(sent_s)
        return extent

    def _taken_over(self) -> str:
        return f"Another process has taken over the namespace {self._namespace!r}."

    def _send_heartbeat(self) -> None:
        epoch = self._epoch or 0
        if not self._ask(
            lambda log: log.renew(epoch=epoch, heartbeat_timeout_ms=self._ownership.heartbeat_timeout_ms),
            "record a heartbeat",
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
            is_fenced = self._ask(PostgresLog.epoch, "read the epoch") != epoch
            self._has_failed = True
            if is_fenced:
                raise self._tenure.fence(self._taken_over())
            raise StoreFailed(f"The log does not end at {change.before.next_sequence}; another process wrote to it.")
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
        """Return the bytes of all pages and bodies, without the server's overhead."""
        with self._lock:
            self._usable()
            return self._ask(PostgresLog.size, "read the size")

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
