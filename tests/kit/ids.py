"""The number of a message, read from its id as the documentation describes it, without the code under test."""

from __future__ import annotations


def numbered(message_id: str) -> int:
    """Return the number that an id holds, or that sixteen hexadecimal digits say."""
    if len(message_id) == 16:
        return int(message_id, 16)
    first, second, third, _, _ = message_id.split("-")
    return int(first + second + third[1:], 16)
