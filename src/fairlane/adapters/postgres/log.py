"""One log in PostgreSQL, statement by statement. Only ``postgres_store`` knows when to send which.

Everything that changes something is conditional on the epoch. A commit is one transaction whose statements are sent in
one go, so it takes one round trip; its first statement breaks it where the log has another owner, or another end, than
the commit knows of.
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

# Where epoch or end differ, the column would become NULL, which it can't, and the transaction breaks.
_ADVANCE: Final = """
UPDATE fairlane_logs
SET next_sequence = CASE WHEN epoch = %s AND next_sequence = %s THEN CAST(%s AS BIGINT) END,
    first_sequence = %s, base = %s, owned_until = CURRENT_TIMESTAMP + %s * INTERVAL '1 millisecond'
WHERE namespace = %s"""

# Arrays go as binary (%b): as text, which psycopg would choose, they cost ten times as much.
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

# A process that was stopped in the midst of sending a transaction keeps its lock for as long as it is connected.
_END_SESSION: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"""

Parameters = Sequence[object]


class Holder(NamedTuple):
    """Who has a log: the epoch, the owner and its session, None for nobody, and for how long it counts as alive."""

    epoch: int
    owner: str | None
    session: str | None
    left_ms: int


class PostgresLog:
    """The log of one namespace, over one connection. Raises what psycopg raises, besides what it says."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace

    def holder(self) -> Holder:
        """Return who has the log. A log that is not there is made."""
        row = self._connection.execute(_LOOK, (self._namespace,)).fetchone()
        if row is None:
            self._connection.execute(_MAKE, (self._namespace, EMPTY.first, EMPTY.base, EMPTY.next_sequence))
            row = self._row(_LOOK, (self._namespace,))
        return Holder(*cast("tuple[int, str | None, str | None, int]", row))

    def take(self, ownership: Ownership, *, session: str, holder: Holder) -> tuple[int, Extent]:
        """Become the owner after another, over a session, and return the epoch and how far the log reaches.

        Raises:
            StoreLocked: somebody else was quicker.
        """
        terms = (ownership.owner, session, Int8(ownership.heartbeat_timeout_ms), self._namespace, Int8(holder.epoch))
        try:
            taken = self._connection.execute(_TAKE, terms).fetchone()
        except errors.LockNotAvailable:
            self._end(holder.session)
            taken = self._connection.execute(_TAKE, terms).fetchone()
        if taken is None:
            raise StoreLocked(f"Another process took {self._namespace!r} over at the same time.")
        epoch, first, base, next_sequence = cast("tuple[int, int, int, int]", taken)
        return epoch, Extent(first=first, base=base, next_sequence=next_sequence)

    def _end(self, session: str | None) -> None:
        """Let the server end a session that keeps its lock on the log."""
        with contextlib.suppress(errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
            self._connection.execute(_END_SESSION, (session,))

    def epoch(self) -> int:
        """Return the epoch under which the log is owned."""
        return cast("int", self._row(_LOOK, (self._namespace,))[0])

    def renew(self, *, epoch: int, heartbeat_timeout_ms: int) -> bool:
        """Show a sign of life; return whether we are still the owner."""
        cursor = self._connection.execute(_RENEW, (Int8(heartbeat_timeout_ms), self._namespace, Int8(epoch)))
        return cursor.rowcount == 1

    def release(self, *, epoch: int) -> None:
        """Let go of the log, if it is still ours."""
        self._connection.execute(_RELEASE, (self._namespace, Int8(epoch)))

    def commit(self, change: Unsynced, *, epoch: int, heartbeat_timeout_ms: int) -> bool:
        """Make a change in one transaction, durable on return; return False if the log is not as the change knows it.

        Then nothing has happened.
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
        """Return bodies by number, as far as they are there."""
        wanted = [Int8(number) for number in numbers]
        cursor = self._connection.cursor(binary=True)
        return dict(cast("list[tuple[int, bytes]]", cursor.execute(_READ_BODIES, (self._namespace, wanted)).fetchall()))

    def pages(self, sequence: int, *, count_max: int) -> list[StoredPage]:
        """Return some pages, beginning with the last that begins at or before a sequence."""
        cursor = self._connection.cursor(binary=True)
        cursor.execute(_READ_PAGES, (self._namespace, self._namespace, Int8(sequence), Int8(count_max)))
        return [StoredPage(*row) for row in cast("list[tuple[int, int, bytes]]", cursor.fetchall())]

    def page_start(self, sequence: int) -> int:
        """Return where the last page begins that begins at or before a sequence."""
        return cast("int", self._row(_PAGE_START, (self._namespace, Int8(sequence)))[0])

    def size(self) -> int:
        """Return how many bytes pages and bodies have."""
        return cast("int", self._row(_SIZE, (self._namespace, self._namespace))[0])

    def _row(self, statement: LiteralString, parameters: Parameters) -> tuple[object, ...]:
        row = self._connection.execute(statement, parameters).fetchone()
        if row is None:
            raise psycopg.DataError(f"there is no log {self._namespace!r}")
        return row
