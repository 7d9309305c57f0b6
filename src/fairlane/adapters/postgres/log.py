"""One log in PostgreSQL, statement by statement. ``store`` decides when to send which.

Theory of operation
-------------------
Every write is conditional on the epoch. A commit is one transaction whose statements are sent in one pipeline, so it
takes one round trip. The client cannot look at the first result before it sends the rest, so the condition has to fail
inside the database: the first statement sets a NOT NULL column to NULL if the log has another epoch or another end than
the commit expects. That error aborts the transaction and everything after it in the pipeline.

The row of the log also serialises owners. A takeover updates it, so it waits for a commit in flight or makes it fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple, cast

import psycopg
from psycopg import errors
from psycopg.types.numeric import Int8

from fairlane.adapters.postgres.connection import Connection
from fairlane.adapters.shared.ownership import Ownership
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.adapters.succession import EMPTY
from fairlane.errors import StoreLocked
from fairlane.ports.store import Extent, StoredPage

_MAKE: Final = """
INSERT INTO fairlane_logs (namespace, epoch, owned_until, first_sequence, base, next_sequence)
VALUES (%s, 0, CURRENT_TIMESTAMP, %s, %s, %s) ON CONFLICT (namespace) DO NOTHING"""

_LOOK: Final = """
SELECT epoch, owner, session, CAST(EXTRACT(EPOCH FROM owned_until - CURRENT_TIMESTAMP) * 1000 AS BIGINT)
FROM fairlane_logs WHERE namespace = %s"""

_TAKE: Final = """
UPDATE fairlane_logs
SET epoch = epoch + 1, owner = %s, session = %s, owned_until = CURRENT_TIMESTAMP + %s * INTERVAL '1 millisecond'
WHERE namespace = %s AND epoch = %s
RETURNING epoch, first_sequence, base, next_sequence"""

_RENEW: Final = """
UPDATE fairlane_logs SET owned_until = CURRENT_TIMESTAMP + %s * INTERVAL '1 millisecond'
WHERE namespace = %s AND epoch = %s"""

_RELEASE: Final = """
UPDATE fairlane_logs SET owner = NULL, session = NULL, owned_until = CURRENT_TIMESTAMP
WHERE namespace = %s AND epoch = %s"""

# If epoch or end differ, the CASE yields NULL for a NOT NULL column, which aborts the transaction.
_ADVANCE: Final = """
UPDATE fairlane_logs
SET next_sequence = CASE WHEN epoch = %s AND next_sequence = %s THEN CAST(%s AS BIGINT) END,
    first_sequence = %s, base = %s, owned_until = CURRENT_TIMESTAMP + %s * INTERVAL '1 millisecond'
WHERE namespace = %s"""

# Arrays are sent as binary (%b): as text, psycopg's default, they cost ten times as much.
_ADD_PAGES: Final = """
INSERT INTO fairlane_pages (namespace, sequence, next_sequence, page)
SELECT %s, added.sequence, added.next_sequence, added.page
FROM UNNEST(CAST(%b AS BIGINT[]), CAST(%b AS BIGINT[]), CAST(%b AS BYTEA[])) AS added (sequence, next_sequence, page)"""

_ADD_BODIES: Final = """
INSERT INTO fairlane_bodies (namespace, number, body)
SELECT %s, added.number, added.body
FROM UNNEST(CAST(%b AS BIGINT[]), CAST(%b AS BYTEA[])) AS added (number, body)"""

_DROP_BODIES: Final = "DELETE FROM fairlane_bodies WHERE namespace = %s AND number = ANY(CAST(%b AS BIGINT[]))"
_TRIM_PAGES: Final = "DELETE FROM fairlane_pages WHERE namespace = %s AND sequence < %s"

_READ_BODIES: Final = """
SELECT number, body FROM fairlane_bodies WHERE namespace = %s AND number = ANY(CAST(%b AS BIGINT[]))"""

_READ_PAGES: Final = """
SELECT sequence, next_sequence, page FROM fairlane_pages
WHERE namespace = %s AND sequence >= COALESCE(
  (SELECT MAX(sequence) FROM fairlane_pages WHERE namespace = %s AND sequence <= %s), 0)
ORDER BY sequence LIMIT %s"""

_PAGE_START: Final = "SELECT MAX(sequence) FROM fairlane_pages WHERE namespace = %s AND sequence <= %s"

_SIZE: Final = """
SELECT CAST(
  (SELECT COALESCE(SUM(OCTET_LENGTH(page)), 0) FROM fairlane_pages WHERE namespace = %s)
  + (SELECT COALESCE(SUM(OCTET_LENGTH(body)), 0) FROM fairlane_bodies WHERE namespace = %s) AS BIGINT)"""

# A process that was stopped in the middle of a transaction keeps its row lock as long as it is connected.
_END_SESSION: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"""

Parameters = Sequence[object]


class Holder(NamedTuple):
    """The holder of a log: epoch, owner and session (None if there is none), and how long it still counts as alive."""

    epoch: int
    owner: str | None
    session: str | None
    left_ms: int


class PostgresLog:
    """The log of one namespace, over one connection. Its methods also raise psycopg's errors."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace

    def holder(self) -> Holder:
        """Return the holder of the log, creating the log if needed."""
        row = self._connection.execute(_LOOK, (self._namespace,)).fetchone()
        if row is None:
            self._connection.execute(_MAKE, (self._namespace, EMPTY.first, EMPTY.base, EMPTY.next_sequence))
            row = self._row(_LOOK, (self._namespace,))
        return Holder(*cast("tuple[int, str | None, str | None, int]", row))

    def take(self, ownership: Ownership, *, session: str, holder: Holder) -> tuple[int, Extent]:
        """Become the owner after a holder, and return the new epoch and the extent of the log.

        Raises:
            StoreLocked: another process was faster.
        """
        terms = (ownership.owner, session, Int8(ownership.heartbeat_timeout_ms), self._namespace, Int8(holder.epoch))
        try:
            taken = self._connection.execute(_TAKE, terms).fetchone()
        except errors.LockNotAvailable:
            # The old owner hangs in the middle of a commit and holds the row. Its heartbeat has timed out, so its
            # session is ended; its transaction is rolled back, as if it had never been sent.
            self._end(holder.session)
            taken = self._connection.execute(_TAKE, terms).fetchone()
        if taken is None:
            raise StoreLocked(f"Another process took over the namespace {self._namespace!r} at the same time.")
        epoch, first, base, next_sequence = cast("tuple[int, int, int, int]", taken)
        return epoch, Extent(first=first, base=base, next_sequence=next_sequence)

    def _end(self, session: str | None) -> None:
        """Terminate a session that holds its lock on the log, if we have the right to."""
        with contextlib.suppress(errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
            self._connection.execute(_END_SESSION, (session,))

    def epoch(self) -> int:
        """Return the epoch under which the log is owned."""
        return cast("int", self._row(_LOOK, (self._namespace,))[0])

    def renew(self, *, epoch: int, heartbeat_timeout_ms: int) -> bool:
        """Send a heartbeat. Return whether we are still the owner."""
        cursor = self._connection.execute(_RENEW, (Int8(heartbeat_timeout_ms), self._namespace, Int8(epoch)))
        return cursor.rowcount == 1

    def release(self, *, epoch: int) -> None:
        """Give up ownership, if it is still ours."""
        self._connection.execute(_RELEASE, (self._namespace, Int8(epoch)))

    def commit(self, change: Unsynced, *, epoch: int, heartbeat_timeout_ms: int) -> bool:
        """Make a change in one transaction, durable on return. Return False, with nothing changed, if the log has
        another epoch or end than the change expects.
        """
        connection = self._connection
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                advanced = connection.execute(_ADVANCE, self._advance(change, epoch, heartbeat_timeout_ms))
                for statement, parameters in self._changes(change):
                    connection.execute(statement, parameters)
                connection.execute("COMMIT")
        except (errors.NotNullViolation, errors.PipelineAborted):
            # The condition in _ADVANCE failed. Which of the two errors surfaces depends on where the pipeline was read.
            connection.rollback()
            return False
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            raise
        return advanced.rowcount == 1

    def _advance(self, change: Unsynced, epoch: int, heartbeat_timeout_ms: int) -> Parameters:
        before, after = change.before, change.after
        numbers = (epoch, before.next_sequence, after.next_sequence, after.first, after.base, heartbeat_timeout_ms)
        return (*map(Int8, numbers), self._namespace)

    def _changes(self, change: Unsynced) -> list[tuple[LiteralString, Parameters]]:
        changes: list[tuple[LiteralString, Parameters]] = []
        if change.after.first > change.before.first:
            changes.append((_TRIM_PAGES, (self._namespace, Int8(change.after.first))))
        if change.pages:
            starts = [Int8(page.sequence) for page in change.pages]
            ends = [Int8(page.next_sequence) for page in change.pages]
            changes.append((_ADD_PAGES, (self._namespace, starts, ends, [page.page for page in change.pages])))
        if change.bodies:
            numbers = [Int8(number) for number in change.bodies]
            changes.append((_ADD_BODIES, (self._namespace, numbers, list(change.bodies.values()))))
        if change.dropped:
            changes.append((_DROP_BODIES, (self._namespace, [Int8(number) for number in change.dropped])))
        return changes

    def bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the bodies that exist, by number."""
        wanted = [Int8(number) for number in numbers]
        cursor = self._connection.cursor(binary=True)
        return dict(cast("list[tuple[int, bytes]]", cursor.execute(_READ_BODIES, (self._namespace, wanted)).fetchall()))

    def pages(self, sequence: int, *, count_max: int) -> list[StoredPage]:
        """Return some pages, beginning with the last one that starts at or before a sequence."""
        cursor = self._connection.cursor(binary=True)
        cursor.execute(_READ_PAGES, (self._namespace, self._namespace, Int8(sequence), Int8(count_max)))
        return [StoredPage(*row) for row in cast("list[tuple[int, int, bytes]]", cursor.fetchall())]

    def page_start(self, sequence: int) -> int:
        """Return the start of the last page that starts at or before a sequence."""
        return cast("int", self._row(_PAGE_START, (self._namespace, Int8(sequence)))[0])

    def size(self) -> int:
        """Return the bytes of all pages and bodies."""
        return cast("int", self._row(_SIZE, (self._namespace, self._namespace))[0])

    def _row(self, statement: LiteralString, parameters: Parameters) -> tuple[object, ...]:
        row = self._connection.execute(statement, parameters).fetchone()
        if row is None:
            raise psycopg.DataError(f"there is no log {self._namespace!r}")
        return row
