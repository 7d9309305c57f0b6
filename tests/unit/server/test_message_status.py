"""Status and results over a server: who may ask, the route for people, waits, and streams that are told of a cancel."""

from __future__ import annotations

import asyncio
import base64

import pytest

from fairlane.errors import FairlaneError
from fairlane.verbs.keys import Grant
from fairlane.verbs.status import GetResult
from fairlane.wire.frames import Answer, Cancelled, Deliver

from .local_server import connected, opened, run

TENANT = Grant(right="produce", queues="orders", keys=("acme",))


@pytest.mark.parametrize("is_done", [False, True])
def test_a_tenant_sees_its_own_messages_and_no_others(is_done: bool) -> None:
    """A grant with fairness keys covers status and result of messages of these keys, with and without a queue."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.update_queue("orders", {"result_ttl_ms": 60_000})
            ids = [await server.broker.enqueue("orders", b"x", fairness_key=key) for key in ("acme", "bigcorp")]
            if is_done:
                for delivery in await server.broker.lease("orders", 2):
                    await server.broker.ack(delivery, result=b"r")
            tenant, other = await server.key(TENANT), await server.key(Grant(right="produce", queues="other"))
            consumer = await server.key(Grant(right="consume", queues="orders"))
            for path in ("message/status", "message/result"):
                for named in ({}, {"queue": "orders"}):
                    asked = [{"id": message_id, **named} for message_id in ids]
                    for key, expected in ((tenant, [200, 403]), (consumer, [200, 200]), (other, [403, 403])):
                        found = [(await server.post(path, body, key=key)).status_code for body in asked]
                        assert found == expected

    run(main())


def test_the_route_of_a_message_says_how_it_ended() -> None:
    """GET takes the id in the path and the rest in the query; the journal answers for a message without a time."""

    async def main() -> None:
        async with opened() as server:
            message_id = await server.broker.enqueue("orders", b"x", fairness_key="acme")
            assert (await server.http.get(f"/v1/messages/{message_id}")).json()["status"] == "waiting"
            (delivery,) = await server.broker.lease("orders")
            await server.broker.ack(delivery)
            answer = (await server.http.get(f"/v1/messages/{message_id}?queue=orders&wait_ms=0")).json()
            assert (answer["status"], answer["fairness_key"], answer["attempts"]) == ("done", "acme", 1)
            assert (await server.http.get(f"/v1/messages/{'0' * 16}")).status_code == 404
            assert (await server.http.get(f"/v1/messages/{message_id}?wait_ms=soon")).status_code == 400

    run(main())


def test_a_long_poll_over_http_ends_with_the_message() -> None:
    """The answer has the result as base64."""

    async def main() -> None:
        async with opened() as server:
            message_id = await server.broker.enqueue("orders", b"x", result_ttl_ms=60_000)
            waiting = asyncio.ensure_future(server.post("message/result", {"id": message_id, "wait_ms": 60_000}))
            (delivery,) = await server.broker.lease("orders")
            await server.broker.ack(delivery, result=b"42")
            answer = (await waiting).json()
            assert (answer["status"], base64.b64decode(answer["result"])) == ("done", b"42")

    run(main())


def test_a_channel_is_told_of_cancelled_messages() -> None:
    """The frame names the messages that the consumer held, and no others."""

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            ids = [await server.broker.enqueue("orders", b"x") for _ in range(3)]
            socket.call("consume", {"queue": "orders", "credit": 2})
            while not isinstance(frame := await socket.frame(), Deliver):
                pass
            held = [delivery.id for delivery in frame.deliveries]
            await server.broker.cancel_many("orders", [held[0], next(each for each in ids if each not in held)])
            while not isinstance(frame := await socket.frame(), Cancelled):
                assert isinstance(frame, (Answer, Deliver))
            assert frame.ids == [held[0]]

    run(main())


def test_those_who_wait_are_refused_when_the_broker_closes() -> None:
    """No caller waits for a broker that is gone."""

    async def main() -> None:
        async with opened() as server:
            message_id = await server.broker.enqueue("orders", b"x")
            waiting = asyncio.ensure_future(server.broker.call(GetResult(id=message_id, wait_ms=600_000)))
            await server.broker.queues()
            await server.broker.close()
            with pytest.raises(FairlaneError):
                await waiting

    run(main())
