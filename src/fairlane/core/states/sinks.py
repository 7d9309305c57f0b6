"""What the ledger knows of a sink: what is staged for it, and what it has published."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Part:
    """What one writer has staged for a batch: runs of consecutive messages, each as its first number and its length."""

    runs: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, first: int, count: int) -> None:
        """Add the next messages."""
        self.runs.append((first, count))
        self.count += count

    def numbers(self) -> list[int]:
        """Return its messages in order."""
        return [number for first, count in self.runs for number in range(first, first + count)]


@dataclass(slots=True, eq=False)
class SinkState:
    """Where batches are staged and published, each once.

    Attributes:
        batch: the latest that was published, None before the first.
        messages: how many messages that had.
        parts: what is staged, by batch and name.
        heard_ms: when the journal last spoke of it.
    """

    name: str
    batch: int | None = None
    messages: int = 0
    heard_ms: int = 0
    parts: dict[tuple[int, str], Part] = field(default_factory=dict)
