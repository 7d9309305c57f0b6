"""The stream: one WebSocket, msgpack frames of ``wire.frames``, many calls in flight, deliveries as they come.

Where the server has a short way (see ``websocket``), calls are read and answers written by plain calls of functions;
elsewhere one task reads and one sends. The verbs that are asked most need no task of their own: they are asked as they
are read, and answered by the turn that makes them durable. Every other call is a task. Calls of one connection are
asked in the order in which they came, whichever way each goes.

Four things bound what a connection can make the server hold: calls in flight, of which there are at most ``calls_max``
before reading stops; answers that a slow client does not read, which stop the reading too; the credit of channels; and
leases that wait for messages, of which there are at most ``calls_max`` before more are refused. Those do not stop the
reading, since they may wait for long, and who does not read does not see that a client has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import msgspec

from fairlane.errors import FairlaneError, InvalidArgument, RouteNotFound, TooManyWaiters, Unauthenticated
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import Origin
from fairlane.server.dispatch import decoded
from fairlane.server.doors import Doors
from fairlane.server.interfaces.asgi import SHORT_WAY, Receive, Scope, Send, ShortWay, address_of, header
from fairlane.server.interfaces.channels import Channels
from fairlane.server.interfaces.outbox import Frame, Outbox, QuickOutbox
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape
from fairlane.wire.errors import HTTP_STATUS, ErrorAnswer
from fairlane.wire.frames import CONSUME, STOP, SUBPROTOCOL, Call, Consume, Refused, Stop, calls_of, is_many
from fairlane.wire.headers import FOLLOWS
from fairlane.wire.trace import trace_of

PATH: Final = "/v1/stream"
_UNSUPPORTED, _MALFORMED, _POLICY, _RESTART, _TRY_LATER = 1003, 1007, 1008, 1012, 1013
_REASON_BYTES_MAX: Final = 120
_RETRY_AFTER_MS: Final = 1_000
_FOLLOWED: Final = Origin(follows=True)
_LOOKS: Final = frozenset(name for name, verb in VERBS.items() if verb.is_look)
_QUICK: Final = frozenset(name for name, verb in VERBS.items() if verb.is_followed)
"""The verbs of producers and consumers, whose answers need no task."""
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
    except FairlaneError as error:
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


async def _refuse(error: FairlaneError, scope: Scope, send: Send) -> None:
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
        self.doors = doors
        self.is_over = False
        self._caller = caller
        self._authorization = header(scope, b"authorization")
        self._address = address_of(scope)
        self._receive = receive
        self._send = send
        self._way: ShortWay | None = scope.get("extensions", {}).get(SHORT_WAY)
        self._outbox = Outbox(send)
        if self._way is not None:
            soon = doors.broker.call_after_answers
            self._outbox = QuickOutbox(send, self._way, call_soon=soon, on_room=self._go_on)
        self._channels = Channels(doors, self._outbox)
        self._groups = doors.groups
        self._follows = header(scope, FOLLOWS) is not None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbegun = 0
        self._calls = 0
        self._calls_max = doors.limits.calls_max
        self._waits = 0
        self._looks = 0
        self._pending: deque[Call] = deque()
        self._is_beginning = False
        self._one_done = asyncio.Event()

    async def run(self) -> None:
        """Read and answer until the connection ends; then let go of everything it had."""
        reading, sending = asyncio.create_task(self._read()), asyncio.create_task(self._outbox.run())
        draining, watching = asyncio.create_task(self._drain()), asyncio.create_task(self._watch_key())
        if isinstance(self._outbox, QuickOutbox):
            self._outbox.way.take(self._on_message, self._outbox.flush)
        try:
            await asyncio.wait((reading, sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_over = True
            tasks = (reading, sending, draining, watching, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self._let_go())

    async def _drain(self) -> None:
        await self.doors.draining.wait()
        self._channels.end_all()
        await self.doors.closing.wait()
        await self._close(_RESTART, "The server is going down.")

    async def _close(self, code: int, reason: str) -> None:
        if isinstance(self._outbox, QuickOutbox):
            self._outbox.flush()
        await _close(self._send, code, reason)

    async def _watch_key(self) -> None:
        await self.doors.keys.ended(self._caller)
        await _close(self._send, _POLICY, "The key has been revoked, or has expired.")

    async def _let_go(self) -> None:
        self.doors.lessees.discard(self)
        await self._channels.close_all()
        for frame in self._outbox.unsent():
            if isinstance(frame, tuple) and isinstance(frame[2], LeasedMessages):
                self.doors.give_back(self._caller, frame[2])

    # --------------------------------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        """Read what comes the long way: all of it where there is no other, and else what is no binary message."""
        outbox = self._outbox
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                return
            data = event.get("bytes")
            if data is None:
                await self._close(_UNSUPPORTED, "The stream speaks msgpack, in binary messages.")
                return
            refusal = self._taken(data)
            if refusal is not None:
                await self._close(*refusal)
                return
            while self._pending or self._is_full():
                if not outbox.has_room:
                    await outbox.wait_for_room()
                    self._begin_pending()
                else:
                    self._one_done.clear()
                    await self._one_done.wait()

    def _on_message(self, data: bytes) -> None:
        """Take a message that comes the short way."""
        if self.is_over:
            return
        refusal = self._taken(data)
        if refusal is not None:
            self.is_over = True
            self._tasks.add(asyncio.create_task(self._close(*refusal)))  # that ends the reading
        elif (self._pending or self._is_full()) and self._way is not None:
            self._way.hold()

    def _is_full(self) -> bool:
        return self._calls - self._waits >= self._calls_max or self._looks >= _LOOKS_MAX or not self._outbox.has_room

    def _go_on(self) -> None:
        """Begin what is pending and read on, if that was what it waited for."""
        if self._pending:
            self._begin_pending()
        self._one_done.set()
        if self._way is not None and not self._pending and not self._is_full():
            self._way.go_on()

    def _taken(self, data: bytes) -> tuple[int, str] | None:
        """Begin the calls in a message, or return why the connection has to end."""
        try:
            calls = calls_of(data)
            if self.doors.keys.is_required:  # it may have been revoked, or have expired
                self._caller = self.doors.keys.caller(self._authorization)
        except (msgspec.DecodeError, RecursionError) as error:
            return _MALFORMED, f"A message is no frame: {error}."
        except Unauthenticated as error:
            return _POLICY, error.cause
        if not self._outbox.sends_many and is_many(data):
            self._outbox.sends_many = True
        self._pending.extend(calls)
        self._begin_pending()
        return None

    def _begin_pending(self) -> None:
        """Begin calls in the order in which they came, while there may be more of them."""
        if self._is_beginning:  # one that was refused at once has ended
            return
        self._is_beginning = True
        while self._pending and not self._is_full() and not self.is_over:
            call = self._pending.popleft()
            self._calls += 1
            # What came before is to be asked before; and a trace is followed by a call that is a task.
            is_quick = call.verb in _QUICK and not self._unbegun and call.trace is None and self.doors.spans is None
            (self._ask if is_quick else self._begin)(call)
        self._is_beginning = False

    # ----------------------------------------------------------------------------------------------------- quick calls

    def _ask(self, call: Call) -> None:
        """Begin a call whose answer comes by itself."""
        reply = _Reply(self, call.number, call.verb)
        try:
            request: Any = decoded(_DECODERS[call.verb], call.request, call.verb)
            if self._groups is not None:
                served = self._groups.served_as(request.queue)
                if served is None:  # it takes a while to find out where it is
                    self._begin(call)
                    return
                if served != request.queue:
                    request = msgspec.structs.replace(request, queue=served)
            if self.doors.rates is not None:
                self.doors.admit(self._caller, self._address)
            if isinstance(request, Lease):
                self.doors.lessees.add(self)
                if request.wait_ms:
                    self._begin_waiting()
                    reply.waits = True
            self.doors.ask(call.verb, request, self._caller, reply)
        except FairlaneError as error:
            self.answered(reply, Refused(call.number, body_of(error)))

    def answered(self, reply: _Reply, frame: Frame) -> None:
        """Send the answer to a quick call."""
        reply.is_done = True
        self._outbox.put(frame)
        self._end_call(waits=reply.waits)

    def _begin_waiting(self) -> None:
        if self._waits >= self._calls_max:
            cause = f"{self._waits} leases wait on this connection already; calls_max is {self._calls_max}."
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        self._waits += 1
        self._go_on()

    def _end_call(self, *, waits: bool) -> None:
        self._calls -= 1
        self._waits -= waits
        self._go_on()

    # ----------------------------------------------------------------------------------------------------- other calls

    def _begin(self, call: Call) -> None:
        """Begin a call that needs a task."""
        self._unbegun += 1
        self._looks += call.verb in _LOOKS
        task = asyncio.create_task(self._answer(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: Call) -> None:
        self._unbegun -= 1
        try:
            answer = await self._run(call)
        except FairlaneError as error:
            self._outbox.put(Refused(call.number, body_of(error)))
        else:
            if answer is not None:
                self._outbox.put((1, call.number, answer))
        finally:
            self._looks -= call.verb in _LOOKS
            self._end_call(waits=False)

    async def _run(self, call: Call) -> Any:  # noqa: ANN401 - what a verb answers depends on the verb
        name = call.verb
        decode = _DECODERS.get(name)
        if decode is None:
            raise RouteNotFound(f"There is no verb {name!r:.100}.")
        request = decoded(decode, call.request, name)
        if self.doors.rates is not None:
            self.doors.admit(self._caller, self._address)
        if isinstance(request, Consume):
            self.doors.tally.calls[name] += 1
            self.doors.check_open(name)
            self._caller.check("consume", request.queue)
            await self._channels.open(call.number, request)
            return None
        if isinstance(request, Stop):
            return await self._channels.stop(request)
        if isinstance(request, Lease):
            self.doors.lessees.add(self)
        if isinstance(request, Lease) and request.wait_ms:
            return await self._wait(request, self._origin_of(call))
        return await self.doors.call(name, request, self._caller, self._origin_of(call))

    async def _wait(self, request: Lease, origin: Origin | None) -> Any:  # noqa: ANN401 - see _run
        self._begin_waiting()
        try:
            return await self.doors.call("lease", request, self._caller, origin)
        finally:
            self._waits -= 1

    def _origin_of(self, call: Call) -> Origin | None:
        given = call.trace
        if given is None:
            return _FOLLOWED if self._follows else None
        return Origin(None, trace_of(given.traceparent, given.tracestate), self._follows)


class _Reply:
    """Where the outcome of a quick call goes: to the client, unless it is gone."""

    __slots__ = ("_number", "_stream", "_verb", "is_done", "waits")

    def __init__(self, stream: _Stream, number: int, verb: str) -> None:
        self._stream = stream
        self._number = number
        self._verb = verb
        self.is_done = False
        self.waits = False

    def done(self) -> bool:
        return self.is_done or self._stream.is_over

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - see Reply
        self._stream.answered(self, (1, self._number, result))

    def set_exception(self, exception: BaseException, /) -> None:
        refusal = self._stream.doors.refusal(self._verb, exception)
        self._stream.answered(self, Refused(self._number, body_of(refusal)))
