"""Sample commits for stores, and checks that need no test framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit

_TEXT_LENGTH_MAX = 500


def page_of(sequence: int, next_sequence: int) -> bytes:
    """Return page bytes that are unique to these sequences."""
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
    """Return a commit with ``count`` records and a page that is unique to its sequences."""
    end = sequence + count
    page = page_of(sequence, end)
    return Commit(sequence=sequence, next_sequence=end, page=page, bodies=bodies, dropped=dropped, base=base, trim=trim)


def check_same(actual: object, expected: object, what: str) -> None:
    """Fail the test unless the actual value equals the expected one."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def check_refused(call: Callable[[], object], what: str) -> None:
    """Fail the test unless the store rejects a call."""
    if not is_refused(call):
        raise AssertionError(f"The store accepted {what} but should reject it.")


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether a call raises ``StoreFailed`` or ``ValueError``."""
    try:
        call()
    except (StoreFailed, ValueError):
        return True
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}..."
