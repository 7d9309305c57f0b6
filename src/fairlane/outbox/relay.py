"""The relay: moves the committed rows of an outbox to the broker, each exactly once.

Rows and messages live in two systems without a common transaction, so the relay repeats what it is unsure of, and makes
repeats harmless. For each queue it

1. writes down in the database which rows make up the next batch, under a number that grows,
2. stages these rows at the broker, as the next batch of a *sink*, and publishes the batch,
3. deletes the rows.

A sink publishes a batch once: publishing the same number again changes nothing. So a relay that dies between any two
steps is followed by one that finds the batch written down in step 1 and repeats step 2, with the same rows under the
same number, and step 3. Rows that no transaction committed were never visible to step 1.

One relay is in charge at a time, by an advisory lock; others wait to take over. A relay that lost its connection may go
on for a moment next to its successor. That is harmless at the broker, for the reason above. In the database each of its
changes is conditional on its epoch; see ``OutboxTables``.

A row that the broker refuses for good, such as one with a payload that is too large, would block all rows behind it.
It is moved to the table ``rejected`` *before* the rest of its batch is published, so a relay that is no longer in
charge can't reject what its successor publishes. A queue that is missing, full or moving blocks only itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import psycopg

from fairlane.client.aio import AsyncClient
from fairlane.errors import (
    FairlaneError,
    InvalidArgument,
    PayloadTooLarge,
    RequestTooLarge,
    Unauthenticated,
    UnavailableError,
)
from fairlane.model.message import NewMessage
from fairlane.outbox.tables import OutboxBatch, OutboxTables, Superseded

_BATCH_ROWS: Final = 1_000
_REQUEST_BYTES: Final = 4 << 20
_IDLE_S: Final = 5.0
"""How long the relay waits without a notification: a proxy between it and the database may swallow them."""
_RETRY_S_MAX: Final = 2.0
_REFUSED: Final = (InvalidArgument, PayloadTooLarge, RequestTooLarge)
"""What the broker says of a message that it will never accept."""
_log = logging.getLogger("fairlane.outbox")


@dataclass(slots=True)
class _Backoff:
    """When a queue that could not be served is tried again."""

    failures: int = 0
    due_s: float = 0.0

    def fail(self, now_s: float) -> float:
        """Note a failure and return the pause that follows it."""
        pause_s: float = min(_RETRY_S_MAX, 0.25 * 2 ** min(self.failures, 10))
        self.failures, self.due_s = self.failures + 1, now_s + pause_s
        return pause_s


class Relay:
    """Moves messages from the outbox in a PostgreSQL database to a broker.

    Attributes:
        moved: how many messages this relay has moved.
    """

    def __init__(self, url: str, client: AsyncClient, *, clock: Callable[[], float] | None = None) -> None:
        """Create a relay without connecting yet.

        Args:
            url: the database, as a URL or as libpq's key-value pairs.
            client: the client of the broker, which is left open.
            clock: the time in seconds; the event loop's by default.
        """
        self._url = url
        self._client = client
        self._clock = clock
        self._published: dict[str, int] = {}
        self._backoffs: dict[str, _Backoff] = {}
        self._epoch = 0
        self._attempts = 0
        self.moved = 0

    async def connect(self) -> None:
        """Connect the client to the broker, and try again while no server answers.

        Raises:
            Unauthenticated, Forbidden: the server refuses the API key.
        """
        backoff = _Backoff()
        while True:
            try:
                await self._client.connect()
            except UnavailableError as error:
                pause_s = backoff.fail(self._now_s())
                _log.warning("Cannot connect: %s Retrying in %.2f s.", error, pause_s)
                await asyncio.sleep(pause_s)
            else:
                return

    async def run(self) -> None:
        """Move messages until cancelled; after a failure of the database, connect again.

        Raises:
            Unauthenticated: the broker refuses the API key.
            InvalidArgument: the database has no outbox.
        """
        backoff = _Backoff()
        while True:
            try:
                async with OutboxTables.connect(self._url) as tables:
                    await self._stand_by(tables)
                    backoff.failures = 0
                    await self._serve(tables)
            except psycopg.errors.UndefinedTable as error:
                raise InvalidArgument("The database has no outbox; run fairlane outbox install.") from error
            except (psycopg.OperationalError, Superseded) as error:
                pause_s = backoff.fail(self._now_s())
                _log.warning("The outbox is not available (%s); retrying in %.2f s.", _text(error), pause_s)
                await asyncio.sleep(pause_s)

    async def drain(self) -> int:
        """Move everything that waits, once, and return how many messages were moved.

        Queues that fail are tried once and left.
        """
        before = self.moved
        async with OutboxTables.connect(self._url) as tables:
            await self._stand_by(tables)
            for queue in await tables.queues():
                while await self._move_next(tables, queue):
                    pass
        return self.moved - before

    async def _stand_by(self, tables: OutboxTables) -> None:
        await tables.take_charge()
        self._published.clear()
        self._epoch = tables.epoch
        _log.info("In charge of the outbox, epoch %d.", tables.epoch)

    async def _serve(self, tables: OutboxTables) -> None:
        while True:
            has_moved = False
            for queue in await tables.queues():
                if self._backoff(queue).due_s <= self._now_s():
                    has_moved = await self._move_next(tables, queue) or has_moved
            if not has_moved:
                await tables.wait(self._pause_s())

    def _backoff(self, queue: str) -> _Backoff:
        return self._backoffs.get(queue) or _Backoff()

    def _pause_s(self) -> float:
        """Return how long nothing has to be done unless a message comes."""
        dues_s = [backoff.due_s - self._now_s() for backoff in self._backoffs.values()]
        return max(0.0, min([_IDLE_S, *dues_s]))

    async def _move_next(self, tables: OutboxTables, queue: str) -> bool:
        """Move the next batch of a queue; return whether there was one and it was moved."""
        try:
            batch = await tables.open_batch(queue, published=await self._last(tables, queue), count=_BATCH_ROWS)
            if batch is not None:
                await self._move(tables, batch)
        except Unauthenticated:
            raise
        except FairlaneError as error:
            backoff = self._backoffs.setdefault(queue, _Backoff())
            pause_s = backoff.fail(self._now_s())
            _log.warning("Queue %r can't be served from the outbox: %s Retrying in %.2f s.", queue, error, pause_s)
            return False
        self._backoffs.pop(queue, None)
        return batch is not None

    async def _last(self, tables: OutboxTables, queue: str) -> int:
        """Return the latest batch of a queue that the broker has from this outbox; it is asked once per epoch."""
        if queue not in self._published:
            sinks = {sink.name: sink.batch for sink in await self._client.sinks(queue)}
            self._published[queue] = sinks.get(tables.sink) or 0
        return self._published[queue]

    async def _move(self, tables: OutboxTables, batch: OutboxBatch) -> None:
        part = await self._stage(tables.sink, batch) if not batch.faults else None
        if part is None:
            part = await self._stage_singly(tables.sink, batch)
            await tables.reject(batch)
        moved = len(batch.messages)
        await self._client.publish(batch.queue, tables.sink, batch=batch.number, parts=[part] if moved else [])
        await tables.finish(batch)
        self._published[batch.queue] = batch.number
        self.moved += moved

    async def _stage(self, sink: str, batch: OutboxBatch) -> str | None:
        """Stage a batch in requests of a good size; return the name of the part, or None if a request is refused."""
        part, at = self._new_part(), 0
        for messages in _requests(batch.messages.values()):
            try:
                await self._client.stage(batch.queue, sink, batch=batch.number, part=part, at=at, messages=messages)
            except _REFUSED:
                return None
            at += len(messages)
        return part

    async def _stage_singly(self, sink: str, batch: OutboxBatch) -> str:
        """Stage message by message, in order; those that the broker refuses become faults of the batch."""
        part, at = self._new_part(), 0
        for id_, message in list(batch.messages.items()):
            try:
                await self._client.stage(batch.queue, sink, batch=batch.number, part=part, at=at, messages=[message])
            except _REFUSED as error:
                batch.faults[id_] = str(error)
                del batch.messages[id_]
            else:
                at += 1
        return part

    def _new_part(self) -> str:
        """Return a name that no attempt has used before, since a part can't be staged again differently."""
        self._attempts += 1
        return f"{self._epoch}-{self._attempts}"

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()


def _requests(messages: Iterable[NewMessage]) -> Iterator[list[NewMessage]]:
    """Yield messages in requests that are not much larger than a few megabytes."""
    request: list[NewMessage] = []
    size = 0
    for message in messages:
        if request and size + len(message.payload) > _REQUEST_BYTES:
            yield request
            request, size = [], 0
        request.append(message)
        size += len(message.payload)
    if request:
        yield request


def _text(error: Exception) -> str:
    return "another relay took over" if isinstance(error, Superseded) else " ".join(str(error).split())
