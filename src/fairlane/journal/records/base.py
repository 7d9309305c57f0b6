"""What all records have in common."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Runs: TypeAlias = list[tuple[int, int]]
"""Runs of consecutive numbers: the first of each, and how many."""


class Record(msgspec.Struct, array_like=True, gc=False):
    """The base of all records."""

    sequence: int

    @property
    def count(self) -> int:
        """How many sequence numbers the record takes."""
        return 1


class OfMessages(Record):
    """A record about several messages of one queue."""

    queue: str
    numbers: list[int]

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.numbers)
