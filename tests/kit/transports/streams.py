"""The contract of a client on what flows: streams, producers, and the client for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from fairlane.client import AsyncClient, Client, NewMessage
from fairlane.errors import FairlaneError, InvalidArgument, MessageNotFound, QueueFull, QueueNotFound
from tests.kit.transports.contract import TransportContract, check_refused, check_same


class StreamContract(TransportContract):
    """Streams and producers. Each test has its own empty server."""

    def test_a_stream_delivers_within_its_credit(self) -> None:
        """Of three messages two are leased at credit 2; an ack lets the third come."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % number) for number in range(3)])
            async with client.consume("jobs", credit=2, owner="me") as stream:
                first, second = await anext(stream), await anext(stream)
                check_same((await client.queue("jobs")).leased, 2, "leased")
                await first.ack()
                third = await anext(stream)
                check_same([second.payload, third.payload], [b"1", b"2"], "the others")
                await second.ack()
                third.ack_soon()
            check_same((await client.queue("jobs")).waiting, 0, "waiting")

        self.run(scenario)

    def test_prompt_messages_come_to_free_handlers(self) -> None:
        """Of messages with a deadline a reader gets one, and another when it asks for more or has settled the first."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(deadline_ms=3_600_000) for _ in range(4)])
            async with client.consume("jobs", credit=8) as stream:
                first = await anext(stream)
                check_same((await client.queue("jobs")).leased, 1, "leased for a reader of one message")
                await first.ack()
                second, third = await anext(stream), await anext(stream)
                check_same((await client.queue("jobs")).leased, 2, "leased for a reader that keeps two")
                await second.ack()
                await third.ack()
            async with client.consume("jobs", credit=8, handlers=4) as stream:
                await anext(stream)

        self.run(scenario)

    def test_a_stream_waits_for_messages(self) -> None:
        """A message that is enqueued later comes to a stream that was there before."""

        async def scenario(client: AsyncClient) -> None:
            async with client.consume("jobs", with_state=True) as stream:
                coming = asyncio.ensure_future(anext(stream))
                await client.enqueue("jobs", b"later")
                check_same((await coming).payload, b"later", "payload")

        self.run(scenario)

    def test_leaving_a_stream_gives_back_what_it_had(self) -> None:
        """Nothing stays leased, and neither what was looked at nor the rest has failed."""

        async def scenario(client: AsyncClient) -> None:
            ids = await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % number) for number in range(3)])
            async with client.consume("jobs") as stream:
                await anext(stream)
            views = {view.id: view for view in await client.peek("jobs")}
            check_same([views[str(each)].status == "leased" for each in ids], [False] * 3, "leased")
            check_same([view.failures for view in views.values()], [0] * 3, "failures")

        self.run(scenario)

    def test_a_stream_ends_with_its_queue(self) -> None:
        """A consumer of a queue that is deleted gets an error; consuming from a missing queue fails."""

        async def scenario(client: AsyncClient) -> None:
            async with client.consume("jobs") as stream:
                coming = asyncio.ensure_future(anext(stream))
                await client.delete_queue("jobs")
                await check_refused(QueueNotFound, coming)
            await check_refused(QueueNotFound, client.consume("jobs").open())
            await check_refused(InvalidArgument, client.consume("jobs", credit=0).open())

        self.run(scenario)

    def test_several_streams_share_a_connection(self) -> None:
        """Two streams of two queues get the messages of their own."""

        async def scenario(client: AsyncClient) -> None:
            await client.create_queue("other")
            async with client.consume("jobs") as one, client.consume("other") as two:
                await client.enqueue("other", b"two")
                await client.enqueue("jobs", b"one")
                first, second = await anext(one), await anext(two)
                check_same((first.payload, second.payload), (b"one", b"two"), "payloads")
                await asyncio.gather(first.ack(), second.ack())

        self.run(scenario)

    def test_acks_sent_soon_report_their_failures(self) -> None:
        """An unawaited ack is complete after the flush, which reports those that failed."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs")
            message.ack_soon()
            check_same(await client.flush(), [], "failures")
            message.ack_soon()
            ((message_id, error),) = await client.flush()
            check_same((message_id, type(error)), (message.id, MessageNotFound), "failure")

        self.run(scenario)

    def test_a_producer_sends_everything(self) -> None:
        """What is sent by a producer is durable when it is left, in order, with an id for each."""

        async def scenario(client: AsyncClient) -> None:
            async with client.producer("jobs", batch=10, linger_ms=60_000, in_flight=2) as producer:
                replies = [await producer.send(b"%d" % number, fairness_key="k") for number in range(95)]
            ids = [await reply for reply in replies]
            messages = await client.lease("jobs", 100)
            check_same([message.payload for message in messages], [b"%d" % number for number in range(95)], "payloads")
            check_same([message.id for message in messages], ids, "ids")

        self.run(scenario)

    def test_a_producer_sends_what_lingers(self) -> None:
        """A batch that does not fill up goes after its time, without a flush."""

        async def scenario(client: AsyncClient) -> None:
            producer = client.producer("jobs", batch=10, linger_ms=1)
            reply = await producer.send(b"lonely")
            check_same((await client.get("jobs", await reply)).payload, b"lonely", "payload")
            await producer.close()

        self.run(scenario)

    def test_a_producer_reports_every_failure(self) -> None:
        """Each message that is refused fails its future, and is told to ``on_failure`` or raised together."""

        async def scenario(client: AsyncClient) -> None:
            await client.create_queue("small", {"waiting_max": 2})
            told: list[tuple[bytes, type[FairlaneError]]] = []
            on_failure: Callable[[NewMessage, FairlaneError], None] = lambda message, error: told.append(  # noqa: E731
                (message.payload, type(error))
            )
            async with client.producer("small", on_failure=on_failure) as producer:
                replies = [await producer.send(b"%d" % number) for number in range(4)]
            check_same(told, [(b"2", QueueFull), (b"3", QueueFull)], "failures")
            await check_refused(QueueFull, replies[3])
            try:
                async with client.producer("small") as producer:
                    await producer.send(b"more")
            except ExceptionGroup as group:
                check_same([type(error) for error in group.exceptions], [QueueFull], "errors raised")
            else:
                raise AssertionError("Nothing was raised.")

        self.run(scenario)


class ThreadsContract(TransportContract):
    """The client for threads. Each test has its own empty server."""

    def test_threads_do_what_tasks_do(self) -> None:
        """The whole life of a message, its state and its block, with verbs that wait."""
        with self.server() as server, Client(server) as client:
            client.create_queue("jobs", {"backoff_ms": 0})
            message_id = client.enqueue("jobs", b"x", headers={"a": "b"})
            (message,) = client.lease("jobs", wait_ms=1_000)
            with message:
                message.set_state(b"s")
                message.extend(60_000)
            check_same(client.get("jobs", message_id).failures, 1, "failures after an unacked block")
            (message,) = client.lease("jobs", wait_ms=5_000, with_state=True)
            check_same(message.state, b"s", "state")
            message.ack()
            check_same([client.queue("jobs").waiting, client.flush()], [0, []], "what is left")

    def test_threads_get_prompt_messages_as_they_ask(self) -> None:
        """A thread that keeps its messages gets the next one when it asks for it, and none ahead."""
        with self.server() as server, Client(server) as client:
            client.create_queue("jobs")
            client.enqueue_many("jobs", [NewMessage(deadline_ms=3_600_000) for _ in range(4)])
            with client.consume("jobs", credit=8) as stream:
                kept = [next(stream), next(stream)]
                check_same(client.queue("jobs").leased, 2, "leased")
                for message in kept:
                    message.ack()

    def test_threads_iterate_a_stream(self) -> None:
        """What a producer sends comes out of a stream, and leaving it returns what was not read."""
        with self.server() as server, Client(server) as client:
            client.create_queue("jobs")
            with client.producer("jobs", batch=10, linger_ms=60_000) as producer:
                replies = [producer.send(b"%d" % number, fairness_key="k") for number in range(45)]
            with client.consume("jobs", credit=20) as stream:
                for message in stream:
                    with message:
                        message.ack_soon()
                    if message.payload == b"29":
                        break
            left = client.peek("jobs", 100)
            check_same([view.id for view in left], [reply.result() for reply in replies[30:]], "left")
            check_same([view.failures for view in left], [0] * 15, "failures")

    def test_many_threads_share_a_client(self) -> None:
        """Ten threads enqueue and consume through one client, and nothing is lost or done twice."""
        with self.server() as server, Client(server) as client:
            client.create_queue("jobs")
            threads = [
                threading.Thread(target=lambda: [client.enqueue("jobs", b"x") for _ in range(20)]) for _ in range(10)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            messages = client.lease("jobs", 1_000)
            check_same(len({message.id for message in messages}), 200, "messages")

    def test_closing_a_stream_wakes_its_thread(self) -> None:
        """A thread that waits for the next message is released when another closes the stream."""
        with self.server() as server, Client(server) as client:
            client.create_queue("jobs")
            with client.consume("jobs") as stream:
                waiting = threading.Thread(target=lambda: list(stream))
                waiting.start()
                stream.close()
                waiting.join()
