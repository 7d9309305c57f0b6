"""Wake-ups for threads that wait for a change of a board, and the rules for names that all boards share."""

from __future__ import annotations

import threading

from fairlane.errors import InvalidArgument

_NAME_LENGTH_MAX = 700
"""Long enough for the longest config key with its prefix."""


class Feed:
    """Counts changes, and remembers per thread how many it has seen.

    So threads that share a board don't hide changes from each other: a change that one has read still wakes the others.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._changes = 0
        self._is_closed = False
        self._read = threading.local()

    def changed(self) -> None:
        """Record a change and wake all waiting threads."""
        with self._condition:
            self._changes += 1
            self._condition.notify_all()

    def reading(self) -> None:
        """Record that this thread is about to read the board. Changes from now on are new to it."""
        self._read.changes = self._changes

    def wait(self, timeout_s: float) -> None:
        """Wait until the board has changed since this thread last read or waited, the time is up, or it is closed."""
        with self._condition:
            seen = getattr(self._read, "changes", -1)
            self._condition.wait_for(lambda: self._changes != seen or self._is_closed, timeout=max(0.0, timeout_s))
            self._read.changes = self._changes

    def close(self) -> None:
        """Wake all waiting threads, and end later waits at once."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()


def check_name(name: str) -> None:
    """Raise InvalidArgument unless a string can name an entry of a board."""
    if not 0 < len(name) <= _NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidArgument(f"A board entry must have a printable name of 1 to {_NAME_LENGTH_MAX} characters.")
