"""The lines of a simulated node: what it sends to board and stores may be lost, here or on the way back, or be late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.ports.board import Entry

Trouble = Literal["cut", "deaf", "slow"]
TROUBLES: tuple[Trouble, ...] = ("cut", "deaf", "slow")
T = TypeVar("T")


class Line:
    """What one node is connected by.

    Attributes:
        trouble: None while all is well. A *cut* line loses what is sent, a *deaf* one the answer, and on a *slow* one
            what is sent arrives long after the sender has given up.
        late: what is still on its way.
        struck: how often each trouble has struck.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.trouble: Trouble | None = None
        self.late: list[Callable[[], object]] = []
        self.struck: Counter[Trouble] = Counter()

    def call(self, do: Callable[[], T], *, is_change: bool = True) -> T:
        """Send something that does this where it arrives, and return the answer.

        Raises:
            StoreFailed: no answer came; if it is a change, it may have been made, or be made yet.
        """
        if self.trouble is None:
            return do()
        self.struck[self.trouble] += 1
        if is_change and self.trouble == "deaf":
            with suppress(FairlaneError):
                do()
        elif is_change and self.trouble == "slow":
            self.late.append(do)
        raise StoreFailed(f"The line is {self.trouble}.")

    def arrive(self) -> None:
        """Let something arrive that was sent long ago, be it refused or not: nobody hears the answer."""
        if self.late:
            with suppress(FairlaneError):
                self.late.pop(self._chance.randrange(len(self.late)))()


class LinedBoard:
    """A ``Board`` at the end of a line."""

    def __init__(self, board: MemoryBoard, line: Line) -> None:
        self._board = board
        self._line = line

    def read(self) -> dict[str, Entry]:
        """Return everything on the board."""
        return self._line.call(self._board.read, is_change=False)

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or with None make one; return None if it has another by now."""
        return self._line.call(lambda: self._board.put(name, value, version=version))

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if it has another by now."""
        return self._line.call(lambda: self._board.remove(name, version=version))

    def wait(self, timeout_s: float) -> None:
        """Do nothing: here everybody looks when it is its turn."""

    def close(self) -> None:
        """Do nothing: the board is for all."""
