"""Tests of calls with a time limit, while the server is away or slow."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.client import AsyncClient, Client, NewMessage
from fairlane.embedded import EmbeddedTransport
from fairlane.errors import CallTimedOut, InvalidArgument
from fairlane.tasks import App

from .serving import free_port


def test_a_call_fails_within_its_time_and_names_the_server() -> None:
    """While no server runs, a call raises in time, and the cause names the address."""
    address = f"127.0.0.1:{free_port()}"

    async def main() -> None:
        client = AsyncClient(f"ws://{address}")
        with pytest.raises(
            CallTimedOut, match=f"No answer to 'enqueue' within 0.2 s: Cannot connect to ws://{address}"
        ):
            await client.with_timeout(0.2).enqueue("mail", b"hello")
        with pytest.raises(CallTimedOut, match=r"No answer to 'queues' within 0\.2 s"):
            await client.with_timeout(0.2).queues()
        await client.close()

    asyncio.run(main())


def test_what_timed_out_is_not_sent_later() -> None:
    """A message whose caller gave up before it was sent is not sent when the server comes."""

    async def main() -> None:
        transport = EmbeddedTransport()
        await transport.connect()
        reached = asyncio.Event()
        call = transport.call

        async def late(verb: str, request: object, *, wait_ms: int = 0) -> object:
            if verb == "enqueue":
                await reached.wait()
            return await call(verb, request, wait_ms=wait_ms)  # type: ignore[arg-type] # as it came

        transport.call = late  # type: ignore[method-assign] # a server that is away
        async with AsyncClient(transport) as client:
            await client.create_queue("mail")
            with pytest.raises(CallTimedOut):
                await client.with_timeout(0.01).enqueue("mail", b"hello")
            reached.set()
            await client.drained()
            assert (await client.queue("mail")).waiting == 0

    asyncio.run(main())


def test_every_verb_works_within_its_time() -> None:
    """A limited client leases, acknowledges and looks as the client does, for asyncio and for threads."""

    async def main() -> None:
        async with AsyncClient.embedded() as client:
            limited = client.with_timeout(30)
            await limited.create_queue("mail")
            await limited.enqueue("mail", json={"a": 1}, fairness_key="acme")
            (message,) = await limited.lease("mail")
            assert message.json() == {"a": 1}
            await message.ack()
            assert (await limited.queue("mail")).waiting == 0

    asyncio.run(main())
    with Client.embedded() as client:
        limited = client.with_timeout(30)
        limited.create_queue("mail")
        limited.enqueue_many("mail", [NewMessage(payload=b"x")])
        (message,) = limited.lease("mail")
        message.ack()
        assert limited.queue("mail").waiting == 0


def test_a_timeout_of_nothing_is_refused() -> None:
    """A limit must be greater than zero."""
    with pytest.raises(InvalidArgument, match="timeout of a call is 0 s"):
        AsyncClient("ws://127.0.0.1:9").with_timeout(0)


def test_a_task_sent_from_threads_fails_in_time() -> None:
    """send_sync raises within the app's timeout while the server is away, and can be called again."""
    app = App(f"ws://127.0.0.1:{free_port()}", timeout=0.2)

    @app.task
    def job() -> None: ...

    for _ in range(2):
        with pytest.raises(CallTimedOut, match="Cannot connect"):
            job.send_sync()
    app.close_sync()
