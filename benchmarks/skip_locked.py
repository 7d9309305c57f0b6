"""A hand-written queue in PostgreSQL with ``FOR UPDATE SKIP LOCKED``, as a baseline, where PostgreSQL is installed.

A table, batches by ``UNNEST``, and acknowledgements by ``DELETE``. It has no tenants' turns, and one connection for
each request in flight. Commits are synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import asyncpg

from benchmarks.meter import Measured, Meter
from tests.kit.servers.stores import PostgresServer, ServerMissing

BATCH = 100
TENANTS = 10
MAKE = """
DROP TABLE IF EXISTS jobs;
CREATE TABLE jobs (id BIGSERIAL PRIMARY KEY, tenant TEXT NOT NULL, payload BYTEA NOT NULL, leased_until TIMESTAMPTZ);
CREATE INDEX jobs_ready ON jobs (id) WHERE leased_until IS NULL"""
ENQUEUE = "INSERT INTO jobs (tenant, payload) SELECT * FROM UNNEST($1::TEXT[], $2::BYTEA[])"
ENQUEUE_ONE = "INSERT INTO jobs (tenant, payload) VALUES ($1, $2) RETURNING id"
LEASE = """
UPDATE jobs SET leased_until = now() + INTERVAL '30 s' WHERE id IN
  (SELECT id FROM jobs WHERE leased_until IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
RETURNING id, payload"""
ACK = "DELETE FROM jobs WHERE id = ANY($1::BIGINT[])"
AsyncWork = Callable[[list[asyncpg.Connection], bytes, Meter, int], Awaitable[None]]
Work = Callable[[PostgresServer, bytes, Meter, int], Measured]


@contextmanager
def server() -> Iterator[PostgresServer | None]:
    """Start a server on a fresh folder. Yields None if PostgreSQL is not installed."""
    try:
        known = PostgresServer(settings=["shared_buffers=256MB", "max_wal_size=2GB"])
    except ServerMissing:
        yield None
        return
    with known:
        yield known


async def connected(known: PostgresServer) -> asyncpg.Connection:
    return await asyncpg.connect(host=str(known.folder), user="fairlane", database="postgres")


def asynchronous(work: AsyncWork, *, in_flight: int) -> Work:
    """Return a work on some connections as a plain function."""

    def run(known: PostgresServer, payload: bytes, meter: Meter, count: int) -> Measured:
        async def once() -> None:
            connections = [await connected(known) for _ in range(in_flight)]
            await connections[0].execute(MAKE)
            meter.servers = known.pids()[1:]
            await work(connections, payload, meter, count)
            for connection in connections:
                await connection.close()

        asyncio.run(once())
        return meter.measured(count)

    return run


async def add_batches(connections: list[asyncpg.Connection], payload: bytes, meter: Meter, count: int) -> None:
    tenants, payloads = [f"tenant-{at % TENANTS}" for at in range(BATCH)], [payload] * BATCH

    async def add(connection: asyncpg.Connection) -> None:
        for _ in range(0, count // len(connections), BATCH):
            await connection.execute(ENQUEUE, tenants, payloads)

    with meter:
        await asyncio.gather(*map(add, connections))


async def take_batches(connections: list[asyncpg.Connection], payload: bytes, meter: Meter, count: int) -> None:
    await add_batches(connections, payload, meter, count)

    async def take(connection: asyncpg.Connection) -> None:
        while rows := await connection.fetch(LEASE):
            await connection.execute(ACK, [row["id"] for row in rows])

    with meter:
        await asyncio.gather(*map(take, connections))


async def add_one_at_a_time(connections: list[asyncpg.Connection], payload: bytes, meter: Meter, count: int) -> None:
    statement = await connections[0].prepare(ENQUEUE_ONE)
    with meter:
        for _ in range(count):
            await statement.fetchval("tenant-1", payload)
