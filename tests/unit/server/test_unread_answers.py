"""Answers of every kind that a client does not read are bounded, not only messages."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.model.limits import PIECE_BYTES
from fairlane.model.message import NewMessage
from fairlane.server.limits import CallLimits
from fairlane.wire.frames import Refused
from tests.unit.server.local_server import LocalServer, connected, opened, run
from tests.unit.server.test_payload_streams import PAYLOAD, SMALL, sent
from tests.unit.server.test_unread import KIB, LIMITS, Slow, settled, unread


async def with_large_answers(server: LocalServer, size: int) -> dict[str, dict[str, object]]:
    """Return requests whose answers have about this size, by verb."""
    lasting = {"result_ttl_ms": 600_000}
    await server.broker.enqueue_many("orders", [NewMessage(payload=bytes(size), **lasting) for _ in range(2)])  # type: ignore[arg-type]  # of its own type
    done, held = await server.broker.lease("orders", 2)
    await server.broker.ack(done, result=bytes(size))
    await server.broker.set_state(held, bytes(size), etag=None)
    await server.broker.create_queue("claimed")
    await server.broker.enqueue("claimed", bytes(size))
    consumer = await server.broker.register_consumer("claimed", "etl")
    await server.broker.claim("claimed", "etl", epoch=consumer.epoch, done=0)
    return {
        "get_state": {"queue": "orders", "id": held.id},
        "read_payload": {"queue": "orders", "id": held.id},
        "get": {"queue": "orders", "id": held.id, "with_body": True},
        "result": {"queue": "orders", "id": done.id},
        "read_claim": {"queue": "claimed", "consumer": "etl", "claim": 1},
    }


@pytest.mark.parametrize("verb", ["get_state", "read_payload", "get", "result", "read_claim"])
def test_large_answers_of_every_kind_are_counted(verb: str) -> None:
    """Of eight calls at once whose answers are large and unread, those without room beside the first get an error."""

    async def main() -> None:
        async with opened(limits=LIMITS) as server, connected(server, is_direct=True) as socket:
            request = (await with_large_answers(server, 600 * KIB))[verb]
            socket.may_write.clear()
            for _ in range(8):
                socket.call(verb, request)
            await settled(server)
            assert 600 * KIB <= unread(server) <= 601 * KIB
            socket.may_write.set()
            frames = [await socket.frame() for _ in range(8)]
            errors = [frame.error.code for frame in frames if isinstance(frame, Refused)]
            assert errors == ["too_much_unread"] * 7
            assert unread(server) == 0

    run(main())


def test_results_that_are_waited_for_do_not_stop_the_reading() -> None:
    """A connection that waits for many results at once is read from, and gets each of them."""

    async def main() -> None:
        async with opened() as server, connected(server, is_direct=True) as socket:
            news = [NewMessage(result_ttl_ms=600_000) for _ in range(20)]
            for message_id in await server.broker.enqueue_many("orders", news):
                socket.call("result", {"queue": "orders", "id": message_id, "wait_ms": 60_000})
            await settled(server)
            for message in await server.broker.lease("orders", 20):
                await server.broker.ack(message, result=b"done")
            frames = [await socket.frame() for _ in range(20)]
            assert not [frame for frame in frames if isinstance(frame, Refused)]

    run(main())


def test_raw_payloads_that_are_not_read_are_bounded_in_all() -> None:
    """Of ten clients that read nothing of a large payload, as many are served as the pieces of each have room for."""

    async def main() -> None:
        async with opened(limits=CallLimits(unread_total_bytes_max=4 * PIECE_BYTES), settings=SMALL) as server:
            message_id = (await sent(server)).json()["results"][0]["id"]
            request = {"queue": "orders", "id": message_id}
            clients = [Slow() for _ in range(10)]
            raw = "application/octet-stream"
            asking = [
                asyncio.create_task(each.ask(server, "/v1/queue/payload", request, accept=raw)) for each in clients
            ]
            await settled(server)
            served = [client for client in clients if client.sent[0]["status"] == 200]
            assert len(served) == 4
            assert unread(server) == 4 * PIECE_BYTES
            for client in clients:
                client.may_take.set()
            await asyncio.gather(*asking)
            for client in served:
                assert b"".join(event["body"] for event in client.sent[1:]) == PAYLOAD
            assert unread(server) == 0

    run(main())
