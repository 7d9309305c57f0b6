"""Consume over gRPC: one call that carries deliveries to the client, and its acks, nacks and extensions back.

It is one channel of the stream (see ``channels``) whose frames are protobuf messages. One task reads and starts a task
for each request, another one sends. The call ends when the client stops or cancels it, when the queue is deleted, or
when the server shuts down. A client that half-closes still receives messages, and settles them with other calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeAlias

import grpc

from fairlane.broker.waiting.room import Room, delivery_bytes
from fairlane.errors import FairlaneError, InvalidArgument, Unauthenticated
from fairlane.model.message import Delivery
from fairlane.server.access_log import DISCONNECTED
from fairlane.server.context import ServerContext
from fairlane.server.dispatch import Answer
from fairlane.server.interfaces.channels import Channels, going_down
from fairlane.server.interfaces.correlation import echoed
from fairlane.server.interfaces.grpc_calls import Call
from fairlane.server.interfaces.grpc_messages import receipts_of, write_deliveries, write_error, write_results
from fairlane.server.interfaces.grpc_reads import Context, MessageReads
from fairlane.server.interfaces.grpc_shapes import parsed, shaped
from fairlane.server.interfaces.outbox import BYTES_MAX, FRAMES_MAX, Frame, FrameQueue, frame_bytes
from fairlane.verbs.errors import body_of, error_of
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Results
from fairlane.wire.frames import CONSUME, Cancelled, Consume, Deliver, Ended, Refused, Stop, Widen
from fairlane.wire.grpc import broker_pb2
from fairlane.wire.protobuf import said

ConsumeRequest: TypeAlias = Any
"""The protobuf message, or a part of it. Its class is made at run time."""
_CHANNEL: Final = 0
_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one message with several deliveries. By default, gRPC clients refuse messages above 4 MiB."""


async def consume(server: ServerContext, reads: MessageReads, context: Context) -> None:
    """Serve one consumer from its first message to its end."""
    call = Call(server, context, CONSUME)
    try:
        with server.subscription(None):  # its channel is counted
            await _Consuming(server, call, context).run(reads)
    except FairlaneError as error:
        await call.refuse(error)
    except grpc.aio.AbortError:
        raise
    except Exception as error:  # noqa: BLE001 - every call gets an answer
        await call.refuse(server.refusal(CONSUME, error))
    except asyncio.CancelledError:
        call.log(DISCONNECTED)
        raise
    call.log()
    context.set_trailing_metadata(call.trailing())


class GrpcOutbox(FrameQueue):
    """Frames on their way to one client, as protobuf messages."""

    def __init__(self, context: Context, room: Room) -> None:
        super().__init__(room)
        self._context = context
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before."""
        super().put(frame)
        self._is_idle.clear()
        self._arrived.set()
        self.room.add(frame_bytes(frame))

    @property
    def has_capacity(self) -> bool:
        """Whether the client keeps up with reading."""
        return len(self._frames) <= FRAMES_MAX and self.room.unread <= BYTES_MAX

    async def run(self) -> None:
        """Send frames as they are put, until the task is cancelled or the call ends."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._frames:
                await self._flush()
            self.room.clear()
            self._is_idle.set()

    async def all_sent(self) -> None:
        """Wait until nothing is left to send. A frame that is being written is not among the frames, but not sent."""
        await self._is_idle.wait()

    async def _flush(self) -> None:
        frame = self._frames.pop(0)
        if isinstance(frame, Deliver):
            count = _fitting(frame.deliveries)
            if count < len(frame.deliveries):
                self._frames.insert(0, Deliver(frame.channel, frame.deliveries[count:]))
                frame = Deliver(frame.channel, frame.deliveries[:count])
        try:
            response = _response(frame)
            if response is not None:
                await self._context.write(response.SerializeToString())
        except BaseException:
            self._frames.insert(0, frame)  # it was not sent, or possibly not
            raise


def _fitting(deliveries: list[Delivery]) -> int:
    """Return how many deliveries go in one message."""
    size = 0
    for count, delivery in enumerate(deliveries):
        size += delivery_bytes(delivery)
        if count and size > _BYTES_MAX:
            return count
    return len(deliveries)


def _response(frame: Any) -> Any:  # noqa: ANN401 - frames have no common type, and messages are made at run time
    response = broker_pb2.ConsumeResponse()
    if isinstance(frame, Deliver):
        write_deliveries(frame.deliveries, response)
    elif isinstance(frame, Refused):
        response.number = frame.number
        write_error(frame.error, response.refused)
    elif isinstance(frame, Cancelled):
        response.cancelled.extend(frame.ids)
    elif isinstance(frame, Ended):
        if frame.error.code != "closed":
            raise error_of(frame.error)  # there is nothing left to settle
        write_error(frame.error, response.ended)
    elif isinstance(frame[2], Results):
        response.number = frame[1]
        response.results.SetInParent()
        write_results(frame[2], response.results)
    else:
        return None  # the initial metadata has already confirmed the open channel
    return response


def _opening(data: bytes) -> Consume:
    message = parsed(broker_pb2.ConsumeRequest, data, CONSUME)
    if message.WhichOneof("request") != "open":
        raise InvalidArgument("The first message of a Consume call must be `open`.")
    return Consume(**({"queue": ""} | said(message.open)))


class _Consuming:
    """A ``Consume`` call in progress."""

    def __init__(self, server: ServerContext, call: Call, context: Context) -> None:
        self._server = server
        self._call = call
        self._context = context
        self._caller = call.known = call.caller()
        self._outbox = GrpcOutbox(context, server.room(self._caller))
        self._channels = Channels(server, self._outbox, call.holder(self._caller))
        self._calls: set[asyncio.Task[None]] = set()
        self._one_done = asyncio.Event()
        self._queue = ""

    async def run(self, reads: MessageReads) -> None:
        """Serve until the call ends, and release everything it holds.

        Raises:
            FairlaneError: the call ends for another reason than the client stopping.
        """
        self._call.begin(self._caller)
        self._call.admit(self._caller)
        self._server.check_before_reading(Lease.verb, self._caller)
        request = _opening(await self._call.message(reads, self._caller))
        self._server.tally.calls[CONSUME] += 1
        self._server.check_open()
        self._caller.check("consume", request.queue)
        self._queue = request.queue
        self._call.asked = request
        await self._channels.open(_CHANNEL, request)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._context.send_initial_metadata(self._call.trailing())
            tasks += [asyncio.create_task(part) for part in self._parts()]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks += self._calls
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self._channels.close_all())
            self._outbox.room.clear()
        for task in done:
            task.result()

    def _parts(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._read(), self._outbox.run(), self._drain(), self._watch_key()

    async def _watch_key(self) -> None:
        await self._server.api_keys.ended(self._caller)
        raise Unauthenticated("The API key was revoked or has expired.")

    async def _drain(self) -> None:
        await self._server.draining.wait()
        self._channels.end_all()
        await self._server.closing.wait()
        raise going_down()

    # --------------------------------------------------------------------------------------------------------- reading

    async def _next(self) -> ConsumeRequest | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:
            return None
        return parsed(broker_pb2.ConsumeRequest, data, CONSUME)

    async def _read(self) -> None:
        while (message := await self._next()) is not None:
            self._caller = self._call.caller()  # its API key may have been revoked or have expired
            if message.WhichOneof("request") == "stop":
                await self._stop(message.stop)
                return
            if message.WhichOneof("request") == "widen":
                self._channels.widen(Widen(channel=_CHANNEL, handlers=message.widen.handlers))
                continue
            task = asyncio.create_task(self._answer(message))
            self._calls.add(task)
            task.add_done_callback(self._done)
            while len(self._calls) >= self._server.limits.calls_max:
                self._one_done.clear()
                await self._one_done.wait()
            if not self._outbox.has_capacity:
                await self._outbox.all_sent()
        await asyncio.get_running_loop().create_future()  # a half-closed client sends nothing more but still receives

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._one_done.set()

    async def _stop(self, message: ConsumeRequest) -> None:
        await asyncio.gather(*self._calls)
        received = message.received if message.HasField("received") else None
        await self._channels.stop(Stop(channel=_CHANNEL, unseen=tuple(message.unseen), received=received))
        await self._outbox.all_sent()

    # ------------------------------------------------------------------------------------------------------- answering

    async def _answer(self, message: ConsumeRequest) -> None:
        part = self._call.part(message.WhichOneof("request") or CONSUME)
        try:
            results = await self._run(message, part)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            refusal = error if isinstance(error, FairlaneError) else self._server.refusal(CONSUME, error)
            self._server.tally.errors[refusal.code] += 1
            part.log(refusal.code)
            self._outbox.put(Refused(message.number, body_of(refusal)))
        else:
            part.log()
            self._outbox.put((1, message.number, results))

    async def _run(self, message: ConsumeRequest, part: Call) -> Answer:
        name = message.WhichOneof("request")
        if name is None:
            raise InvalidArgument("The message is empty; expected one of ack, nack, extend or stop.")
        if name == "open":
            raise InvalidArgument("This Consume call is already open; start another call for another consumer.")
        self._call.admit(self._caller)
        items = getattr(message, name)
        fields = said(items) | {"queue": self._queue, "receipts": receipts_of(items)}
        request = part.asked = shaped(name, fields)
        results = await self._server.call(request, self._caller, self._call.context())
        part.correlation.id = echoed(request, results) or part.correlation.id
        return results
