"""What a client has been sent and does not read is bounded in bytes, whatever its credit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlane.broker.waiting.room import ALWAYS_BYTES, Room
from fairlane.errors import StoreFailed
from fairlane.server.limits import CallLimits
from fairlane.verbs.keys import Grant
from fairlane.verbs.leases import LeasedMessages
from fairlane.wire.frames import Deliver, Refused
from fairlane.wire.grpc import broker_pb2
from tests.unit.server.grpc_client import called
from tests.unit.server.local_server import LocalServer, Socket, connected, opened, run

KIB = 1024
LIMITS = CallLimits(unread_bytes_max=1024 * KIB)


async def filled(server: LocalServer, count: int, size: int) -> None:
    """Enqueue messages of a size."""
    for _ in range(count):
        await server.broker.enqueue("orders", bytes(size))


async def settled(server: LocalServer) -> int:
    """Return how many messages are leased, once the server has done what it can."""
    for _ in range(20):
        await asyncio.sleep(0)
    return (await server.broker.queue("orders")).leased


def unread(server: LocalServer) -> int:
    """Return how many bytes all clients together have not read."""
    return server.context._room.unread


def test_a_consumer_that_does_not_read_gets_no_more_messages() -> None:
    """With a credit of 10,000 a client that reads nothing holds messages up to the bound; it gets all when it reads."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as socket:
            socket.call("consume", {"queue": "orders", "credit": 10_000})
            await socket.frame()
            socket.may_write.clear()
            await filled(server, 30, 100 * KIB)
            assert await settled(server) == 11  # the last one exceeds the bound
            assert unread(server) == 11 * 100 * KIB
            await server.broker.enqueue("orders", b"small")  # nor what comes later
            assert await settled(server) == 11
            socket.may_write.set()
            assert len(await socket.deliveries(31)) == 31
            assert unread(server) == 0

    run(main())


def test_a_client_that_does_not_read_does_not_keep_messages_from_others() -> None:
    """Messages that a consumer has no room for go to the next one in line."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as slow:
            slow.call("consume", {"queue": "orders", "credit": 10_000})
            await slow.frame()
            slow.may_write.clear()
            await filled(server, 15, 100 * KIB)
            assert await settled(server) == 11
            async with connected(server, is_direct=True) as quick:
                quick.call("consume", {"queue": "orders", "credit": 10})
                assert len(await quick.deliveries(4)) == 4
            slow.may_write.set()

    run(main())


def test_leases_wait_while_their_client_does_not_read() -> None:
    """A waiting lease of a client with too much to read leases nothing until the client reads."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as socket:
            socket.may_write.clear()
            for _ in range(20):
                socket.call("lease", {"queue": "orders", "count": 5, "wait_ms": 60_000})
            await settled(server)
            await filled(server, 30, 100 * KIB)
            assert await settled(server) == 11
            socket.may_write.set()
            leased = 0
            while leased < 30:
                answer = msgspec.msgpack.decode((await socket.frame()).answer, type=LeasedMessages)  # type: ignore[union-attr]  # an answer
                leased += len(answer.deliveries)
            assert leased == 30

    run(main())


def test_a_connection_that_ends_leaves_nothing_behind() -> None:
    """When a client that did not read disconnects, its bytes no longer count, and its messages go back."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server:
            async with connected(server, is_direct=True) as socket:
                socket.call("consume", {"queue": "orders", "credit": 10_000})
                await socket.frame()
                socket.may_write.clear()
                await filled(server, 15, 100 * KIB)
                assert await settled(server) == 11
            assert (unread(server), await settled(server)) == (0, 0)

    run(main())


def test_answers_that_are_not_read_are_refused_beyond_the_bound() -> None:
    """Of eight peeks with bodies at once, those that have no room beside the first get an error."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as socket:
            await filled(server, 8, 100 * KIB)
            socket.may_write.clear()
            for _ in range(8):
                socket.call("peek", {"queue": "orders", "with_body": True})
            await settled(server)
            assert 8 * 100 * KIB <= unread(server) <= 8 * 101 * KIB
            socket.may_write.set()
            frames = [await socket.frame() for _ in range(8)]
            errors = [frame.error.code for frame in frames if isinstance(frame, Refused)]
            assert errors == ["too_much_unread"] * 7

    run(main())


def test_all_connections_together_are_bounded_and_none_starves() -> None:
    """Once many clients have used up the total, another one still gets messages, a little at a time."""
    limits = CallLimits(unread_bytes_max=1024 * KIB, unread_total_bytes_max=1536 * KIB)

    async def consuming(socket: Socket) -> None:
        socket.call("consume", {"queue": "orders", "credit": 10_000})
        await socket.frame()
        socket.may_write.clear()

    async def main() -> None:
        async with (
            opened(limits=limits) as server,
            connected(server, is_direct=True) as first,
            connected(server, is_direct=True) as second,
            connected(server, is_direct=True) as third,
        ):
            for socket in (first, second, third):
                await consuming(socket)
            await filled(server, 60, 100 * KIB)
            await settled(server)
            assert 1536 * KIB <= unread(server) <= 1536 * KIB + 3 * (ALWAYS_BYTES + 100 * KIB)
            before = unread(server)
            await settled(server)
            assert unread(server) == before
            third.may_write.set()
            assert len(await third.deliveries(10)) >= 10  # although the others still read nothing
            for socket in (first, second):
                socket.may_write.set()

    run(main())


class Slow:
    """An HTTP client that takes an answer piece by piece."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.may_take = asyncio.Event()

    async def send(self, event: Any) -> None:
        self.sent.append(event)
        await self.may_take.wait()

    async def ask(
        self, server: LocalServer, path: str, request: object, *, key: str | None = None, accept: str = "*/*"
    ) -> None:
        body = msgspec.json.encode(request)
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"accept", accept.encode())]
        headers += [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        received = iter(({"type": "http.request", "body": body},))

        async def receive() -> dict[str, Any]:
            event = next(received, None)
            if event is None:
                await asyncio.get_running_loop().create_future()
            return event  # type: ignore[return-value]  # or it never returns

        await server.http._transport.app(scope, receive, self.send)  # type: ignore[attr-defined]  # an ASGI transport


def test_unread_answers_over_http_are_bounded_in_all() -> None:
    """Twenty peeks with bodies that nobody reads hold the total, and the rest are refused with 429."""
    limits = CallLimits(unread_bytes_max=1024 * KIB, unread_total_bytes_max=4096 * KIB)

    async def main() -> None:
        async with opened(limits=limits) as server:
            await filled(server, 9, 100 * KIB)
            peek = {"queue": "orders", "with_body": True}
            clients = [Slow() for _ in range(20)]
            asking = [asyncio.create_task(client.ask(server, "/v1/queue/peek", peek)) for client in clients]
            await settled(server)
            statuses = sorted(client.sent[0]["status"] for client in clients)
            assert statuses == [200] * 3 + [429] * 17  # 1.2 MiB each in base64
            assert 3 * 1200 * KIB <= unread(server) <= 4096 * KIB
            for client in clients:
                client.may_take.set()
            await asyncio.gather(*asking)
            assert unread(server) == 0
            assert sum(len(event["body"]) for event in clients[0].sent[1:]) > 900 * KIB

    run(main())


def test_a_tenant_that_reads_nothing_leaves_room_for_others() -> None:
    """However many answers one API key does not read, another one still gets a large answer."""
    limits = CallLimits(unread_total_bytes_max=4096 * KIB)

    async def main() -> None:
        async with opened(limits=limits, requires_auth=True) as server:
            greedy, other = [await server.key(Grant(right="consume")) for _ in range(2)]
            await filled(server, 9, 100 * KIB)
            peek = {"queue": "orders", "with_body": True}
            clients = [Slow() for _ in range(10)]
            asking = [asyncio.create_task(client.ask(server, "/v1/queue/peek", peek, key=greedy)) for client in clients]
            await settled(server)
            assert sorted(client.sent[0]["status"] for client in clients) == [200] + [429] * 9  # 1.2 MiB each
            assert (await server.post("queue/peek", peek, key=other)).status_code == 200
            for client in clients:
                client.may_take.set()
            await asyncio.gather(*asking)
            assert unread(server) == 0

    run(main())


def test_a_lease_over_http_that_has_no_room_goes_back() -> None:
    """Messages that were leased for an answer which is refused are available again, without a failed attempt."""

    async def main() -> None:
        async with opened(limits=CallLimits(unread_total_bytes_max=300 * KIB)) as server:
            await filled(server, 5, 100 * KIB)
            refused = await server.post("queue/lease", {"queue": "orders", "count": 5})
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_much_unread")
            assert await settled(server) == 0
            one = await server.post("queue/lease", {"queue": "orders", "count": 1})
            assert one.json()["deliveries"][0].get("failures", 0) == 0

    run(main())


def test_a_subscription_over_http_that_is_not_read_is_bounded() -> None:
    """A subscriber with a large credit that takes nothing holds messages up to the bound."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server:
            client = Slow()
            asking = asyncio.create_task(
                client.ask(server, "/v1/queue/subscribe", {"queue": "orders", "credit": 10_000})
            )
            await settled(server)
            await filled(server, 30, 100 * KIB)
            assert await settled(server) == 11
            client.may_take.set()
            while await settled(server) < 30:
                pass
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    run(main())


def test_a_subscription_that_breaks_off_leaves_nothing_behind() -> None:
    """If the store fails while a subscriber leaves, its unread bytes stop counting against all others."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server:
            client = Slow()
            request = {"queue": "orders", "credit": 10_000}
            asking = asyncio.create_task(client.ask(server, "/v1/queue/subscribe", request))
            await settled(server)
            await filled(server, 5, 100 * KIB)
            await settled(server)
            assert unread(server) == 5 * 100 * KIB

            async def fail(_: object) -> None:
                raise StoreFailed("The disk is gone.")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(server.broker, "detach", fail)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            assert unread(server) == 0

    run(main())


def test_a_grpc_consumer_with_a_large_credit_gets_everything_it_reads() -> None:
    """The bound on unread bytes holds messages back only while they are not read."""

    async def main() -> None:
        async with called(limits=CallLimits(unread_bytes_max=256 * KIB)) as caller:
            opening = broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders", credit=10_000))
            call = caller.broker.Consume()
            await call.write(opening)
            await call.initial_metadata()
            for _ in range(30):
                await caller.server.broker.enqueue("orders", bytes(100 * KIB))
            found = 0
            while found < 30:
                found += len((await call.read()).deliveries)
            call.cancel()

    run(main())


def test_room_that_a_failed_cycle_took_is_given_back() -> None:
    """What a cycle leased and never delivered does not count for long."""
    shared = Room(100)
    room = Room(50, shared=shared)
    room.pick(50)
    assert (shared.left, room.unread) == (50, 0)
    room.settle()
    assert (shared.left, min(room.left, 50)) == (100, 50)


def test_a_message_is_counted_with_its_headers_its_state_and_its_errors() -> None:
    """Everything in a delivery that a client can make large counts as unread, not only the payload."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as socket:
            await server.broker.enqueue("orders", bytes(1_000), headers={"a": "b" * 500})
            (message,) = await server.broker.lease("orders")
            await server.broker.set_state(message, bytes(700), etag=None)
            await server.broker.nack(message, error="e" * 300, delay_ms=0)
            socket.may_write.clear()
            socket.call("consume", {"queue": "orders", "credit": 10, "with_state": True})
            await settled(server)
            assert unread(server) == 1_000 + 501 + 700 + 300
            socket.may_write.set()
            assert len((await socket.next(Deliver)).deliveries) == 1

    run(main())
