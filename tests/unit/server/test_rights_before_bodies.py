"""The rights of a caller are checked before its request is read or decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest

from fairlane.verbs.keys import Grant
from fairlane.verbs.table import PATHS, VERBS
from fairlane.verbs.verb import Right, Verb
from fairlane.wire.frames import Call, Refused, message_of
from fairlane.wire.grpc import broker_pb2
from tests.unit.server.grpc_client import called, refused, trailing
from tests.unit.server.local_server import LocalServer, connected, opened, run

ELSEWHERE = Grant(right="consume", queues="nothing-here")
NO_REQUEST = msgspec.Raw(b"\x05")
"""A number, which is the request of no verb: a call that is refused for another reason was not decoded."""


async def answered(
    server: LocalServer, path: str, key: str | None, *, query: str = "", kind: str = "json"
) -> tuple[int, str]:
    """Send a POST whose body must not be read, and return the status and the code of the answer."""
    headers = [
        (b"host", b"localhost"),
        (b"content-type", f"application/{kind}".encode()),
        (b"content-length", b"999999"),
    ]
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": query.encode()}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body is read")

    async def send(event: Any) -> None:
        sent.append(event)

    await server.http._transport.app(scope, receive, send)  # type: ignore[attr-defined]  # an ASGI transport
    assert (b"connection", b"close") in sent[0]["headers"]
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])["error"]["code"]


def other_than(verb: Verb | None) -> Right:
    """Return a right that is not enough for a verb, or without one for consuming."""
    if verb is not None and verb.about == "message":
        return "observe"  # producers and consumers may ask about messages
    return "produce" if verb is None or verb.right in ("consume", "observe") else "consume"


@pytest.mark.parametrize("path", [*PATHS, "queue/subscribe", "queue/subscribeWithState", "queue/watch"])
def test_over_http_no_body_is_read_of_a_caller_without_the_right(path: str) -> None:
    """A caller without an API key, or without a grant for what the path needs, is refused by the head alone."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            assert await answered(server, f"/v1/{path}", None) == (401, "unauthenticated")
            other = Grant(right=other_than(PATHS.get(path)), queues="*")
            assert await answered(server, f"/v1/{path}", await server.key(other)) == (403, "forbidden")

    run(main())


def test_over_http_the_queue_in_the_query_is_checked_exactly() -> None:
    """A raw enqueue names its queue in the query: a grant for another queue does not get its body read."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="produce", queues="other"))
            found = await answered(server, "/v1/queue/enqueue", key, query="queue=orders", kind="octet-stream")
            assert found == (403, "forbidden")

    run(main())


@pytest.mark.parametrize("verb", [*VERBS, "consume"])
def test_on_the_stream_no_request_is_decoded_of_a_caller_without_the_right(verb: str) -> None:
    """The verb of a call is known before its request is decoded, and refused where no grant has its right."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            other = Grant(right=other_than(VERBS.get(verb)), queues="*")
            async with connected(server, key=await server.key(other)) as socket:
                socket.give(message_of([Call(1, verb, NO_REQUEST)]))
                assert (await socket.next(Refused)).error.code == "forbidden"

    run(main())


def test_over_grpc_no_message_is_read_of_a_caller_without_the_right() -> None:
    """Without an API key, or without a grant, a call is refused although its message never comes."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            key = await caller.server.key(ELSEWHERE)
            method: Any = caller.channel.stream_unary("/fairlane.v1.Broker/Enqueue")

            async def never() -> Any:
                await asyncio.get_running_loop().create_future()
                yield b""

            for metadata, code in (((), "unauthenticated"), ((("authorization", f"Bearer {key}"),), "forbidden")):
                error = await refused(method(never(), metadata=metadata))
                assert trailing(error)["fairlane-code"] == code

    run(main())


def test_reflection_needs_an_api_key_and_health_checks_do_not() -> None:
    """A load balancer may check the health of a server; everything else takes a key, where the server requires one."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            assert await caller.raw("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
            error = await refused(caller.raw("/grpc.health.v1.Health/Check", b"\x0a\xff\xff\x03" + b"x" * 65_535))
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            assert (await refused(caller.raw(path, b"\x3a\x00"))).code() == grpc.StatusCode.UNAUTHENTICATED

    run(main())


def test_a_caller_whose_messages_do_not_come_does_not_hold_up_others() -> None:
    """Sixteen calls of one key that never send their message take four turns, and another key goes on."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            slow, quick = [await caller.server.key(Grant(right="produce")) for _ in range(2)]
            method: Any = caller.channel.stream_unary("/fairlane.v1.Broker/Enqueue")

            async def never() -> Any:
                await asyncio.get_running_loop().create_future()
                yield b""

            calls = [method(never(), metadata=(("authorization", f"Bearer {slow}"),)) for _ in range(16)]
            data = broker_pb2.EnqueueRequest(queue="orders", messages=[{}]).SerializeToString()
            unary: Any = caller.channel.unary_unary("/fairlane.v1.Broker/Enqueue")
            for _ in range(3):
                assert await unary(data, metadata=(("authorization", f"Bearer {quick}"),))
            for call in calls:
                call.cancel()

    run(main())
