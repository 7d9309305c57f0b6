"""Every error Fairlead raises: one tree, and for each leaf a stable code, a cause and a remedy.

Catch ``FairleadError`` for all of them, ``RequestError`` for what the caller can mend, ``UnavailableError`` for what
time mends.
"""

from __future__ import annotations

from typing import ClassVar


class FairleadError(Exception):
    """The root of the tree; never raised itself.

    Attributes:
        code: a stable name for programs.
        remedy: what to do about it, for people.
    """

    code: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"


class RequestError(FairleadError):
    """The caller asked for something that can't be, and can ask differently; never raised itself."""


class UnavailableError(FairleadError):
    """It can't be done now but may be later; never raised itself.

    Attributes:
        retry_after_ms: when coming back is likely to help, where that is known.
    """

    def __init__(self, cause: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(cause)
        self.retry_after_ms = retry_after_ms


class InvalidArgument(RequestError, ValueError):
    """A value is not one the call can take; nothing was done."""

    code = "invalid_argument"
    remedy = "Correct the value and call again."


class Closed(RequestError):
    """The scheduler has been closed."""

    code = "closed"
    remedy = "Stop, or make a new scheduler."


class WrongEventLoop(RequestError, RuntimeError):
    """Something that belongs to one event loop was called from another loop or thread; nothing was done."""

    code = "wrong_event_loop"
    remedy = "Call it in its own loop: from async functions there, or with loop.call_soon_threadsafe from elsewhere."


class KeyFull(UnavailableError):
    """One fairness key has as many tasks waiting as it may; the new one was not accepted."""

    code = "key_full"
    remedy = "Let this tenant send less or later, or raise its limit."


class GlobalFull(UnavailableError):
    """As many tasks wait in all as may; the new one was not accepted."""

    code = "global_full"
    remedy = "Come back later, add consumers, or raise the limit."


class WaitTimedOut(UnavailableError):
    """Nothing came, or no room was made, within the time the caller would wait; nothing was done."""

    code = "wait_timed_out"
    remedy = "Come back later, or wait longer."


class DeadlinePassed(UnavailableError):
    """A task was not reached before its deadline, so it never ran."""

    code = "deadline_passed"
    remedy = "Allow more time, or add consumers."


class Dropped(UnavailableError):
    """A waiting task had to make room for another, so it never ran."""

    code = "dropped"
    remedy = "Enqueue it again later, or raise the limit."
