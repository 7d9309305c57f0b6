"""What a worker has done, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


@dataclass(slots=True)
class Counters:
    """Counts of messages.

    Attributes:
        handled: acked, forwarded ones included; the ack is durable.
        failed: handlers that raised, took too long, or answered what is no answer.
        retried: given back as failed.
        dead: sent to the dead letters.
        deferred: given back without counting as failed.
        lost: whose lease ended before they were settled; they come again.
        in_flight: being handled now.
    """

    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    deferred: int = 0
    lost: int = 0
    in_flight: int = 0

    def __add__(self, other: Self) -> Counters:
        return Counters(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
