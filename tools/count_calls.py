"""Count how many of our own functions one message passes on its way through a server.

A real broker on RocksDB serves one message at a time in this process: the HTTP interface and the stream are called as
ASGI applications, so that everything between the web server and the disk is counted and nothing of the web server is.
Every walk is taken a few times before it is counted, since first calls fill caches. It is counted a few times, and the
shortest count is kept: on a slow machine a timer of the broker may go off in the middle of a walk.

Every entry into a frame counts as a call, as a profiler sees it: a coroutine that is resumed counts again, and so does
a comprehension on the versions of Python that run it in a frame of its own. Distinct functions leave both out.

    python tools/count_calls.py                      one line for each walk
    python tools/count_calls.py --show http_enqueue  the walk as a tree
    python tools/count_calls.py --json               for programs
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import fairlane
from fairlane.assembly import open_async_broker
from fairlane.gateway.local import LocalGateway
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.http import HttpInterface
from fairlane.wire.frames import SUBPROTOCOL, Answer, Call, frames_of, message_of

SOURCE = Path(fairlane.__file__).parent
QUEUE = "orders"
WARM_UP = 3
COUNTS = 5
_UNCOUNTED = -1
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_BY_TIME = ("BrokerTime._look", "DiskReserve.look", "Engine._tend", "KeyWaitTimes._of", "Sketch.add")
"""What passing time alone brings about, once in a while: a slow machine would meet it on every walk."""
_HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]
Application = Callable[..., Awaitable[None]]


# ------------------------------------------------------------------------------------------------------------ counting


@dataclass
class Walk:
    """The calls of one walk, in order: the depth below the first frame of ours, the file and the function."""

    name: str
    calls: list[tuple[int, str, str]] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """Return how many calls, distinct functions, files and changes of file there are."""
        files = [file for _, file, _ in self.calls]
        named = {(file, name) for _, file, name in self.calls if not name.endswith(_COMPREHENSIONS)}
        return {
            "calls": len(self.calls),
            "functions": len(named),
            "files": len(set(files)),
            "switches": sum(before != after for before, after in itertools.pairwise(files)),
        }


@contextmanager
def counting(walk: Walk) -> Iterator[None]:
    """Note every call of a function of the package in this thread."""
    root = str(SOURCE) + "/"
    seen: dict[FrameType, int] = {}  # keeps the frames alive, so that none is taken for another

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(root):
            return
        caller = frame.f_back
        while caller is not None and caller not in seen:
            caller = caller.f_back
        if code.co_qualname in _BY_TIME or (caller is not None and seen[caller] == _UNCOUNTED):
            seen[frame] = _UNCOUNTED
            return
        depth = seen[frame] = 0 if caller is None else seen[caller] + 1
        walk.calls.append((depth, code.co_filename[len(root) :], code.co_qualname))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


# ---------------------------------------------------------------------------------------------------------- interfaces


class Http:
    """Requests to the HTTP interface, one at a time."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def post(self, path: str, body: object, walk: Walk | None = None) -> Any:  # noqa: ANN401 - depends on the verb
        """Return the answer to a request."""
        encoded = msgspec.json.encode(body)
        events = [{"type": "http.request", "body": encoded, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not events:
                await asyncio.Event().wait()  # the client stays connected
            return events.pop()

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/v1/{path}",
            "query_string": b"",
            "headers": [*_HEADERS, (b"content-length", str(len(encoded)).encode())],
            "client": ("127.0.0.1", 50_000),
        }
        if walk is None:
            await self._application(scope, receive, send)
        else:
            with counting(walk):
                await self._application(scope, receive, send)
        answer = msgspec.json.decode(b"".join(event.get("body", b"") for event in sent))
        if sent[0]["status"] != 200:  # noqa: PLR2004 - the status of an answer
            raise RuntimeError(f"{path} failed: {answer}")
        return answer


class Stream:
    """Calls on one WebSocket of the stream, one at a time."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._number = 0

    async def serve(self, application: Application) -> None:
        """Run the server's end."""
        scope = {
            "type": "websocket",
            "path": "/v1/stream",
            "headers": [(b"host", b"localhost")],
            "subprotocols": [SUBPROTOCOL],
            "extensions": {},
        }

        async def send(event: dict[str, Any]) -> None:
            self._outgoing.put_nowait(event)

        self._incoming.put_nowait({"type": "websocket.connect"})
        await application(scope, self._incoming.get, send)

    async def accepted(self) -> None:
        """Wait until the server has accepted the connection."""
        await self._outgoing.get()

    def hang_up(self) -> None:
        """End the connection."""
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def call(self, verb: str, body: object, walk: Walk | None = None) -> Any:  # noqa: ANN401 - see Http.post
        """Return the answer to a call."""
        self._number += 1
        data = message_of([Call(self._number, verb, msgspec.Raw(msgspec.msgpack.encode(body)))])
        if walk is None:
            event = await self._exchange(data)
        else:
            with counting(walk):
                event = await self._exchange(data)
        frame = frames_of(event["bytes"])[0]
        if not isinstance(frame, Answer):
            raise RuntimeError(f"{verb} failed: {frame}")
        return msgspec.msgpack.decode(frame.answer)

    async def _exchange(self, data: bytes) -> dict[str, Any]:
        self._incoming.put_nowait({"type": "websocket.receive", "bytes": data})
        return await self._outgoing.get()


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Http, Stream]]:
    """Open a broker on RocksDB, with both interfaces and one queue."""
    with tempfile.TemporaryDirectory() as folder:
        # Syncing to disk may take long enough to be moved to a thread, where it would not be counted.
        async with await open_async_broker(Path(folder) / "data", durability="os") as broker:
            application = HttpInterface(ServerContext(LocalGateway(broker)))
            await broker.create_queue(QUEUE)
            stream = Stream()
            serving = asyncio.create_task(stream.serve(application))
            await stream.accepted()
            yield Http(application), stream
            stream.hang_up()
            await serving


# --------------------------------------------------------------------------------------------------------------- walks


async def walk_http(http: Http) -> list[Walk]:
    """Return the walks of one message over HTTP."""
    walks = [Walk("http_enqueue"), Walk("http_lease"), Walk("http_ack")]
    for lap in range(WARM_UP + 1):
        enqueue, lease, ack = walks if lap == WARM_UP else (None, None, None)
        message = {"payload": "aGVsbG8="}
        await http.post("queue/enqueue", {"queue": QUEUE, "messages": [message]}, enqueue)
        leased = await http.post("queue/dequeue", {"queue": QUEUE}, lease)
        await http.post("queue/ack", {"queue": QUEUE, "receipts": _receipts(leased)}, ack)
    return walks


async def walk_stream(stream: Stream) -> list[Walk]:
    """Return the walks of one message on the stream."""
    walks = [Walk("stream_enqueue"), Walk("stream_lease"), Walk("stream_ack")]
    for lap in range(WARM_UP + 1):
        enqueue, lease, ack = walks if lap == WARM_UP else (None, None, None)
        message = {"payload": b"hello"}
        await stream.call("enqueue", {"queue": QUEUE, "messages": [message]}, enqueue)
        leased = await stream.call("lease", {"queue": QUEUE}, lease)
        await stream.call("ack", {"queue": QUEUE, "receipts": _receipts(leased)}, ack)
    return walks


def _receipts(leased: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": one["id"], "token": one["token"]} for one in leased["deliveries"]]


async def all_walks() -> list[Walk]:
    """Take every walk on a broker of its own."""
    async with opened() as (http, stream):
        counts = [[*await walk_http(http), *await walk_stream(stream)] for _ in range(COUNTS)]
    return [min(same, key=lambda walk: len(walk.calls)) for same in zip(*counts, strict=True)]


# ------------------------------------------------------------------------------------------------------------- showing


def table(walks: list[Walk]) -> str:
    """Return the figures of walks as a table."""
    lines = [f"{'walk':<16}{'calls':>7}{'functions':>11}{'files':>7}{'switches':>10}"]
    for walk in walks:
        figures = walk.figures()
        lines.append(
            f"{walk.name:<16}{figures['calls']:>7}{figures['functions']:>11}{figures['files']:>7}"
            f"{figures['switches']:>10}"
        )
    return "\n".join(lines)


def tree(walk: Walk) -> str:
    """Return a walk as a tree, and how many calls each file has in it."""
    lines = [f"{'  ' * depth}{name}   {file}" for depth, file, name in walk.calls]
    files = Counter(file for _, file, _ in walk.calls)
    lines += ["", *(f"{count:>4}  {file}" for file, count in files.most_common())]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Count, and print."""
    parser = argparse.ArgumentParser(description="Count the calls of our own functions for one message.")
    parser.add_argument("--show", metavar="WALK", help="print one walk as a tree")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    walks = {walk.name: walk for walk in asyncio.run(all_walks())}
    if given.show is not None and given.show not in walks:
        parser.error(f"there is no walk {given.show!r}; choose one of {', '.join(walks)}")
    if given.json:
        print(json.dumps({name: walk.figures() for name, walk in walks.items()}, indent=2))
    elif given.show is not None:
        print(tree(walks[given.show]))
    else:
        print(table(list(walks.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
