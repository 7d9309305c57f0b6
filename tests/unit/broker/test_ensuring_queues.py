"""``ensure_queue``: creates a queue that is missing, and never changes one that exists."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import HookInvalid, InvalidArgument
from fairlane.journal.records import QueueSet
from fairlane.model.policy import QueuePolicy
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.queues import EnsuredQueue
from tests.unit.broker.stepping import broker_with


def test_a_missing_queue_is_created_with_its_dead_letter_queue() -> None:
    """The answer has the policy of the new queue, and nothing differs."""
    broker = SteppedBroker()
    made = broker.ensure_queue("q", {"max_attempts": 7}, by="deploy")
    assert made == EnsuredQueue(is_created=True, policy=QueuePolicy(max_attempts=7))
    assert [view.name for view in broker.queues()] == ["q", "q.dlq"]
    assert broker.queue("q").policy.max_attempts == 7


def test_a_queue_that_exists_is_not_changed() -> None:
    """Nothing is written, and the answer names the fields that differ from what was asked for."""
    broker = broker_with({"max_attempts": 7, "throttles_from": ["header:a"]})
    before = broker.engine.ledger.next_sequence
    found = broker.ensure_queue("q", {"max_attempts": 3, "quantum": 2, "throttles_from": ["header:a"]})
    assert not found.is_created
    assert found.policy.max_attempts == 7
    assert found.differing == ["max_attempts", "quantum"]
    assert broker.engine.ledger.next_sequence == before
    assert broker.queue("q").policy.quantum == 1


def test_an_operators_change_outlasts_every_call() -> None:
    """A program that ensures its queue at each start never undoes what an operator has changed since."""
    broker = SteppedBroker()
    broker.ensure_queue("q", {"max_attempts": 7})
    broker.update_queue("q", {"max_attempts": 1})
    broker.reopen()
    assert broker.ensure_queue("q", {"max_attempts": 7}).differing == ["max_attempts"]
    assert broker.queue("q").policy.max_attempts == 1


def test_only_the_given_fields_are_compared() -> None:
    """Without fields nothing differs; a policy object gives the fields that are not at their defaults."""
    broker = broker_with({"max_attempts": 7})
    assert broker.ensure_queue("q").differing == []
    assert broker.ensure_queue("q", QueuePolicy(quantum=4)).differing == ["quantum"]
    assert broker.ensure_queue("q", {"max_attempts": 5}).differing == ["max_attempts"]


@pytest.mark.parametrize("name", ["", "no spaces", "q.dlq", "q~1", "x" * 126, ["q"], 7])
def test_a_name_that_no_queue_can_have_is_refused(name: Any) -> None:
    """Also that of a dead-letter queue that exists, which comes with its queue."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.ensure_queue(name)


def test_a_script_that_does_not_compile_creates_nothing() -> None:
    """The queue is refused as a whole, and a queue that exists keeps the script that it has."""
    broker = SteppedBroker()
    with pytest.raises(HookInvalid):
        broker.ensure_queue("q", {"on_enqueue": "function ("})
    assert broker.queues() == []
    script = 'function on_enqueue(msg) return { fairness_key = "mine" } end'
    assert broker.ensure_queue("q", {"on_enqueue": script}).is_created
    other = 'function on_enqueue(msg) return { fairness_key = "other" } end'
    assert broker.ensure_queue("q", {"on_enqueue": other}).differing == ["on_enqueue"]
    broker.enqueue("q", b"x")
    assert broker.lease("q")[0].fairness_key == "mine"


def test_invalid_fields_are_refused_also_for_a_queue_that_exists() -> None:
    """A spelling mistake is found at the first call, not when the queue is missing one day."""
    broker = broker_with()
    with pytest.raises(InvalidArgument, match="max_attempts"):
        broker.ensure_queue("q", {"max_atempts": 3})


def test_the_journal_names_who_created_it() -> None:
    """The records are those of a queue that was created by hand."""
    broker = SteppedBroker()
    seen: list[object] = []
    broker.engine.taps.append(lambda records, _now_ms: seen.extend(records))
    broker.ensure_queue("q", by="deploy")
    made = [record for record in seen if isinstance(record, QueueSet)]
    assert [(record.queue, record.by) for record in made] == [("q", "deploy"), ("q.dlq", "deploy")]
