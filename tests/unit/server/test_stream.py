"""The stream: calls and channels on one connection, and what becomes of it all when it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.model.message import NewMessage, Receipt
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.limits import CallLimits
from fairlane.server.shutdown import settled
from fairlane.verbs.leases import Ack, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResults, Results
from fairlane.verbs.queues import GetStats
from fairlane.verbs.verb import Done
from fairlane.wire.frames import Answer, Call, Consume, Ended, Refused, Stop, message_of

from .local_server import LocalServer, Socket, connected, opened, run

both_sockets = pytest.mark.parametrize("is_direct", [False, True], ids=["ASGI events", "direct socket"])


async def fill(server: LocalServer, count: int) -> list[str]:
    """Enqueue messages, and return their ids."""
    return [str(result) for result in await server.broker.enqueue_many("orders", [NewMessage()] * count)]


@both_sockets
def test_calls_are_answered_by_number(*, is_direct: bool) -> None:
    """Enqueue, lease and ack work over the stream, with a result for each item."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            request = Enqueue(queue="orders", messages=[NewMessage(payload=b"a"), NewMessage(cost=0)])
            enqueued = await socket.answer("enqueue", request, EnqueueResults)
            assert enqueued.results[0].id
            assert enqueued.results[1].error is not None
            leased = await socket.answer("lease", Lease(queue="orders"), LeasedMessages)
            delivery = leased.deliveries[0]
            receipts = [Receipt(id=delivery.id, token=delivery.token), Receipt(id=delivery.id, token=1)]
            acked = await socket.answer("ack", Ack(queue="orders", receipts=receipts), Results)
            assert [result.error is None for result in acked.results] == [True, False]

    run(main())


@both_sockets
@pytest.mark.parametrize(
    ("verb", "request_", "code"),
    [
        ("nothing", {}, "route_not_found"),
        ("lease", {"queue": "none"}, "queue_not_found"),
        ("lease", {"queue": 1}, "invalid_argument"),
        ("lease", {"queue": "orders", "cuont": 1}, "invalid_argument"),
        ("consume", {"queue": "none"}, "queue_not_found"),
        ("consume", {"queue": "orders", "credit": 0}, "invalid_argument"),
        ("stop", {"channel": 7}, "invalid_argument"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    verb: str, request_: dict[str, Any], code: str, *, is_direct: bool
) -> None:
    """It is refused by its number, and the connection goes on."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            number = socket.call(verb, request_)
            refused = await socket.next(Refused)
            assert (refused.number, refused.error.code) == (number, code)
            await socket.answer("stats", GetStats(queue="orders"), dict[str, Any])

    run(main())


@both_sockets
def test_calls_are_asked_in_the_order_in_which_they_came(*, is_direct: bool) -> None:
    """A call that needs a task is asked before quick ones that came after it, in the same message and in the next."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            enqueue = msgspec.Raw(msgspec.msgpack.encode(Enqueue(queue="new", messages=[NewMessage()])))
            create = msgspec.Raw(msgspec.msgpack.encode({"queue": "new"}))
            socket.give(message_of([Call(1, "create_queue", create), Call(2, "enqueue", enqueue)]))
            socket.give(message_of([Call(3, "enqueue", enqueue)]))
            frames = [await socket.frame() for _ in range(3)]
            assert sorted(frame.number for frame in frames if isinstance(frame, Answer)) == [1, 2, 3]

    run(main())


@both_sockets
def test_a_fault_of_ours_is_refused_and_counted(*, is_direct: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A quick call that fails in a way nobody thought of is refused without details, and the connection goes on."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:

            def fail(_: object) -> None:
                raise RuntimeError("a secret")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(server.broker, "submit", fail)
                number = socket.call("lease", Lease(queue="orders"))
                refused = await socket.next(Refused)
            assert (refused.number, refused.error.code) == (number, "internal")
            assert "secret" not in refused.error.cause
            assert server.context.tally.errors["internal"] == 1
            await socket.answer("lease", Lease(queue="orders"), LeasedMessages)

    run(main())
    assert "a secret" in caplog.text


@both_sockets
def test_a_fault_of_ours_refuses_a_channel(*, is_direct: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A channel that can't be opened for a reason that is a bug is refused too, and the client does not wait for it."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:

            async def fail(_: object) -> None:
                raise RuntimeError("a secret")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(server.context.gateway, "served", fail)
                number = socket.call("consume", Consume(queue="orders", credit=1))
                refused = await socket.next(Refused)
            assert (refused.number, refused.error.code) == (number, "internal")
            assert server.context.tally.errors == {"internal": 1}

    run(main())
    assert "a secret" in caplog.text


@both_sockets
def test_a_long_wait_holds_up_nobody_else(*, is_direct: bool) -> None:
    """While one call waits for messages another is answered, and then the first gets what came."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            waiting = socket.call("lease", Lease(queue="orders", wait_ms=60_000))
            await socket.answer("enqueue", Enqueue(queue="orders", messages=[NewMessage()]), EnqueueResults)
            assert (await socket.next(Answer)).number == waiting

    run(main())


@both_sockets
def test_frames_go_together_only_to_who_sends_them_together(*, is_direct: bool) -> None:
    """A client that sends single frames gets single frames; one that sends arrays gets arrays."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            raw = msgspec.Raw(msgspec.msgpack.encode({"queue": "orders"}))
            for number in (1, 2):
                socket.give(msgspec.msgpack.encode(Call(number, "stats", raw)))
            assert [len(await socket.frames()) for _ in range(2)] == [1, 1]
            socket.give(message_of([Call(number, "stats", raw) for number in range(3, 13)]))
            assert len(await socket.frames()) == 10

    run(main())


@both_sockets
def test_a_channel_delivers_up_to_its_credit(*, is_direct: bool) -> None:
    """The answer comes first, then as many messages as there is credit, and more when some are acked."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            ids = await fill(server, 5)
            number = socket.call("consume", Consume(queue="orders", credit=2))
            assert isinstance(await socket.frame(), Answer)
            deliveries = await socket.deliveries(2)
            assert [delivery.id for delivery in deliveries] == ids[:2]
            receipts = [Receipt(id=delivery.id, token=delivery.token) for delivery in deliveries]
            socket.call("ack", Ack(queue="orders", receipts=receipts))
            assert [delivery.id for delivery in await socket.deliveries(2)] == ids[2:4]
            assert number == 1

    run(main())


@both_sockets
def test_a_stopped_channel_gives_back_what_it_had(*, is_direct: bool) -> None:
    """What was seen counts as a lost attempt; what was named unseen, or had not been received, does not."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            ids = await fill(server, 4)
            number = socket.call("consume", Consume(queue="orders", credit=4))
            await socket.deliveries(4)
            await socket.answer("stop", Stop(channel=number, unseen=(ids[1],), received=3), Done)
            views = [await server.broker.get("orders", message_id) for message_id in ids]
            assert [len(view.errors) for view in views] == [1, 0, 1, 0]

    run(main())


@both_sockets
def test_a_connection_that_goes_gives_back_what_it_had(*, is_direct: bool) -> None:
    """Its channels end, what they had goes back, its waiting calls are cancelled, and it counts no more."""

    async def main() -> None:
        async with opened() as server:
            ids = await fill(server, 1)
            async with connected(server, is_direct=is_direct) as socket:
                socket.call("consume", Consume(queue="orders"))
                await socket.deliveries(1)
                socket.call("lease", Lease(queue="orders", wait_ms=60_000))
                while not (await server.broker.queue("orders")).waiters:
                    pass
                assert server.context.tally.streams == 1
            view = await server.broker.get("orders", ids[0])
            assert (view.status, view.errors[0].reason) == ("waiting", "release")
            assert (await server.broker.queue("orders")).consumers == 0
            assert server.context.tally.streams == 0

    run(main())


@both_sockets
def test_what_could_not_be_sent_is_deferred(*, is_direct: bool) -> None:
    """Messages for a client that has stopped reading and goes away count as no failure."""

    async def main() -> None:
        async with opened() as server:
            ids = await fill(server, 2)
            async with connected(server, is_direct=is_direct) as socket:
                socket.may_write.clear()
                socket.call("consume", Consume(queue="orders", credit=1))
                socket.call("lease", Lease(queue="orders"))
                while (await server.broker.queue("orders")).leased < 2:
                    pass
            views = [await server.broker.get("orders", message_id) for message_id in ids]
            while any(view.status == "leased" for view in views):
                views = [await server.broker.get("orders", message_id) for message_id in ids]
            assert [(view.status, view.failures) for view in views] == [("waiting", 0), ("waiting", 0)]

    run(main())


@both_sockets
def test_a_channel_is_told_when_its_queue_is_gone(*, is_direct: bool) -> None:
    """An end with a reason comes on a channel whose queue is deleted."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            number = socket.call("consume", Consume(queue="orders"))
            await socket.next(Answer)
            await server.broker.delete_queue("orders")
            ended = await socket.next(Ended)
            assert (ended.channel, ended.error.code) == (number, "queue_not_found")

    run(main())


@both_sockets
def test_a_server_that_goes_down_ends_channels_but_takes_acks(*, is_direct: bool) -> None:
    """Nothing new comes, what is in flight can be acked, new channels are refused, and at last the socket is closed."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            await fill(server, 1)
            socket.call("consume", Consume(queue="orders"))
            delivery = (await socket.deliveries(1))[0]
            server.context.draining.set()
            assert (await socket.next(Ended)).error.code == "closed"
            await fill(server, 1)
            receipt = Receipt(id=delivery.id, token=delivery.token)
            acked = await socket.answer("ack", Ack(queue="orders", receipts=[receipt]), Results)
            assert acked.results[0].error is None
            socket.call("consume", Consume(queue="orders"))
            assert (await socket.next(Refused)).error.code == "closed"
            await settled(server.context, quiet_s=60)
            server.context.closing.set()
            closed = await socket.outgoing.get()
            assert (closed["type"], closed["code"]) == ("websocket.close", 1012)

    run(main())


@both_sockets
@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"bytes": b"\xc1"}, 1007),
        ({"bytes": b""}, 1007),
        ({"bytes": msgspec.msgpack.encode([9, 1, "lease", {}])}, 1007),
        ({"bytes": msgspec.msgpack.encode({"number": 1})}, 1007),
        ({"text": "hello"}, 1003),
    ],
)
def test_what_is_no_frame_ends_the_connection(event: dict[str, Any], code: int, *, is_direct: bool) -> None:
    """A client that does not speak the protocol is told so by the code of the close."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=is_direct) as socket:
            socket.incoming.put_nowait({"type": "websocket.receive", **event})
            closed = await socket.outgoing.get()
            assert (closed["type"], closed["code"]) == ("websocket.close", code)

    run(main())


@both_sockets
def test_no_more_calls_are_read_than_may_be_in_flight(*, is_direct: bool) -> None:
    """With as many calls in flight as may be, the connection is read no further until one is answered."""

    async def main() -> None:
        async with opened(limits=CallLimits(calls_max=2)) as server, connected(server, is_direct=is_direct) as socket:
            await server.broker.update_queue("orders", {"waiting_max": 1, "backpressure": "wait"})
            await fill(server, 1)
            for _ in range(5):
                socket.call("enqueue", Enqueue(queue="orders", messages=[NewMessage()]))
            while socket.incoming.qsize() > 3:
                await server.broker.queue("orders")
            await server.broker.queue("orders")
            assert socket.incoming.qsize() == 3
            await server.broker.update_queue("orders", {"waiting_max": None})
            for _ in range(5):
                await socket.next(Answer)

    run(main())


@both_sockets
def test_waiting_leases_are_limited_and_do_not_hide_that_a_client_has_gone(*, is_direct: bool) -> None:
    """One lease too many is refused with when to come back, and a client that goes ends them all."""

    async def main() -> None:
        async with opened(limits=CallLimits(calls_max=2)) as server:
            async with connected(server, is_direct=is_direct) as socket:
                for _ in range(3):
                    socket.call("lease", Lease(queue="orders", wait_ms=60_000))
                refused = await socket.next(Refused)
                assert refused.error.code == "too_many_waiters"
                assert refused.error.retry_after_ms
            await fill(server, 1)
            assert (await server.broker.queue("orders")).leased == 0

    run(main())


@both_sockets
def test_a_slow_reader_slows_down_only_itself(*, is_direct: bool) -> None:
    """When a client does not read its answers, the server stops reading its calls."""

    async def main() -> None:
        async with (
            opened() as server,
            connected(server, is_direct=is_direct) as socket,
            connected(server, is_direct=is_direct) as other,
        ):
            socket.may_write.clear()
            for _ in range(3_000):
                socket.call("stats", GetStats(queue="orders"))
            for _ in range(100):
                await other.answer("stats", GetStats(queue="orders"), dict[str, Any])
            assert socket.incoming.qsize() > 1_500
            socket.may_write.set()
            answers = 0
            while answers < 3_000:
                answers += len(await socket.frames())

    run(main())


@both_sockets
def test_a_reader_that_goes_while_it_is_slow_is_noticed(*, is_direct: bool) -> None:
    """When sending fails the connection is over, though nothing is being read."""

    async def main() -> None:
        async with opened() as server:
            ids = await fill(server, 1)
            async with connected(server, is_direct=is_direct) as socket:
                socket.call("consume", Consume(queue="orders"))
                await socket.deliveries(1)
                socket.is_broken = True
                socket.call("stats", GetStats(queue="orders"))
                while server.context.tally.streams:
                    await server.broker.queue("orders")
            assert (await server.broker.get("orders", ids[0])).errors[0].reason == "release"

    run(main())


@pytest.mark.parametrize(
    ("path", "subprotocols", "status"),
    [("/v1/stream", [], 400), ("/v1/elsewhere", ["fairlane.v1"], 404), ("/v1/stream", ["fairlane.v1"], 401)],
)
def test_a_handshake_that_is_wrong_is_refused(path: str, subprotocols: list[str], status: int) -> None:
    """Another path, another subprotocol or no key are refused with an answer of HTTP."""

    async def main() -> None:
        async with opened(requires_auth=status == 401) as server:
            socket = Socket()
            socket.may_write.set()
            socket.incoming.put_nowait({"type": "websocket.connect"})
            extensions: dict[str, Any] = {"websocket.http.response": {}}
            scope = {"type": "websocket", "path": path, "headers": [], "subprotocols": subprotocols}
            await HttpInterface(server.context)(scope | {"extensions": extensions}, socket.receive, socket.send)
            assert (await socket.outgoing.get())["status"] == status
            assert "remedy" in msgspec.json.decode((await socket.outgoing.get())["body"])["error"]

    run(main())
