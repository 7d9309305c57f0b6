"""The own entry of a node on the board."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.cluster.entries import NodeEntry
from fairlane.cluster.heartbeat import Heartbeat
from fairlane.cluster.shared_board import SharedBoard


class _Process:
    """A process that is node ``a``, as far as its entry goes."""

    def __init__(self, board: MemoryBoard, address: str) -> None:
        self.board = SharedBoard(board, monotonic=time.monotonic)
        self.stops = 0
        self.own = Heartbeat(
            self.board,
            name="a",
            describe=lambda beat, incarnation: NodeEntry(address=address, beat=beat, incarnation=incarnation),
            on_replaced=self._stop,
            monotonic=time.monotonic,
        )

    async def _stop(self) -> None:
        self.stops += 1

    async def seen(self) -> NodeEntry | None:
        """Return what others see of the node."""
        return (await self.board.read()).nodes.get("a")


@contextlib.asynccontextmanager
async def _two_processes() -> AsyncIterator[tuple[_Process, _Process]]:
    board = MemoryBoard()
    first, second = _Process(board, "first:1"), _Process(board.another(), "second:1")
    try:
        yield first, second
    finally:
        for process in (first, second):
            await process.board.close()


async def _usurp(first: _Process, second: _Process) -> None:
    for process in (first, second):
        process.own.begin(await process.board.read())
        await process.own.beat()
    await first.own.beat()


def test_a_node_whose_name_another_took_says_nothing_more() -> None:
    """It stops once, and neither its signs of life nor its end touch the entry of the other."""

    async def main() -> None:
        async with _two_processes() as (first, second):
            await _usurp(first, second)
            await asyncio.gather(*(first.own.beat() for _ in range(3)))
            await first.own.remove()
            seen = await second.seen()
            assert first.own.replaced.is_set()
            assert first.stops == 1
            assert seen is not None
            assert (seen.address, seen.beat) == ("second:1", 1)

    asyncio.run(main())


def test_a_node_disappears_when_it_leaves() -> None:
    """Nothing of it is on the board afterwards."""

    async def main() -> None:
        async with _two_processes() as (first, second):
            await first.own.beat()
            assert await second.seen() is not None
            await first.own.remove()
            assert await second.seen() is None

    asyncio.run(main())
