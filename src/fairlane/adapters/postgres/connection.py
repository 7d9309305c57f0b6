"""A connection to PostgreSQL as Fairlane sets it up, and what its errors mean."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fairlane.errors import FairlaneError, InvalidArgument, StoreCorrupt, StoreFailed

Connection = psycopg.Connection[tuple[object, ...]]

_CONNECT_TIMEOUT_S = 10
_CONNECT_TIMEOUT_S_MIN = 2
"""Less can't be said to libpq."""
_CORRUPT = (errors.DataCorrupted, errors.IndexCorrupted)
_TRANSIENT = (errors.SerializationFailure, errors.DeadlockDetected)


def failure(error: Exception, doing: str) -> FairlaneError:
    """Return what an error of PostgreSQL is to a caller; ``doing`` completes "PostgreSQL could not ..."."""
    text = f"PostgreSQL could not {doing}: {' '.join(str(error).split())}."
    return StoreCorrupt(text) if isinstance(error, _CORRUPT) else StoreFailed(text)


def is_transient(error: Exception) -> bool:
    """Tell whether a transaction was rolled back only because of another, and may be sent again as it was."""
    return isinstance(error, _TRANSIENT)


T = TypeVar("T")


class BoundedConnection(psycopg.Connection[tuple[object, ...]]):
    """A connection that is closed when an answer takes too long, however alive the network looks.

    Attributes:
        answer_s: how long an answer may take; None for as long as it takes.
    """

    answer_s: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *terms: Any, **more: Any) -> T:  # noqa: ANN401 - those of psycopg
        """Wait for what a generator waits for; called by psycopg for everything that is sent."""
        if self.answer_s is None:
            return super().wait(gen, *terms, **more)
        return super().wait(self._bounded(gen, time.monotonic() + self.answer_s), *terms, **more)

    def _bounded(self, gen: Generator[Any, Any, T], until_s: float) -> Generator[Any, Any, T]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until_s:
                    self.pgconn.finish()  # or whatever tidies up would wait as long once more
                    raise psycopg.OperationalError(f"no answer came within {self.answer_s} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer


def connect(
    conninfo: str, *, session: str, patience_ms: int, is_synchronous: bool, answer_ms: int | None = None
) -> Connection:
    """Connect.

    Args:
        conninfo: where, as a URL or as libpq's pairs.
        session: the name under which others find this connection in ``pg_stat_activity``.
        patience_ms: how long the network is waited for; a lock for a third of that.
        is_synchronous: whether a commit is on disk when it is answered.
        answer_ms: how long an answer may take; None for as long as it takes.

    Raises:
        InvalidArgument: ``conninfo`` makes no sense.
        StoreFailed: nobody answers there, or we are not let in.
    """
    try:
        conninfo = make_conninfo(conninfo, **_defaults(conninfo, patience_ms), application_name=session)
    except psycopg.ProgrammingError as error:
        raise InvalidArgument(f"PostgreSQL can't be found by this: {error}.") from error
    try:
        connection = BoundedConnection.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise failure(error, "be reached") from error
    connection.answer_s = None if answer_ms is None else answer_ms / 1_000
    try:
        with connection.pipeline():
            for statement in _session_settings(patience_ms, is_synchronous=is_synchronous):
                connection.execute(statement)
    except psycopg.Error as error:
        connection.close()
        raise failure(error, "begin a session") from error
    return connection


def _defaults(conninfo: str, patience_ms: int) -> dict[str, int]:
    """Return settings that notice a server that has vanished, as far as they were not given."""
    given = conninfo_to_dict(conninfo)
    seconds = max(1, patience_ms // 3_000)
    wanted = {
        "connect_timeout": min(_CONNECT_TIMEOUT_S, max(_CONNECT_TIMEOUT_S_MIN, patience_ms // 1_000)),
        "tcp_user_timeout": patience_ms,
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
        "keepalives_count": 2,
    }
    return {name: value for name, value in wanted.items() if name not in given}


def _session_settings(patience_ms: int, *, is_synchronous: bool) -> list[LiteralString]:
    # A whole number is all there is to format: SET takes no parameters.
    patience: LiteralString = str(int(patience_ms))
    lock_patience: LiteralString = str(max(1, patience_ms // 3))
    return [
        f"SET synchronous_commit = {'on' if is_synchronous else 'off'}",
        f"SET lock_timeout = {lock_patience}",
        f"SET idle_in_transaction_session_timeout = {patience}",
    ]
