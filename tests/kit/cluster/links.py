"""The links of a simulated node: requests to board and stores, or their answers, may be lost or late."""

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


class Link:
    """The connection of one node.

    Attributes:
        trouble: None while all is well. A *cut* link loses what is sent, a *deaf* one the answer, and on a *slow* one
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
        """Send a request that runs ``act`` on arrival, and return the answer.

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
        raise StoreFailed(f"The link is {self.trouble}.")

    def arrive(self) -> None:
        """Deliver a request that was sent long ago; its answer goes nowhere."""
        if self.late:
            with suppress(FairlaneError):
                self.late.pop(self._chance.randrange(len(self.late)))()


class LinkedBoard:
    """A ``Board`` at the end of a link."""

    def __init__(self, board: MemoryBoard, link: Link) -> None:
        self._board = board
        self._link = link

    def read(self) -> dict[str, Entry]:
        """Return everything on the board."""
        return self._link.call(self._board.read, is_change=False)

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or create one with None; return None if its version has changed."""
        return self._link.call(lambda: self._board.put(name, value, version=version))

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if its version has changed."""
        return self._link.call(lambda: self._board.remove(name, version=version))

    def wait(self, timeout_s: float) -> None:
        """Do nothing: simulated nodes read the board in their own steps."""

    def close(self) -> None:
        """Do nothing: the board is shared."""
