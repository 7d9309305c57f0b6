"""Correlation ids over HTTP and gRPC: answers about one message echo its own, and a malformed one is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.grpc_client import called, receipt
from tests.unit.server.local_server import LocalServer, opened, run

HEADER = "x-correlation-id"
REPLACED = "x-correlation-id-replaced"


async def leased(server: LocalServer) -> dict[str, Any]:
    """Lease a message over HTTP, and return its receipt."""
    (delivery,) = (await server.post("queue/dequeue", {"queue": "orders"})).json()["deliveries"]
    return {"id": delivery["id"], "token": delivery["token"]}


async def echoed(server: LocalServer, path: str, **request: Any) -> str:
    """Return the correlation id of the answer to a request about ``orders``."""
    answer = await server.post(f"queue/{path}", {"queue": "orders", **request})
    assert answer.status_code == 200, answer.text
    return str(answer.headers[HEADER])


@pytest.mark.parametrize("given", ["c-1", None])
def test_http_answers_about_a_message_echo_its_correlation_id(given: str | None) -> None:
    """Whatever is asked about it; a message that was given none is named by its own id."""

    async def main() -> None:
        async with opened() as server:
            named = {} if given is None else {"correlation_id": given}
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [named]})
            (result,) = answer.json()["results"]
            name = given or result["id"]
            assert answer.headers[HEADER] == result["correlation_id"] == name
            held = await leased(server)
            assert await echoed(server, "extend", receipts=[held]) == name
            assert await echoed(server, "state/put", receipt=held, state="czE=") == name
            assert await echoed(server, "state/get", id=held["id"]) == name
            assert await echoed(server, "get", id=held["id"]) == name
            assert await echoed(server, "explain", id=held["id"]) == name
            assert await echoed(server, "nack", receipts=[held], delay_ms=0) == name
            assert await echoed(server, "ack", receipts=[await leased(server)]) == name
            await server.post("queue/enqueue", {"queue": "orders", "messages": [named]})
            held = await leased(server)
            forwarded = await echoed(server, "forward", receipt=held, messages={"orders": [{}]})
            assert forwarded == (given or held["id"])
            (view,) = (await server.post("queue/peek", {"queue": "orders"})).json()["messages"]
            assert view["correlation_id"] == forwarded
            assert await echoed(server, "cancel", ids=[view["id"]]) == forwarded

    run(main())


def test_an_answer_about_several_messages_has_the_id_of_the_call() -> None:
    """Each result has that of its own message."""

    async def main() -> None:
        async with opened() as server:
            body = {"queue": "orders", "messages": [{"correlation_id": "c-1"}, {}]}
            answer = await server.post("queue/enqueue", body, x_correlation_id="call-1")
            assert answer.headers[HEADER] == "call-1"
            assert [result["correlation_id"] for result in answer.json()["results"]] == ["c-1", "call-1"]
            receipts = [await leased(server), await leased(server)]
            answer = await server.post("queue/ack", {"queue": "orders", "receipts": receipts})
            assert len(answer.headers[HEADER]) == 32
            assert [result["correlation_id"] for result in answer.json()["results"]] == ["c-1", "call-1"]

    run(main())


@pytest.mark.parametrize("given", [b"a" * 129, b"a\tb", b"\xe9", b""])
def test_http_replaces_a_malformed_correlation_id(given: bytes) -> None:
    """The request goes on, the answer says so, and all messages of the call have the new one in common."""

    async def main() -> None:
        async with opened() as server:
            body = {"queue": "orders", "messages": [{}, {}]}
            answer = await server.http.post("/v1/queue/enqueue", json=body, headers={HEADER.encode(): given})
            assert answer.status_code == 200
            assert answer.headers[REPLACED] == "not 1 to 128 printable ASCII characters"
            name = answer.headers[HEADER]
            assert len(name) == 32
            assert [result["correlation_id"] for result in answer.json()["results"]] == [name, name]

    run(main())


def test_a_sound_correlation_id_is_not_reported_as_replaced() -> None:
    """Neither if it was given nor if it was left out, in answers and refusals."""

    async def main() -> None:
        async with opened() as server:
            for headers in ({}, {HEADER: "c-1"}):
                for path in ("queue/stats", "queue/nothing"):
                    answer = await server.http.post(f"/v1/{path}", json={"queue": "orders"}, headers=headers)
                    assert REPLACED not in answer.headers

    run(main())


def test_grpc_answers_about_a_message_echo_its_correlation_id() -> None:
    """In the metadata of the answer, and in the results."""

    async def main() -> None:
        async with called() as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(correlation_id="c-1")
            enqueue = caller.broker.Enqueue(request)
            assert (await enqueue).results[0].correlation_id == "c-1"
            (delivery,) = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries
            extend = caller.broker.Extend(broker.ExtendRequest(queue="orders", receipts=[receipt(delivery)]))
            assert (await extend).results[0].correlation_id == "c-1"
            put = caller.broker.SetState(broker.SetStateRequest(queue="orders", receipt=receipt(delivery), state=b"s"))
            assert (await put).correlation_id == "c-1"
            ack = caller.broker.Ack(broker.AckRequest(queue="orders", receipts=[receipt(delivery)]))
            assert (await ack).results[0].correlation_id == "c-1"
            for call in (enqueue, extend, put, ack):
                assert dict(await call.trailing_metadata())[HEADER] == "c-1"

    run(main())


@pytest.mark.parametrize("given", ["", "x" * 129])
def test_grpc_replaces_a_malformed_correlation_id(given: str) -> None:
    """The call is carried out, and its metadata says what happened."""

    async def main() -> None:
        async with called() as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add()
            call = caller.broker.Enqueue(request, metadata=((HEADER, given),))
            (result,) = (await call).results
            metadata = dict(await call.trailing_metadata())
            assert metadata[HEADER] == result.correlation_id != result.id
            assert metadata[REPLACED] == "not 1 to 128 printable ASCII characters"

    run(main())
