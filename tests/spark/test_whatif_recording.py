"""What a journal tells of messages, attempts and consumers, made ready to be played again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairlane.errors import JournalIncomplete, QueueNotFound
from fairlane.model.message import NewMessage
from fairlane.spark.whatif.attempts import ACKED, DEAD, EXPIRED, RETURNED
from fairlane.spark.whatif.comparison import Journal
from fairlane.spark.whatif.files import chosen, groups, journal_files, survey
from fairlane.spark.whatif.presence import slots_over_time
from fairlane.spark.whatif.recording import record
from fairlane.spark.whatif.reproduction import reproduce
from fairlane.testing.stepped import SteppedBroker
from tests.spark.whatif_journals import exported, stepped_broker


def _worked_broker() -> SteppedBroker:
    """A broker whose queue has seen a failure, a lost lease, a dead letter, a redrive and a message left waiting."""
    broker = stepped_broker()
    broker.create_queue("work", {"backoff_ms": 500, "backoff_jitter": 0.0, "visibility_timeout_ms": 2_000})
    broker.enqueue("work", NewMessage(fairness_key="acme", cost=3, weight=2))
    first = broker.lease("work")[0]
    broker.advance(70)
    broker.nack(first, error="no")
    broker.advance(500)
    again = broker.lease("work")[0]
    broker.advance(90)
    broker.ack(again, cost=5)
    broker.enqueue("work", NewMessage(fairness_key=("bakery", "web"), priority="high", throttles=("api", "db")))
    broker.lease("work")
    broker.advance(2_500)
    broker.nack(broker.lease("work")[0], intent="dead")
    broker.redrive("work.dlq")
    broker.advance(1_000)
    broker.enqueue("work", NewMessage(fairness_key="clinic", delay_ms=5_000, deadline_ms=9_000))
    return broker


def test_attempts_are_read_with_their_ends(tmp_path: Path) -> None:
    """Each attempt lasts as long as its lease did, ends as it ended, and is due again when it was."""
    recording = record(journal_files(exported(_worked_broker(), tmp_path)), ("work",))
    assert recording.key == ["acme", ("bakery", "web"), ("bakery", "web"), "clinic"]
    of_first = slice(recording.first[0], recording.first[1])
    assert list(recording.hold_ms[of_first]) == [70, 90]
    assert recording.end[of_first] == [RETURNED, ACKED]
    assert list(recording.delay_ms[of_first]) == [500, 0]
    assert list(recording.settle[of_first]) == [0, 2]
    of_second = slice(recording.first[1], recording.first[2])
    assert recording.end[of_second] == [EXPIRED, DEAD]
    assert list(recording.hold_ms[of_second]) == [2_000, 0]


def test_terms_are_read_as_they_were(tmp_path: Path) -> None:
    """Key, cost, weight, priority, throttles, delay and deadline are those that the message came with."""
    recording = record(journal_files(exported(_worked_broker(), tmp_path)), ("work",))
    assert recording.cost == [3, 1, 1, 1]
    assert recording.weight == [2, 0, 0, 0]
    assert recording.priority == [1, 0, 0, 1]
    assert recording.throttles[1] == ("api", "db")
    assert recording.due_ms[3] == recording.at_ms[3] + 5_000
    assert recording.deadline_ms[3] == recording.at_ms[3] + 9_000


def test_what_never_ended_is_taken_to_last_as_long_as_usual(tmp_path: Path) -> None:
    """A message that was never leased has one attempt, as long as the median of all keys if its own has none."""
    recording = record(journal_files(exported(_worked_broker(), tmp_path)), ("work",))
    assert recording.assumed == 2  # the one that was redriven, and the one that is delayed
    assert recording.hold_ms[recording.first[3]] == 90
    assert recording.leased_ms[3] == -1


def test_messages_from_before_the_journal_are_counted(tmp_path: Path) -> None:
    """Without the file in which it was enqueued, a message that is leased later is unknown, and left out."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue("work", NewMessage(fairness_key="old"))
    exported(broker, tmp_path)
    broker.update_queue("work", {"quantum": 2})
    broker.enqueue("work", NewMessage(fairness_key="new"))
    for _ in range(2):
        broker.ack(broker.lease("work")[0])
    files = journal_files(exported(broker, tmp_path))
    assert len(files) > 1
    recording = record(files[1:], ("work",))
    assert (recording.key, recording.unknown) == (["new"], [1])


def test_staged_messages_come_when_they_are_published(tmp_path: Path) -> None:
    """What a sink stages is there from its publishing on, what it drops never is, and the order comes out again."""
    broker = stepped_broker()
    broker.create_queue("work")
    for part, key in (("kept", "acme"), ("dropped", "bakery")):
        broker.stage("work", "copy", batch=0, part=part, at=0, messages=[NewMessage(fairness_key=key)] * 2)
    broker.advance(300)
    broker.publish("work", "copy", batch=0, parts=["kept"])
    for _ in range(2):
        delivery = broker.lease("work")[0]
        broker.advance(40)
        broker.ack(delivery)
    recording = record(journal_files(exported(broker, tmp_path)), ("work",))
    assert (recording.key, list(recording.at_ms), recording.unknown) == (["acme", "acme"], [300, 300], [0])
    assert recording.leased_ms.tolist() == [300, 340]
    assert reproduce(tmp_path).is_exact


def test_a_gap_between_files_is_refused(tmp_path: Path) -> None:
    """A journal that lacks a file in its middle is refused, and the sequences that are missing are named."""
    broker = stepped_broker()
    broker.create_queue("work")
    for _ in range(3):
        broker.enqueue("work", b"")
        exported(broker, tmp_path)
    files = journal_files(tmp_path)
    missing = files[1].name.split("-")[-2].lstrip("0")
    files[1].unlink()
    with pytest.raises(JournalIncomplete, match=f"sequences {missing} to"):
        journal_files(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """Where there is no journal, that is what is said."""
    with pytest.raises(JournalIncomplete, match="holds no exported journal"):
        Journal(tmp_path)


def test_a_journal_without_messages_is_refused(tmp_path: Path) -> None:
    """Where nothing was enqueued there is nothing to replay."""
    broker = stepped_broker()
    broker.create_queue("work")
    with pytest.raises(JournalIncomplete, match="nothing to replay"):
        Journal(exported(broker, tmp_path))


def test_a_queue_made_before_the_journal_is_refused(tmp_path: Path) -> None:
    """Without the beginning, a queue's policy is not known, and nothing is guessed."""
    broker = stepped_broker()
    broker.create_queue("work")
    exported(broker, tmp_path)
    broker.enqueue("work", b"")
    exported(broker, tmp_path)
    journal_files(tmp_path)[0].unlink()
    with pytest.raises(JournalIncomplete, match="begins after queue 'work' was created"):
        Journal(tmp_path)


def test_an_unknown_queue_is_refused(tmp_path: Path) -> None:
    """A queue that the journal says nothing of is refused, with those that it speaks of."""
    with pytest.raises(QueueNotFound, match=r"no queue 'wrok'\. Its queues: work\."):
        Journal(exported(_worked_broker(), tmp_path), queues=["wrok"])


def test_queues_that_share_a_throttle_are_replayed_together(tmp_path: Path) -> None:
    """Three queues make two groups if two of them name the same throttle."""
    broker = stepped_broker()
    for name, throttle in (("a", "api"), ("b", "db"), ("c", "api")):
        broker.create_queue(name)
        broker.enqueue(name, NewMessage(throttles=(throttle,)))
    found = survey(journal_files(exported(broker, tmp_path)))
    assert groups(found, chosen(found, [])) == [("a", "c"), ("b",)]


def test_slots_are_shown_by_messages_that_waited() -> None:
    """Two leases at once with a message waiting show two slots; more leases later show more, until it shows again."""
    at_ms = np.array([0, 0, 9_000, 9_000, 25_000, 31_000, 31_000])
    steps = np.array([1, 1, -1, 1, 1, -1, 1])
    shows = np.array([False, False, False, True, False, False, False])
    assert slots_over_time(at_ms, steps, shows) == [(0, 2), (20_000, 3)]


def test_slots_without_any_sign_are_the_most_leases() -> None:
    """Where no message ever waited, there were at least as many consumers as were ever busy."""
    at_ms, steps = np.array([0, 100, 20_000, 20_001]), np.array([1, -1, 1, 1])
    assert slots_over_time(at_ms, steps, np.zeros(4, dtype=np.bool_)) == [(0, 2)]


def test_a_policy_that_was_set_again_is_the_latest(tmp_path: Path) -> None:
    """Quantum 1, then 2, then 1 again, all in one file: the latest policy is the last one that was set."""
    broker = stepped_broker()
    broker.create_queue("work", {"quantum": 1})
    for quantum in (2, 1):
        broker.update_queue("work", {"quantum": quantum})
    broker.enqueue("work", b"")
    journal = Journal(exported(broker, tmp_path))
    assert len(journal.files) == 1
    assert journal.policies["work"].quantum == 1
