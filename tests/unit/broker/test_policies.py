"""What can't be a name, a policy or an author is refused before it reaches the journal."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from fairlane.model.policy import QueuePolicy
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with


@pytest.mark.parametrize(
    "name", ["", "x.dlq", ".x", "-x", "a b", "a/b", "ä", "a\n", "a" * 125, "a" * 129, None, 5, ["q"], "\ud800"]
)
def test_a_bad_name_is_refused(name: Any) -> None:
    """Names that can't be a queue's are invalid, whatever their type, and nothing is made."""
    broker = SteppedBroker()
    with pytest.raises(InvalidArgument):
        broker.create_queue(name)
    broker.reopen()
    assert broker.queues() == []


def test_the_longest_name_has_room_for_the_suffix() -> None:
    """A name of 124 characters is good: with ``.dlq`` it has the 128 that a name may have."""
    broker = SteppedBroker()
    broker.create_queue("a" * 124)
    assert [len(view.name) for view in broker.queues()] == [124, 128]


BAD_POLICIES: list[dict[str, Any]] = [
    {"visibility_timeout_ms": 0},
    {"visibility_timeout_ms": 366 * 86_400_000 + 1},
    {"max_attempts": -1},
    {"max_attempts": 10_001},
    {"backoff_ms": -1},
    {"backoff_factor": 0.5},
    {"backoff_factor": float("nan")},
    {"backoff_factor": float("inf")},
    {"backoff_jitter": 1.5},
    {"backoff_jitter": float("nan")},
    {"deadline_ms": 0},
    {"waiting_max": 0},
    {"waiting_bytes_max": 0},
    {"key_waiting_max": 0},
    {"key_waiting_bytes_max": 0},
    {"dedup_window_ms": -1},
    {"quantum": 0},
    {"fairness_key_from": ()},
    {"fairness_key_from": ("a",) * 9},
    {"fairness_key_from": "header:"},
    {"weight_from": ""},
    {"throttles_from": ("x",) * 17},
    {"weights": {"a": 0}},
    {"weights": {"a": 1001}},
    {"weights": {"": 1}},
    {"caps": {"a": -1}},
    {"on_enqueue": "x" * 65_537},
    {"journal_retention_ms": -1},
]
WRONG_TYPES: list[dict[str, Any]] = [
    {"visibility_timeout_ms": 1.5},
    {"visibility_timeout_ms": "30"},
    {"max_attempts": True},
    {"backpressure": "explode"},
    {"deadline_action": "x"},
    {"throttle_scope": "x"},
    {"weights": {"a": 1.5}},
    {"weights": {"\ud800": 2}},
    {"caps": {"a": "1"}},
    {"on_enqueue": 5},
    {"on_failure": b"x"},
    {"fairness_key_from": 5},
    {"fairness_key_from": "\ud800"},
    {"throttles_from": (5,)},
    {"strict_priority": "no"},
]


@pytest.mark.parametrize("fields", BAD_POLICIES + WRONG_TYPES, ids=lambda fields: repr(fields)[:40])
def test_a_bad_policy_is_refused_as_mapping_and_as_object(fields: dict[str, Any]) -> None:
    """Neither create nor update takes it, the policy before stays, and the broker opens again."""
    broker = broker_with({"max_attempts": 7})
    for policy in (fields, QueuePolicy(**fields)):
        with pytest.raises(InvalidArgument):
            broker.create_queue("r", policy)
        with pytest.raises(InvalidArgument):
            broker.update_queue("q", policy)
    broker.reopen()
    assert [view.name for view in broker.queues()] == ["q", "q.dlq"]
    assert broker.queue("q").policy == QueuePolicy(max_attempts=7)


def test_an_unknown_field_of_a_policy_is_refused() -> None:
    """A typing error in a field's name is not silently a default."""
    broker = broker_with()
    with pytest.raises(InvalidArgument, match="visibility_timeout"):
        broker.update_queue("q", {"visibility_timeout": 5})


@pytest.mark.parametrize("by", [5, b"me", "\ud800", "x" * 10_000], ids=repr)
def test_who_did_it_is_a_text_or_nothing_happens(by: Any) -> None:
    """A bad ``by`` is refused wherever it can be given, and the broker opens again."""
    broker = broker_with()
    for verb in (
        lambda: broker.create_queue("r", by=by),
        lambda: broker.update_queue("q", {"quantum": 2}, by=by),
        lambda: broker.pause("q", by=by),
        lambda: broker.set_config("a", "b", by=by),
        lambda: broker.redrive("q.dlq", by=by),
        lambda: broker.delete_queue("q", by=by),
    ):
        with pytest.raises(InvalidArgument):
            verb()
    broker.reopen()
    assert [view.name for view in broker.queues()] == ["q", "q.dlq"]
    assert not broker.queue("q").is_paused
