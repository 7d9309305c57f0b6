"""Suggestions for misspelled fields, values and settings."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidArgument
from fairlane.model.policy import policy_from
from fairlane.model.spelling import did_you_mean
from fairlane.server.settings import load
from tests.unit.server.local_server import opened, run


@pytest.mark.parametrize(
    ("path", "body", "question"),
    [
        ("queue/enqueue", {"queue": "orders", "message": []}, "Did you mean 'messages'?"),
        ("queue/enqueue", {"queue": "orders", "messages": [{"fairnes_key": "a"}]}, "Did you mean 'fairness_key'?"),
        ("queue/enqueue", {"queue": "orders", "messages": [{"priority": "hihg"}]}, "Did you mean 'high'?"),
        ("queue/nack", {"queue": "orders", "receipts": [], "intent": "failed"}, "Did you mean 'failure'?"),
        ("queues/create", {"queue": "new", "policy": {"max_attempt": 3}}, "Did you mean 'max_attempts'?"),
        ("queues/create", {"queue": "new", "policy": {"backpressure": "drop"}}, "Did you mean 'drop_oldest'?"),
        ("queues/update", {"queue": "orders", "policy": {"max_attempt": 3}}, "Did you mean 'max_attempts'?"),
        ("queues/update", {"queue": "orders", "policy": {"backpressure": "drop"}}, "Did you mean 'drop_oldest'?"),
    ],
)
def test_the_error_suggests_the_likely_spelling(path: str, body: dict[str, object], question: str) -> None:
    """It does so wherever in the request the mistake is."""

    async def main() -> None:
        async with opened() as server:
            answer = await server.post(path, body)
            assert answer.status_code == 400
            assert answer.json()["error"]["cause"].endswith(question)

    run(main())


def test_an_unlike_word_gets_no_suggestion() -> None:
    """A wrong guess would not help."""
    assert did_you_mean("xyzzy", ["queue", "count"]) == ""
    with pytest.raises(ValueError, match=r"no field 'xyzzy'\.$"):
        policy_from({"xyzzy": 1})


@pytest.mark.parametrize("name", ["visibility_timeout", "visibilty_timeout_ms"])
def test_a_timespan_without_its_unit_is_found(name: str) -> None:
    """So is one with a missing letter."""
    with pytest.raises(ValueError, match="Did you mean 'visibility_timeout_ms'"):
        policy_from({name: 1})


def test_settings_of_a_server_are_found_too() -> None:
    """In the file, as a flag, and values of one."""
    with pytest.raises(InvalidArgument, match="Did you mean 'grace_ms'"):
        load("grace = 1", {}, {})
    with pytest.raises(InvalidArgument, match="Did you mean 'calls_max'"):
        load(None, {}, {"call_max": 1})
    with pytest.raises(InvalidArgument, match="Did you mean 'fsync'"):
        load(None, {"FAIRLANE_DURABILITY": "sync"}, {})
