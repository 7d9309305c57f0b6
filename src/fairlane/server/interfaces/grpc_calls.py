"""One gRPC call: its caller, its correlation id, and how it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast
from urllib.parse import unquote

import grpc
import msgspec

from fairlane.broker.waiting.room import ALWAYS_BYTES, Room
from fairlane.errors import FairlaneError, QueueElsewhere, Unauthenticated
from fairlane.gateway.caller import ANYBODY, Caller
from fairlane.gateway.context import CallContext
from fairlane.model.trace import TRACEPARENT, TRACESTATE, trace_of
from fairlane.server.access_log import DISCONNECTED, OK
from fairlane.server.addresses import block_of
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.correlation import FAULT, HEADER, REPLACED, CallCorrelation, echoed
from fairlane.server.interfaces.grpc_messages import write_error
from fairlane.server.interfaces.grpc_reads import Context, MessageReads
from fairlane.server.interfaces.grpc_shapes import Read, Write, parsed
from fairlane.verbs.errors import ErrorBody, body_of
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.status import WATCHING
from fairlane.verbs.table import VERBS
from fairlane.wire.errors import grpc_status
from fairlane.wire.grpc import types_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

Pairs: TypeAlias = tuple[tuple[str, str | bytes], ...]
_CAUSE_LENGTH_MAX: Final = 1_000
_STATUSES: Final = {status.value[0]: status for status in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Method:
    """A unary method: the verb behind it, and how its request is read and its answer written."""

    verb: str
    request: type[Message]
    response: Callable[[], Message]
    read: Read
    write: Write


class Call:
    """A call in progress."""

    def __init__(self, server: ServerContext, context: Context, name: str) -> None:
        self._server = server
        self._context = context
        self._name = name
        self._metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        self.correlation = CallCorrelation(self._metadata.get(HEADER))
        self.known = ANYBODY
        """The caller, once it is authenticated."""
        self.asked: object = None
        """The request, once it is read."""
        self._begun_s = perf_counter()

    def part(self, name: str) -> Call:
        """Return a request that is part of the call, as a call of its own for the access log."""
        part = Call(self._server, self._context, name)
        part.known = self.known
        return part

    @property
    def _address(self) -> str:
        return _address_of(self._context.peer())

    def context(self) -> CallContext:
        """Return the context of the call: correlation id and trace."""
        trace = trace_of(self._metadata.get(TRACEPARENT), self._metadata.get(TRACESTATE))
        return CallContext(self.correlation.id if self.correlation.is_given else None, trace)

    def caller(self) -> Caller:
        """Return the caller. Web pages cannot speak gRPC, so without authentication there is no origin to check.

        Raises:
            Unauthenticated: the server requires an API key, and the call has none or an invalid one.
            RateLimited: too many calls from its address had no valid API key.
        """
        try:
            return self._server.api_keys.caller(self._metadata.get("authorization"))
        except Unauthenticated as error:
            self._server.count_failure(self._address, error)
            raise

    def admit(self, caller: Caller) -> None:
        """Count a request against the caller's rate limit. Raises RateLimited if the caller is above its limit."""
        if self._server.rates is not None:
            self._server.admit(caller, self._address)

    def begin(self, caller: Caller) -> None:
        """Count the call among those that the caller has in progress, until it ends.

        Raises TooManyConnections if the caller has as many as it may.
        """
        end = self._server.grpc_calls.begin(caller, self.holder(caller), self._context.peer())
        self._context.add_done_callback(cast("Any", lambda _: end()))

    async def message(self, reads: MessageReads, caller: Caller) -> bytes:
        """Return the message of the call. Raises InvalidArgument or WaitTimedOut if it does not come."""
        return await reads.read(self._context, self.holder(caller))

    async def room_for(self, data: bytes) -> Room:
        """Return the room in which a large answer is counted until it is sent, or end the call if there is none."""
        room = self._server.room(self.known)
        if not room.takes(len(data)):
            await self.refuse(self._server.limits.too_much_unread())
        room.add(len(data))
        return room

    def holder(self, caller: Caller) -> str:
        """Return whom a wait, or a message that is being received, counts against."""
        return caller.id or block_of(self._address)

    def trailing(self) -> Pairs:
        """Return the metadata that ends every call."""
        own = (HEADER, self.correlation.id)
        return (own, (REPLACED, FAULT)) if self.correlation.is_replaced else (own,)

    def log(self, status: str = OK) -> None:
        """Add the call to the access log, if there is one."""
        access = self._server.access
        if access is not None:
            access.note(
                "grpc",
                self._name,
                self._begun_s,
                caller=self.known,
                address=self._address,
                request=self.asked,
                status=status,
                correlation_id=self.correlation.id,
            )

    async def refuse(self, error: FairlaneError) -> NoReturn:
        """End the call with an error."""
        self.log(error.code)
        self._server.tally.errors[error.code] += 1
        self._server.refusals.note(
            self._name, error, caller=self.known, address=self._address, correlation_id=self.correlation.id
        )
        body = body_of(error)
        if isinstance(error, QueueElsewhere):
            body = msgspec.structs.replace(body, at=self._server.gateway.grpc_address(error.at) or "")
        status = _STATUSES[grpc_status(error.code)]
        details = f"{body.cause[:_CAUSE_LENGTH_MAX]} {body.remedy}"
        await self._context.abort(status, details, self.trailing() + _of_error(body))
        raise error  # not reached: abort raises


def _address_of(peer: str) -> str:
    """Return the address in what gRPC calls a peer, such as ``ipv4:127.0.0.1:50123`` or ``ipv6:%5B::1%5D:50123``."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")


def _of_error(body: ErrorBody) -> Pairs:
    cut = msgspec.structs.replace(body, cause=body.cause[:_CAUSE_LENGTH_MAX])  # metadata holds a few kilobytes
    message = types_pb2.Error()
    write_error(cut, message)
    pairs: Pairs = (
        ("fairlane-code", body.code),
        ("fairlane-remedy", body.remedy),
        ("fairlane-error-bin", message.SerializeToString()),
    )
    if body.retry_after_ms is None:
        return pairs
    return (*pairs, ("fairlane-retry-after-ms", str(body.retry_after_ms)))


async def answer(
    server: ServerContext, method: Method, reads: MessageReads, _requests: object, context: Context
) -> bytes:
    """Answer a call."""
    call = Call(server, context, method.verb)
    answered = await _answered(server, method, reads, call)
    context.set_trailing_metadata(call.trailing())
    data = _encoded(method, answered)
    if len(data) > ALWAYS_BYTES:
        room = await call.room_for(data)
        context.add_done_callback(cast("Any", lambda _: room.clear()))
    call.log()
    return data


async def _answered(server: ServerContext, method: Method, reads: MessageReads, call: Call) -> msgspec.Struct:
    try:
        caller = call.known = call.caller()
        call.begin(caller)
        call.admit(caller)
        server.check_before_reading(VERBS[method.verb], caller)
        data = await call.message(reads, caller)
        request = server.limits.shortened(method.read(method.verb, parsed(method.request, data, method.verb)))
        call.asked = request
        if isinstance(request, (Lease, *WATCHING)) and request.wait_ms:
            with server.waiters.counted(call.holder(caller)):
                answered = await server.call(request, caller, call.context())
        else:
            answered = await server.call(request, caller, call.context())
    except FairlaneError as error:
        await call.refuse(error)
    except Exception as error:  # noqa: BLE001 - every call gets an answer
        await call.refuse(server.refusal(method.verb, error))
    except asyncio.CancelledError:
        call.log(DISCONNECTED)
        raise
    else:
        call.correlation.id = echoed(request, answered) or call.correlation.id
        return answered


def _encoded(method: Method, answered: msgspec.Struct) -> bytes:
    response = method.response()
    method.write(answered, response)
    return response.SerializeToString()


async def hand_over(
    server: ServerContext, method: Method, reads: MessageReads, _requests: object, context: Context
) -> None:
    """Answer a lease.

    It writes its only answer as a stream would, because that reveals a client that is gone, and its messages can go
    back at once. The bytes on the wire are the same; other verbs don't need it and take the faster unary path.
    """
    call = Call(server, context, method.verb)
    leased = cast("LeasedMessages", await _answered(server, method, reads, call))
    context.set_trailing_metadata(call.trailing())
    try:
        data = _encoded(method, leased)
        room = await call.room_for(data) if len(data) > ALWAYS_BYTES else None
        try:
            await context.write(data)
        finally:
            if room is not None:
                room.clear()
        call.log()
    except BaseException:
        server.give_back(call.known, leased)  # the client did not receive them
        raise
