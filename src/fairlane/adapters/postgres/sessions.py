"""Which processes are connected to a board in PostgreSQL: each holds an advisory lock for as long as its session lasts.

The server ends a session, and releases its locks, as soon as it sees the connection closed. The kernel closes the
connections of a killed process at once. A process that hangs or is suspended keeps its session.

The locks are looked up in ``pg_locks``. An engine without advisory locks shows none there, so none is ever missed; and
behind a pooler that shares sessions, a lock outlives its process, so that nothing is learned from it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, cast

import psycopg
from psycopg import errors

from fairlane.adapters.postgres.connection import Connection
from fairlane.adapters.shared.attendance import Attendance

LOOK_S: Final = 0.1
"""The time between two looks."""
GRACE_S: Final = 0.4
"""How long a session must be missing. A process that has lost only its connection takes a fraction of that."""
_CLASS: Final = 0x0FA1121A
"""The first half of all our lock numbers, so that they are told from those of other programs."""
_LOCK: Final = "SELECT pg_advisory_lock_shared(%s, %s)"
_LOOK: Final = """
SELECT DISTINCT CAST(objid AS BIGINT) FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_NOT_SUPPORTED: Final = (
    errors.UndefinedFunction,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.FeatureNotSupported,
    errors.SyntaxError,
    errors.InsufficientPrivilege,
)


class Sessions:
    """The sessions of the processes that share a board."""

    def __init__(self, namespace: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._namespace = namespace
        self._monotonic = monotonic
        self._attendance: Attendance[int] = Attendance(grace_s=GRACE_S)
        self._lock = threading.Lock()
        self._is_supported = True
        self._on_lost: Callable[[], None] = lambda: None

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show a process from the next look on; call ``on_lost`` when it has lost its session."""
        with self._lock:
            self._on_lost = on_lost
            self._attendance.expect(self._number(process))

    def begin(self, connection: Connection) -> None:
        """Go on with a new connection."""
        self._attendance.connected()
        if self._attendance.is_over:
            self._on_lost()
        self.look(connection)

    def look(self, connection: Connection) -> bool:
        """Look who is connected, and return whether other processes have ended than before."""
        if not self._is_supported:
            return False
        try:
            self._show(connection)
            return self._look(connection)
        except _NOT_SUPPORTED:
            self._is_supported = False
            return False

    def _show(self, connection: Connection) -> None:
        with self._lock:
            own = self._attendance.own
            if own is None or self._attendance.is_shown:
                return
            self._attendance.show(sent_s=self._monotonic())
        connection.execute(_LOCK, (_CLASS, own - (1 << 32) if own >= 1 << 31 else own))

    def _look(self, connection: Connection) -> bool:
        sent_s = self._monotonic()
        rows = connection.execute(_LOOK, (_CLASS,)).fetchall()
        present = {number for (number,) in cast("list[tuple[int]]", rows)}
        with self._lock:
            attendance = self._attendance
            if attendance.is_shown and not attendance.is_over and attendance.own not in present:
                self._is_supported = attendance.has_seen_itself  # an engine that never shows it can't tell anything
                raise psycopg.OperationalError("the session was replaced by another one")  # as poolers do
            return attendance.note(present, sent_s=sent_s, answered_s=self._monotonic())

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        """Return those of the processes that have ended."""
        ended = self._attendance.ended
        return frozenset(process for process in processes if self._number(process) in ended)

    def is_attending(self) -> bool:
        """Return whether no other process can have seen that this one has ended."""
        return not self._is_supported or self._attendance.is_certain(self._monotonic())

    def _number(self, process: str) -> int:
        """Return the second half of the lock number of a process, as ``pg_locks`` shows it."""
        return int.from_bytes(hashlib.blake2b(f"{self._namespace}/{process}".encode(), digest_size=4).digest(), "big")
