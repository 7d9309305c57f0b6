"""Remembering how messages have ended, and forgetting it."""

from __future__ import annotations

from fairlane.core.ledger import Ledger, Message
from fairlane.journal.records import FinishedImage, ResultsSwept


def remember(ledger: Ledger, images: list[FinishedImage], home: int) -> None:
    """Remember messages that have ended."""
    for image in images:
        ledger.finished.add(image, home)


def swept(ledger: Ledger, record: ResultsSwept, _at_ms: int) -> list[Message]:
    """Forget messages whose time is over, with their results."""
    ledger.dropped += ledger.finished.sweep(record.through_ms)
    return []
