"""The stream: one WebSocket, msgpack frames of ``wire.frames``, many calls in flight, deliveries pushed as they come.

Our own server hands messages over by plain calls (``websocket``); under any other ASGI server ``AsgiSocket`` does the
same with two tasks. A call needs no task of its own: it is asked as it is read, and the engine's cycle that makes it
durable answers it. Only what another node has to answer, or what opens or closes a channel, takes a task. Calls of one
connection are asked in the order in which they came.

Four limits bound what one connection can make the server hold. There are at most ``calls_max`` calls in flight, and
``_LOOKS_MAX`` whose answers may be large; a client that does not read its answers is not read from either; channels
have credit; and at most ``calls_max`` leases wait for messages before more are refused. Waiting leases don't stop the
reading, because they may wait for long, and a server that does not read does not notice that a client has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, Final

import msgspec

from fairlane.broker.waiting.room import Room
from fairlane.errors import FairlaneError, RouteNotFound, TooManyWaiters, Unauthenticated, WaitTimedOut
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.model.trace import trace_of
from fairlane.server.access_log import OK, AccessLog
from fairlane.server.addresses import block_of
from fairlane.server.context import ServerContext
from fairlane.server.dispatch import DECODERS, LOOKS, STREAM_VERBS, WITH_COLUMNS, decoded
from fairlane.server.interfaces.asgi import DIRECT_SOCKET, AsgiSocket, DirectSocket, Receive, Scope, Send, address_of
from fairlane.server.interfaces.channels import Channels
from fairlane.server.interfaces.correlation import echoed
from fairlane.server.interfaces.counting import MSGPACK_FROM_BYTES, check_msgpack
from fairlane.server.interfaces.exchange import headers_of
from fairlane.server.interfaces.outbox import Frame, Outbox, frame_bytes
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.status import WATCHING, Watching
from fairlane.verbs.verb import Done, Request, Shape
from fairlane.wire.columns import given_request
from fairlane.wire.frames import CONSUME, Call, Consume, Refused, Stop, Widen, Withdraw, calls_of, is_many
from fairlane.wire.headers import FOLLOWS, FORWARDED

_UNSUPPORTED, _MALFORMED, POLICY, _RESTART = 1003, 1007, 1008, 1012
_REASON_BYTES_MAX, _RETRY_AFTER_MS = 120, 1_000
_LOOKS_MAX: Final = 8
"""How many calls of a connection may be in flight that cost little to ask but may have large answers."""


async def _close(send: Send, code: int, reason: str) -> None:
    short = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
    await send({"type": "websocket.close", "code": code, "reason": short})


class StreamConnection:
    """One connection of the stream, from its acceptance to its end."""

    def __init__(
        self, server: ServerContext, caller: Caller, scope: Scope, receive: Receive, send: Send, *, columns: bool
    ) -> None:
        self.server = server
        self.has_columns = columns
        self.is_over = False
        self._caller = caller
        headers = headers_of(scope)
        self._authorization = headers.get(b"authorization")
        self._address = address_of(scope)
        self._receive = receive
        self._send = send
        self._socket: DirectSocket = scope.get("extensions", {}).get(DIRECT_SOCKET) or AsgiSocket(send)
        soon = server.observed.call_after_answers
        self._outbox = Outbox(self._socket, server.room(caller), call_soon=soon, on_capacity=self._go_on)
        self._context = CallContext(follows=FOLLOWS in headers, is_forwarded=FORWARDED in headers)
        self._holder = None if self._context.is_forwarded else caller.id or block_of(self._address)
        self._channels = Channels(server, self._outbox, self._holder, has_columns=columns)
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._calls_max = server.limits.calls_max
        self._waits = 0
        self._waiting: dict[int, _Reply] = {}
        self._looks = 0
        self._is_lone = False
        self._pending: deque[Call] = deque()
        self._is_starting = False
        self._is_held = False

    async def run(self) -> None:
        """Read and answer until the connection ends; then release everything it holds."""
        endings = [asyncio.create_task(self._read()), asyncio.create_task(self._watch_key())]
        if isinstance(self._socket, AsgiSocket):
            endings.append(asyncio.create_task(self._socket.run()))
        draining = asyncio.create_task(self._drain())
        self._socket.take(self._on_message, self._outbox.flush, self.server.connections.arrivals.begin(self._holder))
        try:
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_over = True
            tasks = (*endings, draining, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self._let_go())

    async def _drain(self) -> None:
        await self.server.draining.wait()
        self._channels.end_all()
        await self.server.closing.wait()
        await self._close(_RESTART, "The server is shutting down.")

    async def _close(self, code: int, reason: str) -> None:
        self._outbox.flush()
        await _close(self._send, code, reason)

    async def _watch_key(self) -> None:
        await self.server.api_keys.ended(self._caller)
        await _close(self._send, POLICY, "The API key has been revoked or has expired.")

    async def _let_go(self) -> None:
        self.server.lessees.discard(self)
        for _ in range(self._waits):  # their replies find the connection over, and are not answered
            self.server.waiters.end(self._holder)
        await self._channels.close_all()
        for frame in self._outbox.unsent():
            if isinstance(frame, tuple) and isinstance(frame[2], LeasedMessages):
                self.server.give_back(self._caller, frame[2])
        self._outbox.room.clear()

    # --------------------------------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        """Read the events of the ASGI server. Binary messages are among them only where the socket is not direct."""
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                return
            data = event.get("bytes")
            if data is None:
                await self._close(_UNSUPPORTED, "The stream takes msgpack in binary messages.")
                return
            self._on_message(data)
            if isinstance(self._socket, AsgiSocket):
                await self._socket.may_read.wait()

    def _on_message(self, data: bytes) -> None:
        """Take a message, and read no more for now if a limit is reached."""
        if self.is_over:
            return
        refusal = self._take(data)
        if refusal is not None:
            self.is_over = True
            self._start(self._close(*refusal))  # that ends the reading
        elif self._pending or self._is_full():
            self._is_held = True
            self._socket.hold()

    def _is_full(self) -> bool:
        return (
            self._calls - self._waits >= self._calls_max or self._looks >= _LOOKS_MAX or not self._outbox.has_capacity
        )

    def _go_on(self) -> None:
        """Start pending calls and read on, if a limit was what stopped that."""
        if self._pending:
            self._start_pending()
        if self._is_held and not self._pending and not self._is_full():
            self._is_held = False
            self._socket.resume()

    def _take(self, data: bytes) -> tuple[int, str] | None:
        """Start the calls in a message, or return why the connection has to end."""
        try:
            calls = calls_of(data)
            if self.server.api_keys.is_required:  # it may have been revoked or have expired since the last message
                self._caller = self.server.api_keys.caller(self._authorization)
        except (msgspec.DecodeError, RecursionError) as error:
            return _MALFORMED, f"Malformed frame: {error}."
        except Unauthenticated as error:
            return POLICY, error.cause
        if not self._outbox.sends_many and is_many(data):
            self._outbox.sends_many = True
        if self.server.spin is not None:
            self._is_lone = len(calls) == 1 and self._calls == self._waits
            self.server.spin.end()
        self._pending.extend(calls)
        self._start_pending()
        return None

    def _start_pending(self) -> None:
        """Start calls in the order in which they came, up to the limits."""
        if self._is_starting:  # a call that was refused at once has ended, and asks for the next
            return
        self._is_starting = True
        while self._pending and not self._is_full() and not self.is_over:
            call = self._pending.popleft()
            self._calls += 1
            self._ask(call)
        self._is_starting = False

    # ----------------------------------------------------------------------------------------------------------- calls

    def _ask(self, call: Call) -> None:
        """Ask what a call asks for. Its reply sends the answer."""
        name = call.verb
        reply = _Reply(self, call.number, name)
        try:
            request = reply.request = self._request_of(call)
            if name in LOOKS:
                reply.is_look = True
                reply.is_counted = not getattr(request, "wait_ms", 0)  # reading must not stop meanwhile
                self._looks += reply.is_counted
            if isinstance(request, (Lease, *WATCHING)):
                self._note_wait(request, reply)
            elif not isinstance(request, Request):
                self._ask_connection(request, reply)
                return
            context = self._context if call.trace is None else self._traced(call)
            task = self.server.ask(request, self._caller, context, reply)
        except FairlaneError as error:
            self.refused(reply, error)
        except Exception as error:  # noqa: BLE001 - every call gets an answer
            self.refused(reply, self.server.refusal(name, error))
        else:
            if task is not None:
                reply.task = task
                self._keep(task)

    def _request_of(self, call: Call) -> Shape:
        """Return the request of a call, unless the caller may not make it whatever it says."""
        name = call.verb
        decode = (WITH_COLUMNS if self.has_columns else DECODERS).get(name)
        if decode is None:
            raise RouteNotFound(f"Unknown verb {name!r:.100}.")
        if self.server.rates is not None:
            self.server.admit(self._caller, self._address)
        if self._caller.grants is not None and name in STREAM_VERBS:
            self.server.check_before_reading(STREAM_VERBS[name], self._caller)
        if len(call.request) > MSGPACK_FROM_BYTES:
            check_msgpack(name, call.request)
        request: Shape = decoded(decode, call.request, name)
        return given_request(request) if self.has_columns else request

    def _ask_connection(self, request: Shape, reply: _Reply) -> None:
        """Answer a call about the connection itself: its channels, and its calls that wait."""
        if isinstance(request, (Consume, Stop)):
            self._start(self._change_channel(request, reply))
            return
        if isinstance(request, Withdraw):
            self._withdraw(request.call)
        elif isinstance(request, Widen):
            self._channels.widen(request)
        self.answered(reply, (1, reply.number, Done()))

    def _withdraw(self, number: int) -> None:
        """End a call that still waits. An engine that has leased for it finds its reply done, and takes back."""
        if (reply := self._waiting.get(number)) is None:
            return
        if reply.task is not None:
            reply.task.cancel()
        if not isinstance(reply.request, Lease):
            self.refused(reply, WaitTimedOut("The call was withdrawn."))
            return
        self.answered(reply, (1, number, LeasedMessages(deliveries=[])))

    def _note_wait(self, request: Lease | Watching, reply: _Reply) -> None:
        if isinstance(request, Lease) and not self._context.is_forwarded:
            self.server.lessees.add(self)  # a node that shuts down does not wait for other nodes
        if not request.wait_ms:
            return
        if self._waits >= self._calls_max:
            cause = f"{self._waits} calls are waiting on this connection already; calls_max is {self._calls_max}."
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        self.server.waiters.begin(self._holder)
        self._waits += 1
        self._waiting[reply.number] = reply
        reply.waits = True

    def _traced(self, call: Call) -> CallContext:
        given = call.trace
        if given is None:
            return self._context
        return msgspec.structs.replace(self._context, trace=trace_of(given.traceparent, given.tracestate))

    async def _change_channel(self, request: Consume | Stop, reply: _Reply) -> None:
        try:
            await self._channels.change(reply.number, request, self._caller)
        except FairlaneError as error:
            self.refused(reply, error)
        except Exception as error:  # noqa: BLE001 - every call gets an answer
            self.refused(reply, self.server.refusal(CONSUME, error))
        else:
            self._end(reply, None)

    def answered(self, reply: _Reply, frame: Frame) -> None:
        """Send the answer to a call."""
        self._outbox.put(frame)
        self._end(reply, frame)

    def refused(self, reply: _Reply, error: FairlaneError) -> None:
        """Refuse a call."""
        self.server.tally.errors[error.code] += 1
        self.answered(reply, Refused(reply.number, body_of(error)))

    @property
    def room(self) -> Room:
        """How many more bytes the client can be sent."""
        return self._outbox.room

    def answered_if_read(self, reply: _Reply, result: Any) -> None:  # noqa: ANN401 - what any verb answers
        """Send an answer that no room was kept for, unless the client has too much to read already."""
        frame = (1, reply.number, self._outbox.encoded(result) if reply.is_look else result)
        if self.room.takes(frame_bytes(frame)):
            self._outbox.put(frame)
            self._end(reply, (1, reply.number, result))
            return
        if isinstance(result, LeasedMessages):
            self.server.give_back(self._caller, result)
        self.refused(reply, self.server.limits.too_much_unread())

    def _end(self, reply: _Reply, frame: Frame | None) -> None:
        reply.is_done = True
        if self.server.access is not None:
            reply.log(self.server.access, frame, self._caller, self._address)
        self._calls -= 1
        if reply.waits:
            self._waits -= 1
            self.server.waiters.end(self._holder)
            self._waiting.pop(reply.number, None)
        elif self._is_lone and self.server.spin is not None:
            self.server.spin.begin()
        self._looks -= reply.is_counted
        if self._is_held:
            self._go_on()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(asyncio.create_task(work))

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the connection ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Reply:
    """Sends the answer to a call to the client, unless it is gone."""

    __slots__ = (
        *("_begun_s", "_connection", "has_columns", "is_counted", "is_done", "is_look"),
        *("number", "request", "task", "verb", "waits"),
    )

    def __init__(self, connection: StreamConnection, number: int, verb: str) -> None:
        self._connection = connection
        self.has_columns = connection.has_columns
        self.verb = verb
        self.number = number
        self.request: Shape | None = None
        self._begun_s = perf_counter()
        self.is_done = False
        self.is_look = self.is_counted = False
        self.task: asyncio.Task[None] | None = None
        self.waits = False

    def done(self) -> bool:
        return self.is_done or self._connection.is_over

    @property
    def room(self) -> Room:
        """How many more bytes the client can be sent; a lease takes no more than that."""
        return self._connection.room

    @property
    def source(self) -> StreamConnection:
        """The connection, whose calls are taken in the order in which they came."""
        return self._connection

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - see Reply
        if self.is_look or self.task is not None:
            self._connection.answered_if_read(self, result)
        else:
            self._connection.answered(self, (1, self.number, result))

    def set_exception(self, exception: BaseException, /) -> None:
        self._connection.refused(self, self._connection.server.refusal(self.verb, exception))

    def log(self, access: AccessLog, frame: Frame | None, caller: Caller, address: str | None) -> None:
        """Add the call to the access log, with the frame that answered it."""
        answer = frame[2] if isinstance(frame, tuple) else None
        access.note(
            "stream",
            self.verb,
            self._begun_s,
            caller=caller,
            address=address,
            request=self.request,
            status=frame.error.code if isinstance(frame, Refused) else OK,
            correlation_id=echoed(self.request, answer),
        )
