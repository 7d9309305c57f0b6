"""Calls that a thread makes by itself: it writes to a socket and reads the answer, without the client's event loop.

A call over the event loop of ``Portal`` costs two switches between threads, which take longer than the call itself. So
a thread that is alone in calling has a connection of its own to the node, beside the one of the event loop. The direct
path is for the plain case only. A call takes the event loop instead if another thread is using the connection, or the
queue is split, or its node is not known or not connected; and where a call fails, the event loop repeats it by its
rules. So everything about retries, partitions and nodes stays in one place, outside this module.

A connection is opened with the fourth call to a node: a program that makes a few calls has no use for it. While no
thread uses it, the event loop checks it now and then, because a server closes connections that answer no pings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import msgspec
from websockets.exceptions import WebSocketException

from fairlane.client.batching import Asked
from fairlane.client.cluster_transport import ClusterTransport
from fairlane.client.numbering import MessageNumbering
from fairlane.client.retries import is_passing
from fairlane.client.transport.blocking import BlockingSocket
from fairlane.client.transport.protocol import Conversation, OnLate, message_of
from fairlane.client.transport.websocket import WebSocketTransport
from fairlane.errors import Disconnected, FairlaneError, InvalidArgument, PayloadTooLarge, QueueSplit
from fairlane.model.trace import TraceContext
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import AnyAnswer, Reply
from fairlane.wire.frames import COLUMNS

LOOK_S: Final = 10.0
"""How often idle connections are looked after; less than the server's ping interval of 20 seconds."""
_CALLS_BEFORE: Final = 3
_PAUSE_S: Final = 1.0
"""How long a node is called over the event loop only, after a direct connection failed."""
_CLOSE_S: Final = 1.0
_WITHDRAWAL_S: Final = 30.0
_LOST: Final = (OSError, TimeoutError, WebSocketException, msgspec.DecodeError)


class DirectConnection:
    """A connection to one node, for one thread at a time.

    Attributes:
        lock: held by the thread that uses the connection.
    """

    def __init__(
        self, connect: Callable[[], BlockingSocket], *, numbers: MessageNumbering | None, on_late: OnLate
    ) -> None:
        """Prepare, without connecting yet.

        Args:
            connect: returns a connected socket.
            numbers: numbers the messages that are enqueued here; None to leave them as they are.
            on_late: called with messages that were leased for a call that was interrupted.
        """
        self.lock = threading.Lock()
        self._connect = connect
        self._numbers = numbers
        self._on_late = on_late
        self._socket: BlockingSocket | None = None
        self._conversation = Conversation(on_late=on_late)
        self._calls = 0
        self._not_before_s = 0.0
        self._waits = False

    def prepared(self, asked: Asked) -> Asked | None:
        """Connect if necessary, and return the request as it is to be sent; None if it cannot be sent here."""
        if not (self._open() if self._socket is None else self.look()):
            return None
        if self._numbers is not None and isinstance(asked.request, Enqueue):
            return asked._replace(request=self._numbers.numbered(asked.request))
        return asked

    def _open(self) -> bool:
        self._calls += 1
        if self._calls <= _CALLS_BEFORE or monotonic() < self._not_before_s:
            return False
        try:
            self._socket = self._connect()
        except _LOST:
            self._not_before_s = monotonic() + _PAUSE_S
            return False
        self._conversation = self._begun()
        return True

    def _begun(self) -> Conversation:
        """Return a conversation without calls."""
        begun = Conversation(on_late=self._on_late)
        begun.has_columns = self._socket is not None and self._socket.subprotocol == COLUMNS
        return begun

    def look(self) -> bool:
        """Answer pings that have arrived, and return whether the connection lasts."""
        try:
            if self._socket is not None:
                self._socket.look()
        except _LOST:
            self._drop()
        return self._socket is not None

    def call(self, asked: Asked, *, timeout_s: float, bytes_max: int, trace: TraceContext | None) -> AnyAnswer:
        """Return the answer to a prepared request.

        Raises:
            Disconnected: the connection was lost or the answer is overdue; the outcome is unknown.
            FairlaneError: the broker refused the request.
        """
        connected, reply, until_s = self._socket, _Answer(), monotonic() + timeout_s
        assert connected is not None  # noqa: S101 - the request is prepared
        frame = self._frame(asked, reply, until_s, trace)
        if len(frame) > bytes_max:
            self._conversation = self._begun()  # forgets the call; there is no other
            raise PayloadTooLarge(f"The request has {len(frame)} bytes; the limit is {bytes_max}.")
        self._waits = asked.wait_ms > 0
        is_soon = not self._waits or isinstance(asked.request, Enqueue)  # which hardly ever waits, though it may
        try:
            connected.send(message_of((frame,)))
            while not reply.is_done:
                self._conversation.receive(connected.receive(until_s, is_soon=is_soon))
        except TimeoutError:
            self._abandon(connected, asked, reply)
            raise Disconnected(f"The server did not answer {asked.verb!r} in time.") from None
        except _LOST as error:
            self._drop()
            raise Disconnected(f"The connection to the server was lost: {error}.") from error
        except BaseException:  # the thread was interrupted
            self._abandon(connected, asked, reply)
            raise
        self._waits = False
        return reply.value()

    def _frame(self, asked: Asked, reply: Reply, until_s: float, trace: TraceContext | None) -> bytes:
        try:
            return self._conversation.call(asked.verb, asked.request, reply, due=until_s, trace=trace)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"Cannot encode the request: {error}.") from error

    def close(self) -> None:
        """Wait briefly for a call that does not itself wait for something, and close the connection."""
        is_mine = not self._waits and self.lock.acquire(timeout=_CLOSE_S)
        connected = self._socket
        if connected is not None:
            connected.close()
        if is_mine:
            self._socket = None
            self.lock.release()

    # ------------------------------------------------------------------------------------------------------- internals

    def _drop(self) -> None:
        self._waits = False
        connected, self._socket = self._socket, None
        self._conversation = Conversation(on_late=self._on_late)
        if connected is not None:
            connected.close()

    def _abandon(self, connected: BlockingSocket, asked: Asked, reply: _Answer) -> None:
        """Leave a connection on which an answer is still to come. What a lease call brings goes back to its queue."""
        self._waits = False
        conversation, self._conversation = self._conversation, Conversation(on_late=self._on_late)
        self._socket = None
        if not isinstance(asked.request, Lease):
            connected.close()
            return
        withdrawal = conversation.withdraw(reply)
        reply.is_done = True
        threading.Thread(
            target=_take_late, args=(connected, conversation, withdrawal), name="fairlane-withdrawal", daemon=True
        ).start()


def _take_late(connected: BlockingSocket, conversation: Conversation, withdrawal: bytes | None) -> None:
    """Withdraw a lease call, and return the messages that it has leased nevertheless."""
    try:
        if withdrawal is not None:
            connected.send(message_of((withdrawal,)))
            until_s = monotonic() + _WITHDRAWAL_S
            while conversation.is_waiting:
                conversation.receive(connected.receive(until_s))
    except _LOST:
        pass  # the server returns what it could not send
    finally:
        connected.close()


class DirectCalls:
    """The direct connections of a client, by the address of the node."""

    def __init__(self, transport: ClusterTransport, *, is_numbered: bool, on_late: OnLate) -> None:
        """Prepare, without connecting yet.

        Args:
            transport: knows the nodes, and which of them has a queue.
            is_numbered: whether to number the messages that are enqueued.
            on_late: called, from any thread, with messages that were leased for a call that was interrupted.
        """
        self._transport = transport
        self._is_numbered = is_numbered
        self._on_late = on_late
        self._connections: dict[str, DirectConnection] = {}

    def call(
        self, asked: Asked, repeat: Callable[[Asked, FairlaneError], Any], *, trace: TraceContext | None
    ) -> AnyAnswer:
        """Return the answer to a request; None if it was not sent and has to take the event loop.

        Args:
            asked: the request.
            repeat: called with the request as it was sent if it failed with an error that may pass.
            trace: the trace context to send with it.

        Raises:
            FairlaneError: the broker refused the request.
        """
        node = self._transport.known_node(getattr(asked.request, "queue", None))
        if node is None or not node.is_plain:
            return None
        connection = self._connections.get(node.address)
        if connection is None:
            connection = self._added(node)
        if not connection.lock.acquire(blocking=False):
            return None
        try:
            sent = connection.prepared(asked)
            if sent is None:
                return None
            timeout_s = node.timeout_s + asked.wait_ms / 1000
            return connection.call(sent, timeout_s=timeout_s, bytes_max=node.frame_bytes_max, trace=trace)
        except FairlaneError as error:
            if sent is None or not (is_passing(error) or isinstance(error, QueueSplit)):
                raise
            failure = error
        finally:
            connection.lock.release()
        return repeat(sent, failure)

    def look(self) -> None:
        """Check the connections that no thread uses."""
        for connection in list(self._connections.values()):
            if connection.lock.acquire(blocking=False):
                try:
                    connection.look()
                finally:
                    connection.lock.release()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            connection.close()

    def _added(self, node: WebSocketTransport) -> DirectConnection:
        numbers = MessageNumbering() if self._is_numbered else None
        made = DirectConnection(node.connect_blocking, numbers=numbers, on_late=self._on_late)
        return self._connections.setdefault(node.address, made)  # another thread may have been first


class _Answer:
    """The answer to a call, in the thread that waits for it; see ``Reply``."""

    __slots__ = ("_error", "_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: AnyAnswer, /) -> None:
        self._result, self.is_done = result, True

    def set_exception(self, exception: BaseException, /) -> None:
        self._error, self.is_done = exception, True

    def value(self) -> AnyAnswer:
        """Return the result, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._result
