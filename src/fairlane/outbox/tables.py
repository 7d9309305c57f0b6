"""The relay's operations on the database of an outbox."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.message import NewMessage
from fairlane.outbox.schema import CHANNEL, INSTALL

try:
    import psycopg
except ImportError as missing:
    raise ImportError("The outbox needs the package psycopg: install fairlane[postgres].") from missing

_LOCK: Final = 7_420_202_611
"""The number of the advisory lock that the relay in charge holds."""
_QUEUES: Final[LiteralString] = """
WITH RECURSIVE found AS (
  (SELECT queue FROM fairlane_outbox.messages ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT m.queue FROM fairlane_outbox.messages m WHERE m.queue > found.queue ORDER BY m.queue LIMIT 1)
  FROM found WHERE found.queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL"""
"""One step through the index for each queue; DISTINCT would read the whole backlog."""
_log = logging.getLogger("fairlane.outbox")


class Superseded(Exception):
    """Another relay is in charge of the outbox."""


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Rows of one queue that are moved together, under a number that no other rows of the queue ever have.

    Attributes:
        messages: the messages by the number of their row, in order.
        faults: what is wrong with rows that stand for no message, by their number.
    """

    queue: str
    number: int
    messages: dict[int, NewMessage]
    faults: dict[int, str]


class OutboxTables:
    """The tables of an outbox, for the one relay that is in charge.

    Every change is conditional on the epoch in which this relay took charge, so a relay that lost its connection, and
    with it its lock, changes nothing once another has taken over.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._epoch = 0
        self.sink = ""

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str) -> AsyncIterator[OutboxTables]:
        """Connect to the database, and disconnect at the end of the context."""
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="fairlane outbox")
        async with connection:
            yield cls(connection)

    async def install(self) -> None:
        """Create what is missing of the outbox."""
        await self._connection.execute(INSTALL)

    async def take_charge(self) -> None:
        """Become the relay in charge, once no other one is."""
        await self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        await self._connection.execute(f"LISTEN {CHANNEL}")
        statement: LiteralString = "UPDATE fairlane_outbox.identity SET epoch = epoch + 1 RETURNING sink, epoch"
        async with await self._connection.execute(statement) as cursor:
            row = await cursor.fetchone()
        if row is None:
            raise InvalidArgument("The table fairlane_outbox.identity is empty; run fairlane outbox install.")
        self.sink, self._epoch = row

    @property
    def epoch(self) -> int:
        """The epoch in which this relay took charge."""
        return self._epoch

    async def queues(self) -> list[str]:
        """Return the queues that rows wait for."""
        return [queue for (queue,) in await self._rows(_QUEUES)]

    async def open_batch(self, queue: str, *, published: int, count: int) -> OutboxBatch | None:
        """Return the batch of a queue that is being moved, or begin the next one; None if no row waits.

        ``published`` is the latest batch that the broker has of this outbox. A new batch has a greater number, also if
        the database was restored from a backup and has forgotten the numbers it had given.
        """
        async with self._change():
            found = await self._rows("SELECT batch, ids FROM fairlane_outbox.batches WHERE queue = %s", queue)
            number, ids = found[0] if found else (0, [])
            if not ids:
                number = max(number, published) + 1
                ids = await self._begin(queue, number, count)
        return await self._load(queue, number, ids) if ids else None

    async def _begin(self, queue: str, number: int, count: int) -> list[int]:
        waiting: LiteralString = "SELECT id FROM fairlane_outbox.messages WHERE queue = %s ORDER BY id LIMIT %s"
        ids = [id_ for (id_,) in await self._rows(waiting, queue, count)]
        if ids:
            await self._connection.execute(
                "INSERT INTO fairlane_outbox.batches (queue, batch, ids) VALUES (%s, %s, %s) "
                "ON CONFLICT (queue) DO UPDATE SET batch = excluded.batch, ids = excluded.ids",
                (queue, number, ids),
            )
        return ids

    async def _load(self, queue: str, number: int, ids: list[int]) -> OutboxBatch:
        statement: LiteralString = (
            "SELECT id, payload, terms FROM fairlane_outbox.messages WHERE id = ANY(%s) ORDER BY id"
        )
        batch = OutboxBatch(queue, number, {}, {})
        for id_, payload, terms in await self._rows(statement, ids):
            try:
                batch.messages[id_] = msgspec.convert(
                    {**msgspec.convert(terms, dict), "payload": bytes(payload)}, NewMessage
                )
            except msgspec.ValidationError as error:
                batch.faults[id_] = f"Invalid terms: {error}"
        return batch

    async def reject(self, batch: OutboxBatch) -> None:
        """Move the rows of a batch that have faults out of the way."""
        async with self._change():
            for id_, fault in batch.faults.items():
                await self._connection.execute(
                    "WITH gone AS (DELETE FROM fairlane_outbox.messages WHERE id = %s RETURNING *) "
                    "INSERT INTO fairlane_outbox.rejected (id, queue, payload, terms, created_at, error) "
                    "SELECT id, queue, payload, terms, created_at, %s FROM gone",
                    (id_, fault),
                )
                _log.error("Rejected message %d of the outbox for queue %r: %s", id_, batch.queue, fault)

    async def finish(self, batch: OutboxBatch) -> None:
        """Delete the rows of a batch that the broker has published."""
        async with self._change():
            ids = list(batch.messages)
            await self._connection.execute("DELETE FROM fairlane_outbox.messages WHERE id = ANY(%s)", (ids,))
            await self._connection.execute(
                "UPDATE fairlane_outbox.batches SET ids = '{}' WHERE queue = %s AND batch = %s",
                (batch.queue, batch.number),
            )

    async def wait(self, timeout_s: float) -> None:
        """Wait until a transaction with a message commits, but not longer than a time."""
        async for _ in self._connection.notifies(timeout=timeout_s, stop_after=1):
            pass

    async def counts(self) -> tuple[int, int]:
        """Return how many messages wait, and how many were rejected."""
        statement: LiteralString = (
            "SELECT (SELECT count(*) FROM fairlane_outbox.messages), (SELECT count(*) FROM fairlane_outbox.rejected)"
        )
        waiting, rejected = (await self._rows(statement))[0]
        return waiting, rejected

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Begin a transaction that commits only while this relay is in charge."""
        async with self._connection.transaction():
            statement: LiteralString = "SELECT epoch FROM fairlane_outbox.identity FOR SHARE"
            if await self._value(statement) != self._epoch:
                raise Superseded
            yield

    async def _value(self, statement: LiteralString, *values: object) -> object:
        return (await self._rows(statement, *values))[0][0]

    async def _rows(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        async with await self._connection.execute(statement, values) as cursor:
            return await cursor.fetchall()
