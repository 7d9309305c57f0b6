"""Raw payloads: one message as the body of a request or an answer, without base64.

The other fields of a new message are query parameters; those of a delivery are headers.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.model.limits import HEADERS_MAX
from fairlane.model.message import Delivery, NewMessage
from fairlane.model.spelling import did_you_mean
from fairlane.server.context import ServerContext
from fairlane.server.dispatch import decoded
from fairlane.server.interfaces.correlation import echoed
from fairlane.server.interfaces.exchange import JSON, MSGPACK, RAW, Exchange, Gone
from fairlane.server.interfaces.payload_streams import received, send_delivery
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResults

T = TypeVar("T")
HEADER: Final = "header."
TERMS: Final = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "upload", "headers"))
PARAMETERS: Final = ("queue", "wait_ms", *TERMS)
_LISTS: Final = ("fairness_key", "throttles")
_PARAMETERS_MAX: Final = HEADERS_MAX + 64
_DELIVERY_LENGTH_MAX: Final = 8 * 1024
"""Characters of a delivery in a header. Many programs accept no more than twice as much in all headers together."""


async def enqueue(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Enqueue one message whose payload is the body.

    Raises:
        FairlaneError: the message, and so the request, is refused.
    """
    exchange.verb = Enqueue.verb.name
    fields = _fields(exchange.query_string)
    if "queue" not in fields:
        raise InvalidArgument("Missing parameter queue, as in /v1/queue/enqueue?queue=orders.")
    caller.check("produce", fields["queue"])  # before the body is read
    queue, wait_ms = fields.pop("queue"), _converted(fields.pop("wait_ms", 0), int)
    message = _converted(fields, NewMessage)  # also before the body is read: it may be long
    body = await received(server, exchange, caller, queue, message.fairness_key)
    try:
        message = _with(message, payload=body) if isinstance(body, bytes) else _with(message, upload=body.id)
        await _enqueue(server, exchange, caller, Enqueue(queue=queue, messages=[message], wait_ms=wait_ms))
    except BaseException:
        if not isinstance(body, bytes):
            body.abandon()  # no message has taken it
        raise


def _with(message: NewMessage, **content: bytes | str) -> NewMessage:
    return msgspec.structs.replace(message, **content)


async def _enqueue(server: ServerContext, exchange: Exchange, caller: Caller, request: Enqueue) -> None:
    request = server.limits.shortened(request)
    exchange.asked = request
    answer = cast("EnqueueResults", await server.call(request, caller, exchange.context()))
    exchange.correlation.id = echoed(request, answer) or exchange.correlation.id
    await exchange.answer_items(answer)


def _converted(given: Any, kind: type[T]) -> T:  # noqa: ANN401 - texts, for the most part
    return decoded(lambda texts: msgspec.convert(texts, kind, strict=False), given, "raw enqueue")


def _fields(query: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise InvalidArgument(f"Malformed query string: {error}.") from error
    fields: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for name, value in pairs:
        if name.startswith(HEADER):
            headers[name.removeprefix(HEADER)] = value
        elif name in _LISTS:
            fields[name] = (*fields.get(name, ()), value)
        elif name not in PARAMETERS:
            question = did_you_mean(name, PARAMETERS)
            raise InvalidArgument(f"Unknown parameter {name!r:.100}.{question}")
        elif name in fields:
            raise InvalidArgument(f"Parameter {name} is given twice.")
        else:
            fields[name] = value
    return fields | ({"headers": headers} if headers else {})


# ----------------------------------------------------------------------------------------------------------- deliveries


def check_lease(request: Lease) -> None:
    """Raise if a caller that wants the payload as the body asks for more than one body can hold.

    Raises:
        InvalidArgument: it asks for more.
    """
    if request.count != 1:
        raise InvalidArgument(f"{RAW} can hold only one message; count must be 1, not {request.count}.")
    if request.with_state:
        raise InvalidArgument(
            f"{RAW} can't hold workflow state; accept {JSON} or {MSGPACK}, or read the state separately."
        )


async def answer(server: ServerContext, exchange: Exchange, caller: Caller, leased: LeasedMessages) -> None:
    """Answer with the payload of the one message that was leased, or with 204 if there is none.

    A caller that disconnects before it has all of a streamed payload has not got the message, so that goes back.
    """
    if not leased.deliveries:
        await exchange.begin(RAW, status=204)
        await exchange.end()
        return
    delivery = leased.deliveries[0]
    headers = {
        "x-fairlane-id": delivery.id,
        "x-fairlane-token": str(delivery.token),
        "x-fairlane-attempt": str(delivery.attempt),
        "x-fairlane-expires-ms": str(delivery.expires_ms),
        "x-fairlane-delivery": described(delivery),
    }
    if delivery.payload_size is None:
        await exchange.answer_bytes(delivery.payload, RAW, headers=headers)
        return
    try:
        await send_delivery(server, exchange, caller, delivery, headers)
    except Gone:
        server.give_back(caller, leased)
        raise


def described(delivery: Delivery) -> str:
    """Return a delivery without payload and state as ASCII JSON, cut if it is too long for a header."""
    fields = msgspec.to_builtins(delivery)
    for name in ("payload", "state"):
        fields.pop(name, None)
    text = json.dumps(fields, separators=(",", ":"))
    if len(text) <= _DELIVERY_LENGTH_MAX:
        return text
    for name in ("headers", "errors", "dead", "fairness_key"):
        fields.pop(name, None)
    return json.dumps(fields | {"is_cut": True}, separators=(",", ":"))
