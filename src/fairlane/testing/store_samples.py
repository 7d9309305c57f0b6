"""Commits to try stores with, and checks that need no test framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit

_TEXT_LENGTH_MAX = 500


def page_of(sequence: int, next_sequence: int) -> bytes:
    """Return bytes that only the page of these sequences has."""
    return b"".join(b"%d;" % each for each in range(sequence, next_sequence))


def commit_of(
    sequence: int,
    count: int,
    *,
    bodies: Sequence[tuple[int, bytes]] = (),
    dropped: Sequence[int] = (),
    base: int = 1,
    trim: int = 0,
) -> Commit:
    """Return a commit of so many records, with a page that can be told from others."""
    end = sequence + count
    page = page_of(sequence, end)
    return Commit(sequence=sequence, next_sequence=end, page=page, bodies=bodies, dropped=dropped, base=base, trim=trim)


def check_same(actual: object, expected: object, what: str) -> None:
    """Fail the test unless what is there is what should be."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def check_refused(call: Callable[[], object], what: str) -> None:
    """Fail the test unless a call is refused."""
    if not is_refused(call):
        raise AssertionError(f"{what} should have been refused")


def is_refused(call: Callable[[], object]) -> bool:
    """Make a call and return whether it was refused, as a failure of the store or as wrong."""
    try:
        call()
    except (StoreFailed, ValueError):
        return True
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}..."
