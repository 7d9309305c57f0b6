"""What the records of a message tell of its life."""

from __future__ import annotations

from fairlane.journal.life import MessageLife
from fairlane.journal.records import AnyRecord, Enqueued, QueueRemoved, Removed, Terms

ENQUEUED = Enqueued(1, "jobs", [3], [0], Terms(["acme"]))


def ending_of(*later: AnyRecord) -> tuple[str | None, int]:
    """Return how and when a message ended, by its enqueue and one later record each second."""
    life = MessageLife(1)
    for second, record in enumerate((ENQUEUED, *later)):
        life.follow(record, second * 1_000)
    return life.ending, life.finished_ms


def test_a_removed_queue_ends_what_is_in_it() -> None:
    """A message that is in its queue when that is removed is purged."""
    assert ending_of(QueueRemoved(2, "other"), QueueRemoved(3, "jobs")) == ("purged", 2_000)


def test_nothing_changes_an_ending() -> None:
    """A message that was cancelled stays cancelled when its queue is removed later."""
    assert ending_of(Removed(2, "jobs", [1], "cancelled"), QueueRemoved(3, "jobs")) == ("cancelled", 1_000)
