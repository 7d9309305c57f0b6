from __future__ import annotations

import asyncio

from fairlane.asgi import FairQueue
from fairlane.asgi.inbox import READ_AHEAD_MAX_BYTES, Inbox
from fairlane.asgi.protocol import Message, Receive, Scope, Send

from .driver import Clock, Request, run, until


class Reader:
    """An application that holds its first request, and reads the bodies of all others completely."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.messages: list[Message] = []
        self.is_held = False
        self.reads = 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/hold":
            self.is_held = True
            await self.let_go.wait()
        else:
            while not self.messages or self.messages[-1].get("more_body"):
                reads = [asyncio.ensure_future(receive()) for _ in range(self.reads)]
                done, late = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in late:
                    read.cancel()
                self.messages.extend(read.result() for read in done)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages]


async def hold(reader: Reader, clock: Clock) -> FairQueue:
    queue = FairQueue(reader, in_flight=1, clock=clock)
    Request(queue, "/hold", {}, None)
    await until(lambda: reader.is_held)
    return queue


def test_a_body_sent_while_waiting_is_replayed_in_order(clock: Clock) -> None:
    """The application reads the chunks that came before its turn, then those that come after."""

    async def scenario() -> None:
        reader = Reader()
        queue = await hold(reader, clock)
        request = Request(queue, "/read", {}, [b"one", b"two"])
        await until(request.inbound.empty)
        assert queue.stats().waiting == 1
        reader.let_go.set()
        await until(lambda: reader.bodies() == [b"one", b"two"])
        request.send_body(b"three", more=True)
        request.send_body(b"", more=False)
        assert (await request.response()).status == 200
        assert reader.bodies() == [b"one", b"two", b"three", b""]

    run(clock, scenario())


def test_an_application_that_cancels_a_read_loses_nothing(clock: Clock) -> None:
    """Cancelled and concurrent reads of the application neither lose nor duplicate a message."""

    async def scenario() -> None:
        reader = Reader()
        reader.reads = 3
        queue = await hold(reader, clock)
        request = Request(queue, "/read", {}, [b"one"])
        await until(request.inbound.empty)
        reader.let_go.set()
        await until(lambda: len(reader.messages) == 1)
        request.send_body(b"two", more=True)
        await until(lambda: len(reader.messages) == 2)
        request.send_body(b"three", more=False)
        await request.response()
        assert reader.bodies() == [b"one", b"two", b"three"]

    run(clock, scenario())


def test_an_application_that_is_interrupted_while_reading_can_read_on(clock: Clock) -> None:
    """The read begun while waiting survives an application that cancels its wait and reads again."""
    messages: list[Message] = []
    tried = asyncio.Event()
    held = asyncio.Event()

    async def app(scope: Scope, receive: Receive, _send: Send) -> None:
        if scope["path"] == "/hold":
            await held.wait()
            return
        first = asyncio.ensure_future(receive())
        await asyncio.wait((first, asyncio.ensure_future(held.wait())), return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        await asyncio.wait((first,))
        tried.set()
        messages.append(await receive())

    async def scenario() -> None:
        queue = FairQueue(app, in_flight=1, clock=clock)
        Request(queue, "/hold", {}, None)
        await until(lambda: queue.stats().in_flight == 1)
        request = Request(queue, "/read", {}, [])
        await until(lambda: queue.stats().waiting == 1)
        held.set()
        await tried.wait()
        request.send_body(b"whole", more=False)
        await request.task
        assert [message["body"] for message in messages] == [b"whole"]

    run(clock, scenario())


def test_reading_ahead_is_bounded(clock: Clock) -> None:
    """After 64 KiB of a waiting body nothing more is read until the turn comes, and then all of it arrives."""

    async def scenario() -> None:
        reader = Reader()
        queue = await hold(reader, clock)
        chunk = b"x" * 10_000
        request = Request(queue, "/read", {}, [chunk] * 20)
        request.send_body(b"end", more=False)
        chunks_read = -(-READ_AHEAD_MAX_BYTES // len(chunk))
        await until(lambda: request.inbound.qsize() == 21 - chunks_read)
        await asyncio.sleep(1)  # virtual: there is time to read more
        assert request.inbound.qsize() == 21 - chunks_read
        reader.let_go.set()
        await request.response()
        assert reader.bodies() == [chunk] * 20 + [b"end"]

    run(clock, scenario())


def test_a_disconnect_after_a_long_body_reaches_the_application(clock: Clock) -> None:
    """Beyond the bound a client that leaves stays queued, and the application reads the disconnect in order."""

    async def scenario() -> None:
        reader = Reader()
        queue = await hold(reader, clock)
        request = Request(queue, "/read", {}, [b"x" * READ_AHEAD_MAX_BYTES])
        await until(request.inbound.empty)
        request.disconnect()
        await asyncio.sleep(1)  # virtual
        assert queue.stats().waiting == 1
        reader.let_go.set()
        await request.response()
        assert [message["type"] for message in reader.messages] == ["http.request", "http.disconnect"]

    run(clock, scenario())


def test_two_readers_that_wait_for_the_same_read_get_a_message_each(clock: Clock) -> None:
    """Two tasks of an application that share the pending read do not duplicate its message."""

    async def scenario() -> list[Message]:
        messages: asyncio.Queue[Message] = asyncio.Queue()
        inbox = Inbox(messages.get)
        turn = asyncio.get_running_loop().create_future()
        ahead = asyncio.ensure_future(inbox.wait_for(turn))
        await asyncio.sleep(0)
        turn.set_result(None)
        assert await ahead
        readers = [asyncio.ensure_future(inbox.receive()) for _ in range(2)]
        await asyncio.sleep(0)
        for body in (b"one", b"two"):
            messages.put_nowait({"type": "http.request", "body": body, "more_body": True})
        return list(await asyncio.gather(*readers))

    assert [message["body"] for message in run(clock, scenario())] == [b"one", b"two"]
