"""The links of a simulated node: requests to board and stores, or their answers, may be lost or late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal, TypeVar

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.adapters.shared.attendance import Attendance
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.ports.board import Entry

Trouble = Literal["cut", "deaf", "slow"]
TROUBLES: tuple[Trouble, ...] = ("cut", "deaf", "slow")
GRACE_MS = 300
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
    """A ``Board`` at the end of a link, which is looked at in steps of the simulation, as PostgreSQL is by a thread."""

    def __init__(self, board: MemoryBoard, link: Link, *, monotonic_ms: Callable[[], int]) -> None:
        self._board = board
        self._link = link
        self._monotonic_ms = monotonic_ms
        self._attendance: Attendance[str] = Attendance(grace_s=GRACE_MS / 1_000)
        self._on_lost: Callable[[], None] = lambda: None

    def read(self) -> dict[str, Entry]:
        """Return everything on the board."""
        return self._link.call(self._board.read, is_change=False)

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or create one with None; return None if its version has changed."""
        return self._link.call(lambda: self._board.put(name, value, version=version))

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if its version has changed."""
        return self._link.call(lambda: self._board.remove(name, version=version))

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show from the next look on that a process is connected."""
        self._on_lost = on_lost
        self._attendance.expect(process)

    def look(self) -> None:
        """Look who is connected."""
        attendance, own = self._attendance, str(self._attendance.own)
        if not attendance.is_shown:
            attendance.show(sent_s=self._now_s())
            self._link.call(lambda: self._board.attend(own, lambda: None), is_change=False)
        sent_s = self._now_s()
        present = self._link.call(self._board.present, is_change=False)
        if own in present:
            attendance.note(present, sent_s=sent_s, answered_s=self._now_s())
            return
        attendance.connected()
        self._on_lost()

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        """Return those of the processes that were seen, and are no longer connected."""
        return frozenset(process for process in processes if process in self._attendance.ended)

    def is_attending(self) -> bool:
        """Return whether no other node can have seen that this one is not connected."""
        return self._attendance.is_certain(self._now_s())

    def hang_up(self) -> None:
        """End the session, without a word to the node, whether it lives or not."""
        self._board.hang_up()

    def _now_s(self) -> float:
        return self._monotonic_ms() / 1_000

    def wait(self, timeout_s: float) -> None:
        """Do nothing: simulated nodes read the board in their own steps."""

    def close(self) -> None:
        """Do nothing: the board is shared."""
