"""The board of the cluster as an event loop sees it: the latest reading, and changes by compare-and-set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from fairlane.cluster.entries import BoardView, view_of
from fairlane.errors import StoreFailed
from fairlane.ports.board import Board

T = TypeVar("T")
_ATTEMPTS: Final = 20
_CHANGE_THREADS: Final = 4


class SharedBoard:
    """A board that is called in threads of its own, since it may block.

    Attributes:
        view: everything on the board, as it was read last.
        read_s: when that reading began, by a clock that only grows.
        ended: the processes that the board had reported as ended before that.
    """

    def __init__(self, board: Board, *, monotonic: Callable[[], float]) -> None:
        self._board = board
        self._monotonic = monotonic
        # Waiting for a change may take as long as a heartbeat, so changes have threads of their own.
        self._reader = ThreadPoolExecutor(1, "fairlane-board-reader")
        self._changer = ThreadPoolExecutor(_CHANGE_THREADS, "fairlane-board-changer")
        self._refreshing: asyncio.Task[BoardView] | None = None
        self._next: asyncio.Task[BoardView] | None = None
        self._begun = 0
        self._applied = 0
        self.view = BoardView()
        self.read_s = float("-inf")
        self.ended: frozenset[str] = frozenset()

    async def read(self) -> BoardView:
        """Read the board, in the thread that also waits for changes."""
        return await self._read(self._reader)

    async def wait(self, timeout_s: float) -> None:
        """Return when something may have changed since ``read``, or after the timeout."""
        await asyncio.get_running_loop().run_in_executor(self._reader, self._board.wait, timeout_s)

    async def refresh(self) -> BoardView:
        """Read the board, no earlier than now. Callers that come at the same time share one reading."""
        if self._next is None:
            self._next = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._next)

    async def _refresh(self) -> BoardView:
        if self._refreshing is not None:
            await asyncio.wait((self._refreshing,))
        self._refreshing, self._next = self._next, None  # a caller that comes after this line needs a newer reading
        return await self._read(self._changer)

    async def _read(self, executor: ThreadPoolExecutor) -> BoardView:
        self._begun += 1
        number, begun_s = self._begun, self._monotonic()
        ended = self._board.ended([entry.incarnation for entry in self.view.nodes.values()])
        entries = await asyncio.get_running_loop().run_in_executor(executor, self._board.read)
        view = view_of(entries)
        if number > self._applied:  # a reading that began later may have ended earlier
            self._applied = number
            self.view, self.read_s, self.ended = view, begun_s, ended
        return view

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show to other nodes that a process is connected to the board; call ``on_lost`` on this loop when it isn't."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(on_lost)

        self._board.attend(process, tell)

    def is_attending(self) -> bool:
        """Return whether no other node can have seen that this process is no longer connected to the board."""
        return self._board.is_attending()

    async def put(self, name: str, value: bytes, *, version: str | None) -> str | None:
        """Replace an entry of a version, or with None create it. Return its new version, or None if it has another.

        Raises:
            StoreFailed: the entry may or may not have been changed.
        """
        entry = await self._change(lambda: self._board.put(name, value, version=version))
        return None if entry is None else entry.version

    async def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version. Return False if it has another.

        Raises:
            StoreFailed: the entry may or may not have been removed.
        """
        return await self._change(lambda: self._board.remove(name, version=version))

    async def edit(self, name: str, edit: Callable[[BoardView], bytes | None]) -> BoardView:
        """Change an entry to what ``edit`` returns for the current board, or with None remove it.

        ``edit`` is called again whenever another node has changed the entry in between. Returns the board afterwards.
        Raises StoreFailed if the entry may or may not have been changed.
        """
        for _ in range(_ATTEMPTS):
            view = await self._read(self._changer)
            version, value = view.versions.get(name), edit(view)
            if value is None and version is None:
                return view
            if value is None:
                is_done = await self.remove(name, version=version or "")
            else:
                is_done = await self.put(name, value, version=version) is not None
            if is_done:
                return await self._read(self._changer)
        raise StoreFailed(f"Other nodes changed {name!r} on the board {_ATTEMPTS} times in a row.")

    async def _change(self, change: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._changer, change)

    async def close(self) -> None:
        """Close the board, which also ends a wait."""
        await self._change(self._board.close)
        for executor in (self._reader, self._changer):
            executor.shutdown(wait=False)
