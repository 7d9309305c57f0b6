"""The relay between an outbox in PostgreSQL and a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from fairlane.client import AsyncClient
from fairlane.errors import InvalidArgument
from fairlane.model.staging import PublishResult
from fairlane.outbox import enqueue
from fairlane.outbox.relay import Relay
from fairlane.outbox.tables import OutboxTables, Superseded
from tests.kit.waiting import until_answered


def write(url: str, *payloads: bytes, queue: str = "mail", **terms: Any) -> None:
    """Commit messages to the outbox."""
    with psycopg.connect(url) as connection:
        for payload in payloads:
            enqueue(connection, queue, payload, **terms)


def left(url: str) -> int:
    """Return how many rows wait in the outbox."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM fairlane_outbox.messages").fetchone()
    assert row is not None
    return int(row[0])


async def taken(client: AsyncClient, queue: str = "mail") -> list[bytes]:
    """Take everything out of a queue."""
    messages = await client.lease(queue, 1_000)
    for message in messages:
        await message.ack()
    return [message.payload for message in messages]


class Cut(Exception):
    """The relay ends here, as if it had been killed."""


class CutClient:
    """A client whose call ``publish`` does or does not reach the broker before the relay dies."""

    def __init__(self, client: AsyncClient, *, is_late: bool) -> None:
        self._client = client
        self._is_late = is_late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def publish(self, *terms: Any, **more: Any) -> PublishResult:
        """Die before or after the broker has published."""
        if self._is_late:
            await self._client.publish(*terms, **more)
        raise Cut


def with_queue(work: Any, url: str) -> Any:
    """Run a coroutine function with a client of an embedded broker that has the queue ``mail``."""

    async def main() -> Any:
        async with AsyncClient.embedded() as client:
            await client.create_queue("mail")
            return await work(client, url)

    return asyncio.run(main())


def test_committed_messages_reach_their_queue_in_order(shop: str) -> None:
    """The relay moves committed rows with their terms, in the order of a transaction, and deletes them."""

    async def work(client: AsyncClient, url: str) -> None:
        write(url, *(b"%d" % number for number in range(2_500)), fairness_key="acme", headers={"a": "b"})
        assert await Relay(url, client).drain() == 2_500
        assert left(url) == 0
        [first] = await client.lease("mail")
        assert (first.payload, first.fairness_key, first.headers) == (b"0", "acme", {"a": "b"})
        await first.ack()
        rest = [payload for _ in range(3) for payload in await taken(client)]
        assert rest == [b"%d" % number for number in range(1, 2_500)]

    with_queue(work, shop)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_relay_that_dies_in_the_middle_neither_loses_nor_repeats(shop: str, *, is_late: bool) -> None:
    """A batch whose relay died before or after publishing it is in the queue once after the next relay."""

    async def work(client: AsyncClient, url: str) -> None:
        write(url, b"one", b"two")
        with pytest.raises(Cut):
            await Relay(url, CutClient(client, is_late=is_late)).drain()  # type: ignore[arg-type]  # it stands for one
        write(url, b"three")
        await Relay(url, client).drain()
        assert await taken(client) == [b"one", b"two", b"three"]
        assert left(url) == 0

    with_queue(work, shop)


def test_a_database_that_was_restored_loses_nothing_new(shop: str) -> None:
    """A database that forgot its latest batch numbers gives greater ones, so the broker takes its new rows."""

    async def work(client: AsyncClient, url: str) -> None:
        for payload in (b"one", b"two"):
            write(url, payload)
            await Relay(url, client).drain()
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE fairlane_outbox.batches SET batch = 0")
        write(url, b"three")
        await Relay(url, client).drain()
        assert await taken(client) == [b"one", b"two", b"three"]

    with_queue(work, shop)


def test_a_message_that_is_refused_for_good_does_not_block_others(shop: str) -> None:
    """Rows that the broker never accepts are set aside with the reason, and those around them arrive."""

    async def work(client: AsyncClient, url: str) -> None:
        write(url, b"one")
        with psycopg.connect(url) as connection:
            connection.execute("""SELECT fairlane_outbox.enqueue('mail', '', '{"weigth": 3}')""")
            connection.execute("""SELECT fairlane_outbox.enqueue('mail', '', '[]')""")
            connection.execute("""SELECT fairlane_outbox.enqueue('mail', '', '{"weight": -3}')""")
        write(url, b"two")
        await Relay(url, client).drain()
        assert await taken(client) == [b"one", b"two"]
        with psycopg.connect(url) as connection:
            errors = connection.execute("SELECT error FROM fairlane_outbox.rejected ORDER BY id").fetchall()
        assert ["weigth" in errors[0][0], "array" in errors[1][0], "weight" in errors[2][0]] == [True] * 3

    with_queue(work, shop)


def test_a_missing_queue_blocks_only_its_own_messages(shop: str) -> None:
    """Messages for a queue that does not exist wait until it does, while those of other queues arrive."""

    async def work(client: AsyncClient, url: str) -> None:
        write(url, b"early", queue="later")
        write(url, b"one")
        await Relay(url, client).drain()
        assert (await taken(client), left(url)) == ([b"one"], 1)
        await client.create_queue("later")
        await Relay(url, client).drain()
        assert (await taken(client, "later"), left(url)) == ([b"early"], 0)

    with_queue(work, shop)


def test_a_running_relay_is_woken_by_commits_and_succeeded_by_another(shop: str) -> None:
    """A relay that runs moves what is committed meanwhile, and a second one takes over when it ends."""

    async def arrived(client: AsyncClient) -> bool:
        return (await client.queue("mail")).waiting == 1

    async def work(client: AsyncClient, url: str) -> None:
        relays = [asyncio.create_task(Relay(url, client).run()) for _ in range(2)]
        for relay in relays:
            write(url, b"one")
            await until_answered(lambda: arrived(client), "the message arrives")
            assert await taken(client) == [b"one"]
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    with_queue(work, shop)


def test_a_relay_that_was_superseded_changes_nothing(shop: str) -> None:
    """A relay whose connection outlives its lock can't begin a batch once another is in charge."""

    async def work(_client: AsyncClient, url: str) -> None:
        write(url, b"one")
        async with OutboxTables.connect(url) as old:
            await old.take_charge()
            with psycopg.connect(url) as connection:
                connection.execute("UPDATE fairlane_outbox.identity SET epoch = epoch + 1")  # as its successor does
            with pytest.raises(Superseded):
                await old.open_batch("mail", published=0, count=10)

    with_queue(work, shop)


def test_a_database_without_an_outbox_is_refused(postgres: Any) -> None:
    """A relay for a database without an outbox ends with the command that installs one."""

    async def work(client: AsyncClient, url: str) -> None:
        with pytest.raises(InvalidArgument, match="fairlane outbox install"):
            await Relay(url, client).run()

    with_queue(work, postgres.url)
