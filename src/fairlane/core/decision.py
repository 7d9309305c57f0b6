"""What comes of a command: records and an outcome, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlane.core.ledger import Ledger, Queue
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.journal.records import AnyRecord


@dataclass(slots=True)
class Decision:
    """Records to be written and applied together, and what to answer once they are durable.

    Attributes:
        outcome: what the caller gets; an error in it is a refusal, of everything or, in a list, of one item.
        bodies: new bodies that go with the records.
    """

    records: list[AnyRecord]
    outcome: object = None
    bodies: list[tuple[int, bytes]] = field(default_factory=list)


def refuse(error: FairlaneError) -> Decision:
    """Return the decision to do nothing, and why."""
    return Decision([], error)


def known_queue(ledger: Ledger, name: str) -> Queue | QueueNotFound:
    """Return a queue, or the refusal that says that there is none."""
    queue = ledger.queues.get(name)
    return queue if queue is not None else no_queue(name)


def no_queue(name: str) -> QueueNotFound:
    """Return the refusal that says that there is no queue of a name."""
    return QueueNotFound(f"There is no queue {name!r:.150}.")
