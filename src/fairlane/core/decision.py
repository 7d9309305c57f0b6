"""What a decision produces: records and an outcome, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from fairlane.core.commands import Given
from fairlane.core.ledger import Ledger, Queue
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.journal.records import AnyRecord

O = TypeVar("O")  # noqa: E741 - the outcome


@dataclass(slots=True)
class Decision(Generic[O]):
    """Records to write and apply together, and what to answer once they are durable.

    Attributes:
        outcome: what the caller gets; an error refuses everything.
        bodies: new bodies that belong to the records.
        pieces: pieces of uploads, which are bodies too, but are read once and in order, so they are not cached.
    """

    records: list[AnyRecord]
    outcome: O | FairlaneError
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    pieces: list[tuple[int, bytes]] = field(default_factory=list)


Deciders: TypeAlias = Mapping[type, Callable[[Ledger, Any, int, Given], Decision[Any]]]
"""How requests and commands are decided, by class."""


def refuse(error: FairlaneError) -> Decision[Any]:
    """Return the decision to change nothing, with the reason."""
    return Decision([], error)


def known_queue(ledger: Ledger, name: str) -> Queue | QueueNotFound:
    """Return a queue, or the refusal if it does not exist."""
    queue = ledger.queues.get(name)
    return queue if queue is not None else no_queue(name)


def no_queue(name: str) -> QueueNotFound:
    """Return the refusal that says that there is no queue of a name."""
    return QueueNotFound(f"Queue {name!r:.150} does not exist.")
