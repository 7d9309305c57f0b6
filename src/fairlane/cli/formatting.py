"""Text of others, made safe to be looked at."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text that can't play tricks on a terminal: what is not printable is shown as an escape."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
