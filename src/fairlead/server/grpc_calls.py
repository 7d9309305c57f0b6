"""One gRPC call: who makes it, under which correlation id, and how it is refused."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

import grpc
import msgspec

from fairlead.errors import FairleadError, InternalError, InvalidArgument
from fairlead.model.limits import CORRELATION_ID_LENGTH_MAX
from fairlead.model.message import NewMessage
from fairlead.server.callers import Caller
from fairlead.server.doors import Doors
from fairlead.server.grpc_messages import write_error
from fairlead.server.grpc_shapes import Read, Write, parsed
from fairlead.wire.errors import ErrorBody, body_of, grpc_status
from fairlead.wire.grpc import types_pb2
from fairlead.wire.verbs import Enqueue, Forward, Lease, Leased, Shape, Stage

if TYPE_CHECKING:
    from google.protobuf.message import Message

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Pairs: TypeAlias = tuple[tuple[str, str | bytes], ...]
CORRELATION: Final = "x-correlation-id"
_CAUSE_LENGTH_MAX: Final = 1_000
_STATUSES: Final = {status.value[0]: status for status in grpc.StatusCode}
_log = logging.getLogger("fairlead.access")


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is one question and one answer: the verb behind it, and how both are read and written."""

    verb: str
    request: type[Message]
    response: Callable[[], Message]
    read: Read
    write: Write


class Call:
    """A call that is being answered."""

    def __init__(self, doors: Doors, context: Context, name: str) -> None:
        self._doors = doors
        self._context = context
        self._name = name
        self._metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        self.correlation_id = secrets.token_hex(16)

    def read_correlation_id(self) -> None:
        """Take the correlation id that the caller gives, if it gives one.

        Raises:
            InvalidArgument: it is none.
        """
        given = self._metadata.get(CORRELATION)
        if given is None:
            return
        if not given or len(given) > CORRELATION_ID_LENGTH_MAX or not given.isascii() or not given.isprintable():
            raise InvalidArgument(
                f"{CORRELATION} has from 1 to {CORRELATION_ID_LENGTH_MAX} printable ASCII characters."
            )
        self.correlation_id = given

    def caller(self) -> Caller:
        """Return who calls. Pages in a browser can't speak gRPC, so where no keys are asked for anybody may.

        Raises:
            Unauthenticated: a key is asked for, and there is none, or none that is good.
        """
        return self._doors.keys.caller(self._metadata.get("authorization"))

    def trailing(self) -> Pairs:
        """Return the metadata that ends every call."""
        return ((CORRELATION, self.correlation_id),)

    async def refuse(self, error: FairleadError) -> NoReturn:
        """End the call with an error."""
        level = logging.ERROR if isinstance(error, InternalError) else logging.INFO
        extra = {"code": error.code, "correlation_id": self.correlation_id}
        _log.log(level, "%s was refused: %s", self._name, error.code, extra=extra)
        body = body_of(error)
        status = _STATUSES[grpc_status(error.code)]
        details = f"{body.cause[:_CAUSE_LENGTH_MAX]} {body.remedy}"
        await self._context.abort(status, details, self.trailing() + _of_error(body))
        raise error  # not reached: abort raises


def _of_error(body: ErrorBody) -> Pairs:
    cut = msgspec.structs.replace(body, cause=body.cause[:_CAUSE_LENGTH_MAX])  # metadata has room for a few kilobytes
    message = types_pb2.Error()
    write_error(cut, message)
    pairs: Pairs = (
        ("fairlead-code", body.code),
        ("fairlead-remedy", body.remedy),
        ("fairlead-error-bin", message.SerializeToString()),
    )
    if body.retry_after_ms is None:
        return pairs
    return (*pairs, ("fairlead-retry-after-ms", str(body.retry_after_ms)))


async def answer(doors: Doors, method: Method, data: bytes, context: Context) -> bytes:
    """Answer a call."""
    call = Call(doors, context, method.verb)
    answered = await _answered(doors, method, data, call)
    context.set_trailing_metadata(call.trailing())
    return _encoded(method, answered)


async def _answered(doors: Doors, method: Method, data: bytes, call: Call) -> msgspec.Struct:
    try:
        call.read_correlation_id()
        caller = call.caller()
        request = method.read(method.verb, parsed(method.request, data, method.verb))
        _check_wait(doors, request)
        return await doors.call(method.verb, _correlated(request, call.correlation_id), caller)
    except FairleadError as error:
        await call.refuse(error)
    except Exception as error:  # noqa: BLE001 - whoever asks gets an answer
        await call.refuse(Doors.fault(method.verb, error))


def _encoded(method: Method, answered: msgspec.Struct) -> bytes:
    response = method.response()
    method.write(answered, response)
    return response.SerializeToString()


async def hand_over(doors: Doors, method: Method, data: bytes, context: Context) -> None:
    """Answer a call for messages.

    It writes its one answer itself, as a stream of one would, so that it sees when nobody takes it any more. On the
    wire that is the same, but it takes more time here, so other calls do without.
    """
    call = Call(doors, context, method.verb)
    leased = cast("Leased", await _answered(doors, method, data, call))
    deliveries = leased.deliveries
    if len(deliveries) == 1:
        call.correlation_id = deliveries[0].correlation_id
    context.set_trailing_metadata(call.trailing())
    try:
        await context.write(_encoded(method, leased))
    except BaseException:
        if deliveries:
            doors.broker.give_back(deliveries[0].queue, deliveries)  # nobody has got them
        raise


def _check_wait(doors: Doors, request: Shape) -> None:
    most = doors.limits.wait_ms_max
    if isinstance(request, (Lease, Enqueue, Stage)) and request.wait_ms > most:
        raise InvalidArgument(f"wait_ms is at most {most}, not {request.wait_ms}.")


def _correlated(request: Shape, correlation_id: str) -> Shape:
    """Return the request with the correlation id on each message that has none."""
    if isinstance(request, (Enqueue, Stage)):
        return msgspec.structs.replace(request, messages=_with_id(request.messages, correlation_id))
    if isinstance(request, Forward):
        messages = {queue: _with_id(news, correlation_id) for queue, news in request.messages.items()}
        return msgspec.structs.replace(request, messages=messages)
    return request


def _with_id(messages: list[NewMessage], correlation_id: str) -> list[NewMessage]:
    replace = msgspec.structs.replace
    return [
        message if message.correlation_id is not None else replace(message, correlation_id=correlation_id)
        for message in messages
    ]
