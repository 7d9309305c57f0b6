"""Write messages to the outbox, in the transaction of the caller's own connection.

The functions only call ``fairlane_outbox.enqueue`` over the connection that they are given. They begin, commit and roll
back nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, Unpack

import msgspec

from fairlane.core.checks import message_fault
from fairlane.errors import InvalidArgument
from fairlane.model.message import MessageTerms, NewMessage
from fairlane.model.names import queue_name_fault
from fairlane.model.payloads import NO_VALUE, NoValue
from fairlane.verbs.methods.conversions import message_of

_STATEMENT: Final = "SELECT fairlane_outbox.enqueue({}, {}, CAST(CAST({} AS TEXT) AS JSONB))"
"""The terms are bound as text: an application may have told its driver to encode whatever is bound as JSON."""
_PAYLOAD_BYTES_MAX: Final = 1 << 30
"""What fits into a value of PostgreSQL. The limit of the server is checked when the message gets there."""
Row = tuple[str, bytes, str]
"""The arguments of ``fairlane_outbox.enqueue``."""


def enqueue(
    connection: object,
    queue: str,
    message: NewMessage | bytes | NoValue = NO_VALUE,
    *,
    json: object = NO_VALUE,
    **terms: Unpack[MessageTerms],
) -> int:
    """Write a message to the outbox and return its row's number. It reaches the queue if the transaction commits.

    Args:
        connection: a connection or cursor of psycopg or psycopg2, a ``Connection`` or ``Session`` of SQLAlchemy, or
            ``django.db.connection``.
        queue: the queue.
        message: a payload, or a complete message, such as ``charge.message(order_id=7)`` of a task.
        json: a value to send as JSON, in place of a payload.
        **terms: the other fields of ``NewMessage``, except ``dedup_id`` and ``unique_key``. Delays and deadlines count
            from the moment the message reaches the queue.

    Raises:
        InvalidArgument: the message is not valid, or the connection is of another kind. Nothing was written.
    """
    row = row_of(queue, message_of(message, json, terms))
    written: int = _writer(connection, _WRITERS)(connection, row)
    return written


async def enqueue_async(
    connection: object,
    queue: str,
    message: NewMessage | bytes | NoValue = NO_VALUE,
    *,
    json: object = NO_VALUE,
    **terms: Unpack[MessageTerms],
) -> int:
    """Write a message to the outbox; see ``enqueue``.

    Args:
        connection: a connection of asyncpg or of a pool of it, an ``AsyncConnection`` or ``AsyncCursor`` of psycopg, or
            an ``AsyncConnection`` or ``AsyncSession`` of SQLAlchemy.
        queue: the queue.
        message: as for ``enqueue``.
        json: as for ``enqueue``.
        **terms: as for ``enqueue``.

    Raises:
        InvalidArgument: the message is not valid, or the connection is of another kind. Nothing was written.
    """
    row = row_of(queue, message_of(message, json, terms))
    written: Awaitable[int] = _writer(connection, _ASYNC_WRITERS)(connection, row)
    return await written


def row_of(queue: str, message: NewMessage) -> Row:
    """Return the row of a message.

    Raises:
        InvalidArgument: the message is not valid.
    """
    fault = queue_name_fault(queue)
    if fault is None and message.dedup_id is not None:
        fault = "A message in an outbox cannot have a dedup id: its row already makes it unique."
    if fault is None and message.unique_key is not None:
        fault = (
            f"A message in an outbox cannot have a unique key, here {message.unique_key!r:.100}: whether another one"
            " waits is known only when it reaches the queue. Send it after the commit instead."
        )
    if fault is not None:
        raise InvalidArgument(fault)
    if (error := message_fault(message, _PAYLOAD_BYTES_MAX)) is not None:
        raise error
    fields = msgspec.to_builtins(msgspec.structs.replace(message, payload=b""))
    return queue, message.payload, msgspec.json.encode(fields).decode()


def _writer(connection: object, writers: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return the function for the driver of a connection, which the packages of its classes name."""
    for kind in type(connection).__mro__:
        if (writer := writers.get(kind.__module__.partition(".")[0])) is not None:
            return writer
    *others, last = writers
    expected = f"{', '.join(others)} or {last}"
    raise InvalidArgument(f"Expected a connection of {expected}, got {type(connection).__name__}.")


class _Any(Protocol):
    """A connection or cursor of any driver: their classes have no common type, and none of them has to be installed."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


def _psycopg(connection: _Any, row: Row) -> object:
    rows = import_module("psycopg.rows")  # the application's own kind of rows may have no first column
    with getattr(connection, "connection", connection).cursor(row_factory=rows.tuple_row) as cursor:
        return cursor.execute(_STATEMENT.format("%s", "%s", "%s"), row).fetchone()[0]


def _psycopg2(connection: _Any, row: Row) -> object:
    kind = import_module("psycopg2.extensions").cursor
    with getattr(connection, "connection", connection).cursor(cursor_factory=kind) as cursor:
        cursor.execute(_STATEMENT.format("%s", "%s", "%s"), row)
        return cursor.fetchone()[0]


def _django(connection: _Any, row: Row) -> object:
    with getattr(connection, "db", connection).cursor() as cursor:
        cursor.execute(_STATEMENT.format("%s", "%s", "%s"), row)
        return cursor.fetchone()[0]


def _sqlalchemy(connection: _Any, row: Row) -> object:
    return connection.execute(*_named(row)).scalar_one()


async def _psycopg_async(connection: _Any, row: Row) -> object:
    rows = import_module("psycopg.rows")
    async with getattr(connection, "connection", connection).cursor(row_factory=rows.tuple_row) as cursor:
        await cursor.execute(_STATEMENT.format("%s", "%s", "%s"), row)
        return (await cursor.fetchone())[0]


async def _asyncpg(connection: _Any, row: Row) -> object:
    return await connection.fetchval(_STATEMENT.format("$1", "$2", "$3"), *row)


async def _sqlalchemy_async(connection: _Any, row: Row) -> object:
    return (await connection.execute(*_named(row))).scalar_one()


def _named(row: Row) -> tuple[object, dict[str, object]]:
    statement = import_module("sqlalchemy").text(_STATEMENT.format(":queue", ":payload", ":terms"))
    return statement, dict(zip(("queue", "payload", "terms"), row, strict=True))


_WRITERS: Final = {"psycopg": _psycopg, "psycopg2": _psycopg2, "sqlalchemy": _sqlalchemy, "django": _django}
_ASYNC_WRITERS: Final = {"asyncpg": _asyncpg, "psycopg": _psycopg_async, "sqlalchemy": _sqlalchemy_async}
