"""Registered consumers and their open claims, as the ledger has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlane.core.ledger import Message, Queue


@dataclass(slots=True, eq=False)
class OpenClaim:
    """A claim that is not over: its messages in order, the first leased under ``token``, the others under the next."""

    number: int
    token: int
    numbers: list[int]

    def held(self, queue: Queue, start: int = 0, end: int | None = None) -> list[Message]:
        """Return the messages that are still leased under it, of some of its places."""
        get = queue.messages.get
        places = enumerate(self.numbers[start:end], self.token + start)
        found = ((token, get(number)) for token, number in places)
        return [message for token, message in found if message is not None and message.token == token]


@dataclass(slots=True, eq=False)
class RegisteredConsumer:
    """A consumer that is known by its name for good.

    Attributes:
        claimed: the number of its latest claim. There is at most one open: ``claim``, of this very number.
        done: its claims up to this number are over.
        heard_ms: when the journal last spoke of it.
    """

    name: str
    epoch: int = 0
    claimed: int = 0
    done: int = 0
    heard_ms: int = 0
    idle_ms: int | None = None
    claim: OpenClaim | None = None
