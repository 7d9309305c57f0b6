"""Which processes are connected to a board, from repeated looks at its sessions.

Theory of operation
-------------------
Each process has a session at the server of the board, and looks at all sessions there again and again. A session that
was seen and is missing has ended for good: a process that connects again has another one. It is reported after a
*grace*, which lets a process that lives connect again before others draw conclusions.

A process that lives can lose its session and be reported. So that nothing depends on it, each process also looks for
its own session: it was there at some instant after the look was *sent*, and others report it no earlier than the grace
after that. Until then, by its own clock, it can be certain that no other process has reported it. Later it can't, and
must ask its stores before it relies on being their owner. No two clocks are compared; they only have to run at the same
speed.

What was seen counts for one connection. A process that connects again may have missed anything, such as a restart of
the server that ended all sessions, so it starts from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class Attendance(Generic[S]):
    """The conclusions of one process from looks at sessions. One thread notes looks; any thread may ask.

    Attributes:
        own: the session of this process; None if it shows none.
        is_over: whether that session has ended.
        ended: the sessions of others that have ended.
    """

    def __init__(self, *, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen: set[S] = set()
        self._missing_s: dict[S, float] = {}
        self._shown_s: float | None = None
        self.own: S | None = None
        self.is_over = False
        self.ended: frozenset[S] = frozenset()

    def expect(self, own: S) -> None:
        """Go on under another session, which has not begun yet."""
        self._shown_s = None
        self.own, self.is_over = own, False

    @property
    def is_shown(self) -> bool:
        """Whether others may have seen the session of this process."""
        return self._shown_s is not None

    @property
    def has_seen_itself(self) -> bool:
        """Whether this process has seen its own session on this connection."""
        return self.own in self._seen

    def show(self, *, sent_s: float) -> None:
        """Note that the session of this process is about to begin; ``sent_s`` is the instant before."""
        self._shown_s = sent_s  # others may see it from here on, even if this process never does

    def connected(self) -> None:
        """Note that there is a new connection: what was seen on the last one counts no more."""
        self._seen.clear()
        self._missing_s.clear()
        self.is_over = self.is_shown
        self.ended = frozenset()

    def note(self, present: Collection[S], *, sent_s: float, answered_s: float) -> bool:
        """Take what one look has shown, and return whether other sessions have ended than before.

        Args:
            present: all sessions.
            sent_s: the instant before the look was sent.
            answered_s: the instant after its answer came.
        """
        if self.own in present:
            self._shown_s = sent_s
        self._missing_s = {each: self._missing_s.get(each, answered_s) for each in self._seen.difference(present)}
        self._seen.update(present)
        ended = frozenset(each for each, since_s in self._missing_s.items() if answered_s - since_s >= self._grace_s)
        is_changed, self.ended = ended != self.ended, ended
        return is_changed

    def is_certain(self, now_s: float) -> bool:
        """Return whether no other process can have reported this one."""
        return not self.is_over and (self._shown_s is None or now_s - self._shown_s < self._grace_s)
