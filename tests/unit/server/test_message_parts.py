"""A message on a stream has a bounded number of parts, so that parts without data don't add up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.server.interfaces.websocket import OTHERS_MAX, PARTS_MAX, QuickSocket
from tests.kit.servers.listening import Wire, listening
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.local_server import run
from tests.unit.server.test_uvicorn import STREAM, frame, upgraded

STATS = b"\x94\x00\x01\xa5stats\x81\xa5queue\xa6orders"
BINARY, TEXT = 2, 1


@pytest.mark.parametrize("kind", [BINARY, TEXT])
@pytest.mark.parametrize("part", [b"", b"x"], ids=["empty parts", "small parts"])
def test_a_message_in_too_many_parts_ends_the_connection(kind: int, part: bytes) -> None:
    """One part above the limit is answered with 1009, and what follows is read and dropped."""

    async def main() -> None:
        async with listening() as server:
            stream, _ = await upgraded(server, STREAM)
            stream.send(frame(kind, part, is_last=False) + frame(0, part, is_last=False) * (2 * PARTS_MAX))
            stream.send(frame(0, b""))
            told = await stream.rest()
            assert told[0] == 0x88
            assert int.from_bytes(told[2:4]) == 1009
            assert f"{PARTS_MAX} parts" in told.decode("latin-1")

    run(main())


def test_a_message_in_as_many_parts_as_allowed_is_answered() -> None:
    """The limit counts the parts of one message, and begins anew with the next."""

    async def main() -> None:
        async with listening() as server:
            stream, _ = await upgraded(server, STREAM)
            for _ in range(2):
                stream.send(frame(2, STATS, is_last=False) + frame(0, b"", is_last=False) * (PARTS_MAX - 2))
                stream.send(frame(0, b""))
                head = await asyncio.wait_for(stream.reader.readexactly(2), PATIENCE_S)
                assert head[0] == 0x82
                size = head[1] if head[1] < 126 else int.from_bytes(await stream.reader.readexactly(2))
                await stream.reader.readexactly(size)

    run(main())


def test_many_pings_in_one_read_let_others_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many frames come at once, the event loop handles a limited number before it does something else."""
    handled, most = 0, 0
    handle_ping = QuickSocket.handle_ping

    def counted(self: Any) -> None:
        nonlocal handled, most
        handled += 1
        most = max(most, handled)
        handle_ping(self)

    monkeypatch.setattr(QuickSocket, "handle_ping", counted)

    async def main() -> None:
        nonlocal handled
        async with listening() as server:
            stream, _ = await upgraded(server, STREAM)
            stream.send(frame(2, STATS) + frame(9, b"") * (20 * OTHERS_MAX) + frame(2, STATS))
            answers = asyncio.create_task(answered(stream))
            while not answers.done():
                handled = 0
                await asyncio.sleep(0)
            assert await answers == 20 * OTHERS_MAX

    run(main())
    assert 0 < most <= OTHERS_MAX


async def answered(stream: Wire) -> int:
    """Read two answers, and return how many pongs came in between."""
    pongs = messages = 0
    while messages < 2:
        head = await asyncio.wait_for(stream.reader.readexactly(2), PATIENCE_S)
        size = head[1] if head[1] < 126 else int.from_bytes(await stream.reader.readexactly(2))
        await stream.reader.readexactly(size)
        pongs, messages = pongs + (head[0] == 0x8A), messages + (head[0] == 0x82)
    return pongs
