"""Consuming over gRPC: credit, acks on the stream, and what becomes of messages when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from fairlane.broker.waiting.room import Room
from fairlane.gateway.caller import ANYBODY
from fairlane.server.interfaces.grpc_consume import GrpcOutbox
from fairlane.server.limits import CallLimits
from fairlane.verbs.keys import Grant, RevokeKey
from fairlane.verbs.messages import Results
from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from fairlane.wire.grpc import types_pb2
from tests.unit.server.grpc_client import GrpcClient, called, receipt, trailing
from tests.unit.server.local_server import run

PAYLOADS = [bytes([number]) for number in range(5)]


class Consumer:
    """The client's end of the stream."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._number = 0
        self.others: list[Any] = []

    async def say(self, **request: Any) -> int:
        """Send a request, and return its number."""
        self._number += 1
        await self.call.write(broker.ConsumeRequest(number=self._number, **request))
        return self._number

    async def deliveries(self, count: int) -> list[Any]:
        """Return so many deliveries; what comes between is kept."""
        found: list[Any] = []
        while len(found) < count:
            response = await self.call.read()
            found += response.deliveries
            if not response.deliveries:
                self.others.append(response)
        return found

    async def response(self) -> Any:
        """Return the next response that is no delivery."""
        return self.others.pop(0) if self.others else await self.call.read()

    async def ended(self) -> grpc.aio.AioRpcError:
        """Return how the stream ends."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("the stream ended well")


@asynccontextmanager
async def consuming(caller: GrpcClient, *, metadata: Any = None, **opening: Any) -> AsyncIterator[Consumer]:
    """Open a stream of ``orders``, and cancel it at the end."""
    call = caller.broker.Consume(metadata=metadata)
    consumer = Consumer(call)
    await consumer.say(open=broker.ConsumeOpen(**({"queue": "orders"} | opening)))
    try:
        yield consumer
    finally:
        call.cancel()


async def settled(caller: GrpcClient) -> Any:
    """Return the queue once no consumer is left on it."""
    while (view := await caller.server.broker.queue("orders")).consumers:
        pass
    return view


def test_deliveries_come_and_acks_go_on_one_stream() -> None:
    """Never more are in flight than there is credit; an ack makes room for the next."""

    async def main() -> None:
        async with called() as caller, consuming(caller, credit=2) as consumer:
            await caller.enqueue(*PAYLOADS)
            first = await consumer.deliveries(2)
            assert (await caller.server.broker.queue("orders")).leased == 2
            number = await consumer.say(ack=broker.AckItems(receipts=[receipt(each) for each in first]))
            second = await consumer.deliveries(2)
            results = await consumer.response()
            assert (results.number, len(results.results.results)) == (number, 2)
            await consumer.say(ack=broker.AckItems(receipts=[receipt(each) for each in second]))
            third = await consumer.deliveries(1)
            assert [each.payload for each in (*first, *second, *third)] == PAYLOADS

    run(main())


def test_nack_and_extend_go_on_the_stream_too() -> None:
    """Each has its results, under the number of its request, and a stale receipt its error."""

    async def main() -> None:
        async with called() as caller, consuming(caller, credit=1) as consumer:
            await caller.enqueue(b"a")
            (delivery,) = await consumer.deliveries(1)
            right = receipt(delivery)
            number = await consumer.say(extend=broker.ExtendItems(receipts=[right], visibility_ms=90_000))
            extended = await consumer.response()
            assert extended.number == number
            assert extended.results.results[0].expires_ms > delivery.expires_ms
            await consumer.say(nack=broker.NackItems(receipts=[right], error="no", delay_ms=0))
            (again,) = await consumer.deliveries(1)
            assert (again.attempt, again.errors[0].error) == (2, "no")
            assert not (await consumer.response()).results.results[0].HasField("error")
            await consumer.say(ack=broker.AckItems(receipts=[right]))
            assert (await consumer.response()).results.results[0].error.code == "lease_mismatch"

    run(main())


def test_a_client_may_only_open_and_ack_by_other_calls() -> None:
    """After a half-close deliveries still come."""

    async def main() -> None:
        async with called() as caller, consuming(caller, credit=1) as consumer:
            await consumer.call.done_writing()
            await caller.enqueue(b"a", b"b")
            (first,) = await consumer.deliveries(1)
            await caller.broker.Ack(broker.AckRequest(queue="orders", receipts=[receipt(first)]))
            (second,) = await consumer.deliveries(1)
            assert (first.payload, second.payload) == (b"a", b"b")

    run(main())


def test_a_stream_that_is_cancelled_lets_go() -> None:
    """What had been delivered comes to another consumer, and the attempt is noted as lost."""

    async def main() -> None:
        async with called() as caller:
            await caller.server.broker.update_queue("orders", {"backoff_ms": 0})
            async with consuming(caller) as consumer:
                await caller.enqueue(b"a")
                await consumer.deliveries(1)
            assert (await settled(caller)).leased == 0
            async with consuming(caller) as consumer:
                (again,) = await consumer.deliveries(1)
                assert (again.attempt, again.failures, again.errors[0].reason) == (2, 0, "release")

    run(main())


def test_a_client_that_stops_says_what_it_has_not_seen() -> None:
    """What it names and what came after it stopped is deferred, the rest is lost; the stream ends well."""

    async def main() -> None:
        async with called() as caller:
            await caller.server.broker.update_queue("orders", {"backoff_ms": 0})
            async with consuming(caller) as consumer:
                await caller.enqueue(b"a", b"b", b"c", b"d")
                got = await consumer.deliveries(4)
                await consumer.say(ack=broker.AckItems(receipts=[receipt(got[0])]))
                await consumer.say(stop=broker.ConsumeStop(unseen=[got[1].id], received=3))
                assert (await consumer.response()).results.results
                assert await consumer.call.read() is grpc.aio.EOF
                assert await consumer.call.code() == grpc.StatusCode.OK
            lease = broker.LeaseRequest(queue="orders", count=9)
            left = (await caller.broker.Lease(lease)).deliveries
            assert {each.payload: len(each.errors) for each in left} == {b"b": 0, b"c": 1, b"d": 0}

    run(main())


def test_many_large_messages_come_in_several_responses() -> None:
    """A client with the limits that gRPC has by default gets them all."""

    async def main() -> None:
        async with called() as caller, consuming(caller, credit=10) as consumer:
            await caller.enqueue(*[bytes(900_000) for _ in range(10)])
            assert [len(each.payload) for each in await consumer.deliveries(10)] == [900_000] * 10

    run(main())


def test_a_deleted_queue_ends_the_stream() -> None:
    """It is not found any more."""

    async def main() -> None:
        async with called() as caller, consuming(caller) as consumer:
            await consumer.call.initial_metadata()
            await caller.admin.DeleteQueue(admin.DeleteQueueRequest(queue="orders"))
            assert (await consumer.ended()).code() == grpc.StatusCode.NOT_FOUND

    run(main())


def test_a_server_that_goes_down_still_takes_acks() -> None:
    """The stream is told that nothing comes any more, acks what it has, and is ended."""

    async def main() -> None:
        async with called() as caller, consuming(caller) as consumer:
            await caller.enqueue(b"a")
            (delivery,) = await consumer.deliveries(1)
            caller.server.context.draining.set()
            assert (await consumer.response()).ended.code == "closed"
            await consumer.say(ack=broker.AckItems(receipts=[receipt(delivery)]))
            assert not (await consumer.response()).results.results[0].HasField("error")
            caller.server.context.closing.set()
            assert (await consumer.ended()).code() == grpc.StatusCode.UNAVAILABLE
            other = caller.broker.Consume()
            await Consumer(other).say(open=broker.ConsumeOpen(queue="orders"))
            assert (await Consumer(other).ended()).code() == grpc.StatusCode.UNAVAILABLE

    run(main())


@pytest.mark.parametrize(
    ("opening", "code"),
    [
        ({"queue": "none"}, "queue_not_found"),
        ({"queue": ""}, "queue_not_found"),
        ({"credit": 0}, "invalid_argument"),
        ({"credit": -1}, "invalid_argument"),
        ({"visibility_ms": 0}, "invalid_argument"),
        ({"owner": "x" * 1000}, "invalid_argument"),
    ],
)
def test_an_opening_that_makes_no_sense_is_refused(opening: dict[str, Any], code: str) -> None:
    """The stream ends before it begins."""

    async def main() -> None:
        async with called() as caller, consuming(caller, **opening) as consumer:
            assert trailing(await consumer.ended())["fairlane-code"] == code
            assert caller.server.context.tally.subscriptions == 0

    run(main())


def test_a_request_that_makes_no_sense_is_refused_and_the_stream_goes_on() -> None:
    """A second opening, nothing at all, an intent that nobody knows: each is refused by its number."""

    async def main() -> None:
        async with called() as caller, consuming(caller) as consumer:
            for request in (
                {"open": broker.ConsumeOpen(queue="orders")},
                {},
                {"nack": broker.NackItems(receipts=[types_pb2.Receipt(id="a", token=1)], intent="maybe")},
            ):
                number = await consumer.say(**request)
                response = await consumer.response()
                assert (response.number, response.refused.code) == (number, "invalid_argument")
            await caller.enqueue(b"a")
            assert await consumer.deliveries(1)

    run(main())


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x08\x01", b"\xf8\x07\x01"])
def test_a_stream_that_does_not_begin_with_open_is_refused(data: bytes) -> None:
    """Nothing, bytes that are no message, another request first, and fields that nobody knows."""

    async def main() -> None:
        async with called() as caller:
            call: Any = caller.channel.stream_stream("/fairlane.v1.Broker/Consume")()
            await call.write(data)
            assert trailing(await Consumer(call).ended())["fairlane-code"] == "invalid_argument"
            silent: Any = caller.broker.Consume()
            await silent.done_writing()
            assert trailing(await Consumer(silent).ended())["fairlane-code"] == "invalid_argument"

    run(main())


def test_rights_hold_while_the_stream_lasts() -> None:
    """Without a key or the right it ends before it has sent anything; with a key that is revoked, when that happens."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            silent = Consumer(caller.broker.Consume())
            assert (await silent.ended()).code() == grpc.StatusCode.UNAUTHENTICATED
            producer = (("authorization", f"Bearer {await caller.server.key(Grant(right='produce'))}"),)
            silent = Consumer(caller.broker.Consume(metadata=producer))
            assert (await silent.ended()).code() == grpc.StatusCode.PERMISSION_DENIED
            assert caller.server.context.tally.errors == {"unauthenticated": 1, "forbidden": 1}  # each counts once
            key = await caller.server.key(Grant(right="consume"))
            async with consuming(caller, metadata=(("authorization", f"Bearer {key}"),)) as consumer:
                await consumer.call.initial_metadata()
                await caller.server.context.api_keys.revoke(RevokeKey(id=key.split("_")[1]), ANYBODY)
                assert (await consumer.ended()).code() == grpc.StatusCode.UNAUTHENTICATED

    run(main())


def test_there_are_only_so_many_streams() -> None:
    """One beyond the limit is told to come back; when another has ended it may."""

    async def main() -> None:
        async with called(limits=CallLimits(waiters_per_caller_max=1)) as caller:
            async with consuming(caller) as first:
                await first.call.initial_metadata()
                async with consuming(caller) as second:
                    error = await second.ended()
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert int(trailing(error)["fairlane-retry-after-ms"]) > 0
            await settled(caller)
            async with consuming(caller) as third:
                await third.call.initial_metadata()

    run(main())


def test_a_slow_reader_holds_up_nobody_else() -> None:
    """While one client reads nothing another gets and acks its messages."""

    async def main() -> None:
        async with called() as caller:
            await caller.server.broker.create_queue("bulk")
            async with consuming(caller, queue="bulk", credit=64) as slow, consuming(caller) as quick:
                request = broker.EnqueueRequest(queue="bulk")
                for _ in range(40):
                    request.messages.add(payload=bytes(500_000))
                await caller.broker.Enqueue(request)
                for _ in range(20):
                    await caller.enqueue(b"a")
                    (delivery,) = await quick.deliveries(1)
                    await quick.say(ack=broker.AckItems(receipts=[receipt(delivery)]))
                    quick.others.clear()
                assert len(await slow.deliveries(40)) == 40

    run(main())


def test_a_client_that_reads_nothing_is_ended_all_the_same() -> None:
    """When the server goes down what was never sent is deferred, so that its attempts do not count."""

    async def main() -> None:
        limits = CallLimits(unread_bytes_max=64 * 1024 * 1024)
        async with called(limits=limits) as caller, consuming(caller, credit=64) as slow:
            await caller.enqueue(*[bytes(900_000) for _ in range(20)])
            while (await caller.server.broker.queue("orders")).leased < 20:
                pass
            caller.server.context.draining.set()
            caller.server.context.closing.set()
            assert (await settled(caller)).leased == 0
            views = await caller.server.broker.peek("orders", 20)
            assert sum(view.failures == 0 for view in views) > 10
            assert (await slow.ended()).code() == grpc.StatusCode.UNAVAILABLE

    run(main())


def test_a_fault_of_ours_refuses_an_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request on the stream that fails because of a bug is answered without details, and the stream goes on."""

    async def main() -> None:
        async with called() as caller, consuming(caller) as consumer:
            await caller.enqueue(b"a")
            (delivery,) = await consumer.deliveries(1)

            async def fail(*_: object) -> None:
                raise ZeroDivisionError("secret")

            with monkeypatch.context() as patch:
                patch.setattr(caller.server.context, "call", fail)
                number = await consumer.say(ack=broker.AckItems(receipts=[receipt(delivery)]))
                response = await consumer.response()
            assert (response.number, response.refused.code) == (number, "internal")
            assert "secret" not in response.refused.cause
            await consumer.say(ack=broker.AckItems(receipts=[receipt(delivery)]))
            assert not (await consumer.response()).results.results[0].HasField("error")

    run(main())


class SlowContext:
    """The server's end of a call whose client reads when the test says so."""

    def __init__(self) -> None:
        self.is_writing, self.may_write = asyncio.Event(), asyncio.Event()

    async def write(self, _data: bytes) -> None:
        self.is_writing.set()
        await self.may_write.wait()


def test_a_result_that_is_being_written_is_not_sent_yet() -> None:
    """A call that is stopped waits for its last result, which a slow client has not taken."""

    async def main() -> None:
        context: Any = SlowContext()
        outbox = GrpcOutbox(context, Room(1024 * 1024))
        sending = asyncio.create_task(outbox.run())
        outbox.put((1, 1, Results(results=[])))
        await context.is_writing.wait()
        stopping = asyncio.create_task(outbox.all_sent())
        await asyncio.wait({stopping}, timeout=0)
        assert not stopping.done()
        context.may_write.set()
        await stopping
        sending.cancel()

    run(main())


def test_many_acks_are_in_flight_at_once() -> None:
    """Requests are not answered one by one, yet never more at a time than calls_max."""

    async def main() -> None:
        async with called(limits=CallLimits(calls_max=2)) as caller, consuming(caller, credit=50) as consumer:
            await caller.enqueue(*[b"x"] * 50)
            got = await consumer.deliveries(50)
            for each in got:
                await consumer.say(ack=broker.AckItems(receipts=[receipt(each)]))
            numbers = {(await consumer.response()).number for _ in got}
            assert numbers == set(range(2, 52))

    run(main())
