"""Connections to PostgreSQL: their settings, and the meaning of their errors."""

from __future__ import annotations

import logging
import re
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
"""libpq accepts no less."""
_CORRUPT = (errors.DataCorrupted, errors.IndexCorrupted)
_log = logging.getLogger("fairlane.store")
_warned_of: set[str] = set()
_TRANSIENT = (errors.SerializationFailure, errors.DeadlockDetected)


def failure(error: Exception, doing: str) -> FairlaneError:
    """Return the Fairlane error for an error of PostgreSQL; ``doing`` completes "PostgreSQL could not ..."."""
    text = f"PostgreSQL could not {doing}: {' '.join(str(error).split())}."
    return StoreCorrupt(text) if isinstance(error, _CORRUPT) else StoreFailed(text)


def is_transient(error: Exception) -> bool:
    """Return whether a transaction was rolled back only because of another one, and may be repeated as it is."""
    return isinstance(error, _TRANSIENT)


T = TypeVar("T")


class BoundedConnection(psycopg.Connection[tuple[object, ...]]):
    """A connection that is closed when an answer takes too long, even if the network looks alive.

    Attributes:
        answer_s: how long an answer may take; None for no limit.
    """

    answer_s: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *terms: Any, **more: Any) -> T:  # noqa: ANN401 - psycopg's signature
        """Run a psycopg generator with the time limit; psycopg calls this for everything it sends."""
        if self.answer_s is None:
            return super().wait(gen, *terms, **more)
        return super().wait(self._bounded(gen, time.monotonic() + self.answer_s), *terms, **more)

    def _bounded(self, gen: Generator[Any, Any, T], until_s: float) -> Generator[Any, Any, T]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until_s:
                    # Close now: the rollback that follows would otherwise wait for an answer just as long again.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer came within {self.answer_s} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer


def connect(
    conninfo: str, *, session: str, network_timeout_ms: int, is_synchronous: bool, answer_ms: int | None = None
) -> Connection:
    """Connect.

    Args:
        conninfo: the database, as a URL or as libpq's key-value pairs.
        session: the name of this connection in ``pg_stat_activity``.
        network_timeout_ms: how long to wait for the network; locks are waited for a third of that.
        is_synchronous: whether a commit is on disk when it is answered.
        answer_ms: how long an answer may take; None for no limit.

    Raises:
        InvalidArgument: ``conninfo`` is invalid.
        StoreFailed: the server does not answer or refuses the connection.
    """
    try:
        conninfo = make_conninfo(conninfo, **_defaults(conninfo, network_timeout_ms), application_name=session)
    except psycopg.ProgrammingError as error:
        raise InvalidArgument(f"Invalid PostgreSQL connection string: {_without_values(str(error))}.") from None
    try:
        connection = BoundedConnection.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise failure(error, "be reached") from error
    _warn_if_in_clear(connection)
    connection.answer_s = None if answer_ms is None else answer_ms / 1_000
    try:
        with connection.pipeline():
            for statement in _session_settings(network_timeout_ms, is_synchronous=is_synchronous):
                connection.execute(statement)
    except psycopg.Error as error:
        connection.close()
        raise failure(error, "begin a session") from error
    return connection


def _without_values(text: str) -> str:
    """Return libpq's complaint without what it quotes: that may be the password, or a part of it."""
    hint = ' Write a literal "%" as %25' if "percent-encoded" in text else ""
    return re.sub(r'".*"', '"***"', text.strip().rstrip("."), flags=re.DOTALL) + ("." + hint if hint else "")


def _warn_if_in_clear(connection: Connection) -> None:
    options = {option.keyword: (option.val or b"").decode() for option in connection.pgconn.info}
    host = options.get(b"hostaddr") or connection.info.host
    warning = clear_text_warning(host, options.get(b"sslmode", ""))
    if warning is not None and host not in _warned_of:  # once for each server, not for each connection
        _warned_of.add(host)
        _log.warning(warning)


def clear_text_warning(host: str, sslmode: str) -> str | None:
    """Return what to tell the operator if messages may cross a network unencrypted; None if they can't."""
    is_local = host == "localhost" or host.startswith(("/", "@", "127.")) or host in ("", "::1")
    if is_local or sslmode in ("require", "verify-ca", "verify-full"):
        return None
    return (
        f"Connections to PostgreSQL at {host} may be unencrypted: sslmode is {sslmode or 'prefer'}. "
        "Add sslmode=verify-full to the store URL, or sslmode=require if the server's certificate can't be verified."
    )


def _defaults(conninfo: str, network_timeout_ms: int) -> dict[str, int]:
    """Return settings that detect a vanished server, except those that were given."""
    given = conninfo_to_dict(conninfo)
    seconds = max(1, network_timeout_ms // 3_000)
    wanted = {
        "connect_timeout": min(_CONNECT_TIMEOUT_S, max(_CONNECT_TIMEOUT_S_MIN, network_timeout_ms // 1_000)),
        "tcp_user_timeout": network_timeout_ms,
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
        "keepalives_count": 2,
    }
    return {name: value for name, value in wanted.items() if name not in given}


def _session_settings(network_timeout_ms: int, *, is_synchronous: bool) -> list[LiteralString]:
    # SET takes no parameters, so values are formatted; they are integers.
    idle_timeout: LiteralString = str(int(network_timeout_ms))
    lock_timeout: LiteralString = str(max(1, network_timeout_ms // 3))
    return [
        f"SET synchronous_commit = {'on' if is_synchronous else 'off'}",
        f"SET lock_timeout = {lock_timeout}",
        f"SET idle_in_transaction_session_timeout = {idle_timeout}",
    ]
