"""The stream: one WebSocket, msgpack frames of ``wire.frames``, many calls in flight, deliveries as they come.

One task reads frames and starts a task for each call; one task sends (see ``outbox``). Four things bound what a
connection can make the server hold: calls in flight, of which there are at most ``calls_max`` before reading stops;
answers that a slow client does not read, which stop the reading too; the credit of channels; and leases that wait for
messages, of which there are at most ``calls_max`` before more are refused. Those do not stop the reading, since they
may wait for long, and who does not read does not see that a client has gone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fairlead.errors import FairleadError, InvalidArgument, RouteNotFound, TooManyWaiters, Unauthenticated
from fairlead.server.asgi import Receive, Scope, Send, address_of, header
from fairlead.server.callers import Caller
from fairlead.server.channels import Channels
from fairlead.server.dispatch import decoded
from fairlead.server.doors import Doors
from fairlead.server.origin import Origin
from fairlead.server.outbox import Outbox
from fairlead.wire.errors import HTTP_STATUS, ErrorAnswer, body_of
from fairlead.wire.frames import CONSUME, STOP, SUBPROTOCOL, Call, Consume, Refused, Stop, calls_of, is_many
from fairlead.wire.trace import trace_of
from fairlead.wire.verbs import VERBS, Lease, Leased, Shape

PATH: Final = "/v1/stream"
_UNSUPPORTED, _MALFORMED, _POLICY, _RESTART, _TRY_LATER = 1003, 1007, 1008, 1012, 1013
_REASON_BYTES_MAX: Final = 120
_RETRY_AFTER_MS: Final = 1_000
_LOOKS: Final = frozenset(("get", "peek", "read_journal"))
_LOOKS_MAX: Final = 8
"""How many calls may be answered at once that cost little to ask, whose answers may be large, and which never wait."""
_SHAPES: Final[dict[str, type[Shape]]] = {name: verb.request for name, verb in VERBS.items()} | {
    CONSUME: Consume,
    STOP: Stop,
}
_DECODERS: Final = {name: msgspec.msgpack.Decoder(shape).decode for name, shape in _SHAPES.items()}


async def serve_stream(doors: Doors, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket from its handshake to its end."""
    await receive()  # websocket.connect
    try:
        if scope["path"] != PATH:
            raise RouteNotFound(f"The stream is at {PATH}, not at {scope['path']!r:.150}.")
        caller = doors.caller(scope)
        if SUBPROTOCOL not in scope["subprotocols"]:
            raise InvalidArgument(f"The stream asks for the subprotocol {SUBPROTOCOL!r}.")
    except FairleadError as error:
        await _refuse(error, scope, send)
        return
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
    if doors.tally.streams >= doors.limits.connections_max:
        await _close(send, _TRY_LATER, f"There are {doors.tally.streams} connections; connections_max is reached.")
        return
    doors.tally.streams += 1
    try:
        await _Stream(doors, caller, scope, receive, send).run()
    finally:
        doors.tally.streams -= 1


async def _refuse(error: FairleadError, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _POLICY, "reason": error.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": HTTP_STATUS[error.code], "headers": headers})
    body = msgspec.json.encode(ErrorAnswer(error=body_of(error)))
    await send({"type": "websocket.http.response.body", "body": body})


async def _close(send: Send, code: int, reason: str) -> None:
    short = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
    await send({"type": "websocket.close", "code": code, "reason": short})


class _Stream:
    """One connection."""

    def __init__(self, doors: Doors, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        self._doors = doors
        self._caller = caller
        self._authorization = header(scope, b"authorization")
        self._address = address_of(scope)
        self._receive = receive
        self._send = send
        self._outbox = Outbox(send)
        self._channels = Channels(doors, self._outbox)
        self._calls: set[asyncio.Task[None]] = set()
        self._one_done = asyncio.Event()
        self._calls_max = doors.limits.calls_max
        self._waits = 0
        self._looks = 0

    async def run(self) -> None:
        """Read and answer until the connection ends; then let go of everything it had."""
        reading, sending = asyncio.create_task(self._read()), asyncio.create_task(self._outbox.run())
        draining, watching = asyncio.create_task(self._drain()), asyncio.create_task(self._watch_key())
        try:
            await asyncio.wait((reading, sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = (reading, sending, draining, watching, *self._calls)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self._let_go())

    async def _drain(self) -> None:
        await self._doors.draining.wait()
        self._channels.end_all()
        await self._doors.closing.wait()
        await _close(self._send, _RESTART, "The server is going down.")

    async def _watch_key(self) -> None:
        await self._doors.keys.ended(self._caller)
        await _close(self._send, _POLICY, "The key has been revoked, or has expired.")

    async def _let_go(self) -> None:
        self._doors.lessees.discard(self)
        await self._channels.close_all()
        for frame in self._outbox.unsent():
            if isinstance(frame, tuple) and isinstance(frame[2], Leased) and frame[2].deliveries:
                deliveries = frame[2].deliveries
                self._doors.broker.give_back(deliveries[0].queue, deliveries)

    # --------------------------------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        receive, outbox = self._receive, self._outbox
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            data = event.get("bytes")
            if data is None:
                await _close(self._send, _UNSUPPORTED, "The stream speaks msgpack, in binary messages.")
                return
            try:
                calls = self._calls_in(data)
            except (msgspec.DecodeError, RecursionError) as error:
                await _close(self._send, _MALFORMED, f"A message is no frame: {error}.")
                return
            except Unauthenticated as error:
                await _close(self._send, _POLICY, error.cause)
                return
            for call in calls:
                self._start(call)
                while self._looks >= _LOOKS_MAX or len(self._calls) - self._waits >= self._calls_max:
                    self._one_done.clear()
                    await self._one_done.wait()
                if not outbox.has_room:
                    await outbox.wait_for_room()

    def _calls_in(self, data: bytes) -> list[Call]:
        if is_many(data):
            self._outbox.sends_many = True
        calls = calls_of(data)
        if self._doors.keys.is_required:
            self._caller = self._doors.keys.caller(self._authorization)  # it may have been revoked, or have expired
        return calls

    def _start(self, call: Call) -> None:
        task = asyncio.create_task(self._answer(call))
        self._calls.add(task)
        if call.verb in _LOOKS:
            self._looks += 1
            task.add_done_callback(self._looked)
        task.add_done_callback(self._done)

    def _looked(self, _task: asyncio.Task[None]) -> None:
        self._looks -= 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._one_done.set()

    # ------------------------------------------------------------------------------------------------------- answering

    async def _answer(self, call: Call) -> None:
        try:
            answer = await self._run(call)
        except FairleadError as error:
            self._outbox.put(Refused(call.number, body_of(error)))
        else:
            if answer is not None:
                self._outbox.put((1, call.number, answer))

    async def _run(self, call: Call) -> Any:  # noqa: ANN401 - what a verb answers depends on the verb
        name = call.verb
        decode = _DECODERS.get(name)
        if decode is None:
            raise RouteNotFound(f"There is no verb {name!r:.100}.")
        request = decoded(decode, call.request, name)
        if self._doors.rates is not None:
            self._doors.admit(self._caller, self._address)
        if isinstance(request, Consume):
            self._doors.tally.calls[name] += 1
            self._doors.check_open(name)
            self._caller.check("consume", request.queue)
            await self._channels.open(call.number, request)
            return None
        if isinstance(request, Stop):
            return await self._channels.stop(request)
        if isinstance(request, Lease):
            self._doors.lessees.add(self)
        if isinstance(request, Lease) and request.wait_ms:
            return await self._wait(request, _origin_of(call))
        return await self._doors.call(name, request, self._caller, _origin_of(call))

    async def _wait(self, request: Lease, origin: Origin | None) -> Any:  # noqa: ANN401 - see _run
        if self._waits >= self._calls_max:
            cause = f"{self._waits} leases wait on this connection already; calls_max is {self._calls_max}."
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        self._waits += 1
        self._one_done.set()
        try:
            return await self._doors.call("lease", request, self._caller, origin)
        finally:
            self._waits -= 1


def _origin_of(call: Call) -> Origin | None:
    given = call.trace
    return None if given is None else Origin(None, trace_of(given.traceparent, given.tracestate))
