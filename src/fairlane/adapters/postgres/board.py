"""A board in PostgreSQL, or in a compatible engine: rows of one table, and a notification when one changes.

Each change is one statement that is conditional on the version, and notifies a channel in the same transaction. A
thread listens there on a connection of its own. Engines without ``LISTEN`` and poolers that lose it are covered by
polling: a waiting thread is woken regularly to read again.

On the same connection, ``sessions`` shows that this process lives, and looks whether the others do.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Collection
from typing import Final, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors

from fairlane.adapters.postgres.connection import Connection, connect, failure, is_transient
from fairlane.adapters.postgres.schema import migrate
from fairlane.adapters.postgres.sessions import LOOK_S, Sessions
from fairlane.adapters.shared.board_feed import Feed, check_name
from fairlane.errors import FairlaneError, InvalidArgument, StoreFailed
from fairlane.ports.board import Entry

_READ: Final = "SELECT name, value, version FROM fairlane_board WHERE namespace = %s"
_MAKE: Final = """
INSERT INTO fairlane_board (namespace, name, value, version) VALUES (%s, %s, %s, %s)
ON CONFLICT (namespace, name) DO NOTHING"""
_CHANGE: Final = (
    "UPDATE fairlane_board SET value = %s, version = %s WHERE namespace = %s AND name = %s AND version = %s"
)
_REMOVE: Final = "DELETE FROM fairlane_board WHERE namespace = %s AND name = %s AND version = %s"
_NOTIFY: Final = "SELECT pg_notify('fairlane_board', %s)"
_LISTEN: Final = "LISTEN fairlane_board"

_NAMESPACE_LENGTH_MAX = 64
"""Short enough that the namespace of a group, which contains this one, can hold the longest queue name."""
_ATTEMPTS_MAX = 5
_POLL_S = 1.0
"""The longest time between two polls, in case a notification was lost."""
_NOT_SUPPORTED = (
    errors.UndefinedFunction,
    errors.FeatureNotSupported,
    errors.SyntaxError,
    errors.InsufficientPrivilege,
)
T = TypeVar("T")


class PostgresBoard:
    """A ``Board`` in a database. It connects at first use, and again after each failure."""

    def __init__(
        self, conninfo: str, *, namespace: str, network_timeout_ms: int, chance: random.Random | None = None
    ) -> None:
        """Create a board.

        Args:
            conninfo: the database, as a URL or as libpq's key-value pairs.
            namespace: the name of the board in the database.
            network_timeout_ms: how long to wait for the network.
            chance: spreads the polls of several nodes over time.
        """
        if not 0 < len(namespace) <= _NAMESPACE_LENGTH_MAX or not namespace.isprintable():
            raise InvalidArgument(
                f"A cluster namespace must have 1 to {_NAMESPACE_LENGTH_MAX} printable characters, got {namespace!r}."
            )
        self._conninfo = conninfo
        self._namespace = namespace
        self._network_timeout_ms = network_timeout_ms
        self._chance = chance if chance is not None else random.Random()  # noqa: S311 - it only spreads polls
        self._lock = threading.RLock()
        self._feed = Feed()
        self._closing = threading.Event()
        self._connection: Connection | None = None
        self._can_notify = True
        self._own_pid = 0
        self._listener: threading.Thread | None = None
        self._sessions = Sessions(namespace)
        self._has_looked = threading.Event()

    # ------------------------------------------------------------------------------------------------ reading, writing

    def read(self) -> dict[str, Entry]:
        """Return all entries, as they were at one instant."""
        self._feed.reading()
        rows = self._ask(lambda connection: connection.execute(_READ, (self._namespace,)).fetchall(), "read the board")
        return {
            name: Entry(value=bytes(value), version=version)
            for name, value, version in cast("list[tuple[str, bytes, str]]", rows)
        }

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or create one with None. Return None if it has another version by now."""
        check_name(name)
        fresh = secrets.token_hex(8)

        def change(connection: Connection) -> bool:
            if version is None:
                return self._change(connection, _MAKE, (self._namespace, name, value, fresh))
            return self._change(connection, _CHANGE, (value, fresh, self._namespace, name, version))

        return Entry(value=value, version=fresh) if self._ask(change, "change the board") else None

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version. Return False if it has another version by now."""
        terms = (self._namespace, name, version)
        return self._ask(lambda connection: self._change(connection, _REMOVE, terms), "change the board")

    def _change(self, connection: Connection, statement: LiteralString, terms: tuple[object, ...]) -> bool:
        with connection.transaction():
            is_changed = connection.execute(statement, terms).rowcount == 1
            if is_changed and self._can_notify:
                connection.execute(_NOTIFY, (self._namespace,))
        if is_changed:
            self._feed.changed()
        return is_changed

    # --------------------------------------------------------------------------------------------------------- waiting

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have changed, or the time is up. It never raises: the next read reports the
        error.
        """
        self._start_listening()
        self._feed.wait(min(timeout_s, _POLL_S * self._chance.uniform(0.75, 1.25)))

    def _start_listening(self) -> None:
        with self._lock:
            if self._listener is None and self._can_notify and not self._closing.is_set():
                self._listener = threading.Thread(target=self._listen, name="fairlane-board", daemon=True)
                self._listener.start()

    def _listen(self) -> None:
        """Wake waiting threads at each notification until the board is closed; reconnect after a failure."""
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = _POLL_S
            try:
                with self._connect("listens") as connection:
                    connection.execute(_LISTEN)
                    self._sessions.begin(connection)
                    self._has_looked.set()
                    self._feed.changed()  # notifications sent before LISTEN are lost, so assume a change
                    pause_s = 0.0  # a session that ends is replaced before others miss it
                    self._receive(connection)
            except _NOT_SUPPORTED:
                self._has_looked.set()
                return
            except (FairlaneError, psycopg.Error):
                continue

    def _receive(self, connection: Connection) -> None:
        while not self._closing.is_set():
            if self._sessions.look(connection):
                self._feed.changed()
            for notification in connection.notifies(timeout=LOOK_S):
                if notification.payload == self._namespace and notification.pid != self._own_pid:
                    self._feed.changed()
                if self._closing.is_set():
                    return

    # -------------------------------------------------------------------------------------------------------- sessions

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show to others that this process is connected, for as long as it listens.

        The first call waits until that is so, because a node must not own anything before others can miss it.
        """
        self._sessions.attend(process, on_lost)
        self._start_listening()
        if self._listener is not None:
            self._has_looked.wait(_POLL_S)

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        """Return those of the processes whose session was seen, and has ended."""
        return self._sessions.ended(processes)

    def is_attending(self) -> bool:
        """Return whether no other process can have seen that the session of this one has ended."""
        return self._sessions.is_attending()

    # ------------------------------------------------------------------------------------------------------ connecting

    def _connect(self, what: str) -> Connection:
        return connect(
            self._conninfo,
            session=f"fairlane board {what}",
            network_timeout_ms=self._network_timeout_ms,
            is_synchronous=True,
            answer_ms=self._network_timeout_ms,
        )

    def _opened(self) -> Connection:
        if self._closing.is_set():
            raise StoreFailed("The board is closed.")
        if self._connection is None:
            connection = self._connect("changes")
            try:
                migrate(connection)
                self._can_notify = _supports_notify(connection)
            except BaseException:
                connection.close()
                raise
            self._own_pid = connection.info.backend_pid
            self._connection = connection
        return self._connection

    def _ask(self, ask: Callable[[Connection], T], doing: str) -> T:
        with self._lock:
            connection = self._opened()
            try:
                for _ in range(_ATTEMPTS_MAX - 1):
                    try:
                        return ask(connection)
                    except psycopg.Error as error:
                        if not is_transient(error):
                            raise
                return ask(connection)
            except psycopg.Error as error:
                self._disconnect()
                raise failure(error, doing) from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections; the entries stay for the others."""
        self._closing.set()
        self._feed.close()
        with self._lock:
            self._disconnect()
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.join()


def _supports_notify(connection: Connection) -> bool:
    try:
        connection.execute(_NOTIFY, ("",))
    except _NOT_SUPPORTED:
        return False
    return True
