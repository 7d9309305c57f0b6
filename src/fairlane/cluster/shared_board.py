"""The board as an event loop sees it: what was read last, and changes that hold only if nobody else was quicker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from fairlane.cluster.entries import BoardView, view_of
from fairlane.errors import StoreFailed
from fairlane.ports.board import Board

T = TypeVar("T")
_ATTEMPTS: Final = 20
_ACTING: Final = 4


class Posting:
    """A board that is asked in threads of its own, since it may block.

    Attributes:
        view: everything on the board, as it was read last.
        read_s: when that reading began, by a clock that only grows.
    """

    def __init__(self, board: Board, *, monotonic: Callable[[], float]) -> None:
        self._board = board
        self._monotonic = monotonic
        self._looking = ThreadPoolExecutor(1, "fairlane-board-looking")  # one thread, that reads and waits by turns
        self._acting = ThreadPoolExecutor(_ACTING, "fairlane-board-acting")
        self._refreshing: asyncio.Task[BoardView] | None = None
        self._next: asyncio.Task[BoardView] | None = None
        self._begun = 0
        self._applied = 0
        self.view = BoardView()
        self.read_s = float("-inf")

    async def look(self) -> BoardView:
        """Read the board, by the thread that waits.

        Raises:
            StoreFailed: it can't be read.
        """
        return await self._read(self._looking)

    async def wait(self, timeout_s: float) -> None:
        """Return when something may have changed since ``look``, or after this time.

        Raises:
            StoreFailed: nobody knows.
        """
        await asyncio.get_running_loop().run_in_executor(self._looking, self._board.wait, timeout_s)

    async def refresh(self) -> BoardView:
        """Read the board, no sooner than now, together with all who want to.

        Raises:
            StoreFailed: it can't be read.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._next)

    async def _refresh(self) -> BoardView:
        if self._refreshing is not None:
            await asyncio.wait((self._refreshing,))
        self._refreshing, self._next = self._next, None  # whoever asks from now on may want to see more
        return await self._read(self._acting)

    async def _read(self, executor: ThreadPoolExecutor) -> BoardView:
        self._begun += 1
        number, begun_s = self._begun, self._monotonic()
        entries = await asyncio.get_running_loop().run_in_executor(executor, self._board.read)
        view = view_of(entries)
        if number > self._applied:  # one that was begun later may have ended before
            self._applied = number
            self.view, self.read_s = view, begun_s
        return view

    async def put(self, name: str, value: bytes, *, version: str | None) -> str | None:
        """Change an entry of a version, or with None make it, and return its new version; None if it has another.

        Raises:
            StoreFailed: nobody knows whether it was changed.
        """
        entry = await self._act(lambda: self._board.put(name, value, version=version))
        return None if entry is None else entry.version

    async def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if it has another.

        Raises:
            StoreFailed: nobody knows whether it was removed.
        """
        return await self._act(lambda: self._board.remove(name, version=version))

    async def change(self, name: str, edit: Callable[[BoardView], bytes | None]) -> BoardView:
        """Change an entry as often as it takes: to what ``edit`` makes of the board, or with None remove it.

        Returns the board afterwards.

        Raises:
            StoreFailed: nobody knows whether it was changed.
        """
        for _ in range(_ATTEMPTS):
            view = await self._read(self._acting)
            version, value = view.versions.get(name), edit(view)
            if value is None and version is None:
                return view
            if value is None:
                is_done = await self.remove(name, version=version or "")
            else:
                is_done = await self.put(name, value, version=version) is not None
            if is_done:
                return await self._read(self._acting)
        raise StoreFailed(f"Others changed {name!r} on the board again and again.")

    async def _act(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._acting, act)

    async def close(self) -> None:
        """Let go of the board."""
        await self._act(self._board.close)  # that ends a wait as well
        for executor in (self._looking, self._acting):
            executor.shutdown(wait=False)
