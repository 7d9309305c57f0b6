"""What wakes those who wait for a change of a board, and the rules that every board has for its names."""

from __future__ import annotations

import threading

from fairlane.errors import InvalidArgument

_NAME_LENGTH_MAX = 700
"""The longest key of the config fits, with what is put before it."""


class Feed:
    """Counts changes, and remembers for each thread how many it has read.

    Threads that share a board don't hide changes from each other so: what one has read, another still waits for.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._changes = 0
        self._is_closed = False
        self._read = threading.local()

    def changed(self) -> None:
        """Note a change, and wake all who wait."""
        with self._condition:
            self._changes += 1
            self._condition.notify_all()

    def reading(self) -> None:
        """Note that this thread reads the board from now on: what changes later, it has not read."""
        self._read.changes = self._changes

    def wait(self, timeout_s: float) -> None:
        """Return when there was a change since this thread has read or waited, after the time, or when it is over."""
        with self._condition:
            seen = getattr(self._read, "changes", -1)
            self._condition.wait_for(lambda: self._changes != seen or self._is_closed, timeout=max(0.0, timeout_s))
            self._read.changes = self._changes

    def close(self) -> None:
        """Wake all who wait, for good."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()


def check_name(name: str) -> None:
    """Refuse what can't name an entry of a board.

    Raises:
        InvalidArgument: it is empty, too long, or not printable.
    """
    if not 0 < len(name) <= _NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidArgument(f"An entry of a board has a printable name of 1 to {_NAME_LENGTH_MAX} characters.")
