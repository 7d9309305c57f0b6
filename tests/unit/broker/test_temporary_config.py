"""Config values that expire: the broker itself restores what they have covered."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.settings import Settings
from fairlane.core.decide.config import EXPIRY
from fairlane.errors import InvalidArgument
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.config import TemporaryValue
from tests.unit.broker.stepping import broker_with, start_lease

KEY = "weight:q:a"
HOUR_MS = 3_600_000


def config_events(broker: SteppedBroker) -> list[dict[str, Any]]:
    """Return what the journal says about config, without sequences and kinds."""
    wanted = ("name", "value", "owner", "reason", "expires_ms", "by")
    events = broker.read_journal(0, count=1_000).events
    return [{n: e[n] for n in wanted if n in e} for e in events if e["kind"] == "config_set"]


def test_the_value_before_comes_back_by_itself() -> None:
    """A temporary value holds up to its expiry, and then the value that it covered does, without any request."""
    broker = broker_with()
    broker.set_config(KEY, "2")
    broker.set_config(KEY, "9", expire_after_ms=HOUR_MS)
    broker.advance(HOUR_MS - 1)
    assert broker.engine.ledger.config[KEY] == "9"
    broker.advance(1)
    assert broker.engine.ledger.config[KEY] == "2"
    assert broker.list_temporary_config() == []


@pytest.mark.parametrize("before", [None, "3"])
def test_an_expiry_survives_a_crash_and_may_pass_while_the_broker_is_down(before: str | None) -> None:
    """A tool that dies leaves a setting that ends, also if the broker was down at that time."""
    broker = broker_with()
    broker.set_config(KEY, before)
    broker.set_config(KEY, "9", expire_after_ms=HOUR_MS)
    broker.reopen()
    assert broker.get_config(KEY) == "9"
    broker.clock.advance(2 * HOUR_MS)
    broker.reopen()
    broker.step()
    assert broker.get_config(KEY) == before


def test_one_temporary_value_after_the_other_restores_the_one_that_was_set_to_stay() -> None:
    """A temporary value that is prolonged or replaced does not become what is restored."""
    broker = broker_with()
    broker.set_config(KEY, "2")
    broker.set_config(KEY, "4", expire_after_ms=HOUR_MS)
    broker.set_config(KEY, "8", expire_after_ms=2 * HOUR_MS)
    broker.advance(HOUR_MS)
    assert broker.get_config(KEY) == "8"
    broker.advance(HOUR_MS)
    assert broker.get_config(KEY) == "2"


@pytest.mark.parametrize("value", ["5", "9", None])
def test_a_change_without_an_expiry_stays(value: str | None) -> None:
    """An operator who sets a value, be it the same one, ends what was temporary about it."""
    broker = broker_with()
    broker.set_config(KEY, "2")
    broker.set_config(KEY, "9", expire_after_ms=HOUR_MS)
    broker.set_config(KEY, value)
    broker.advance(2 * HOUR_MS)
    assert broker.get_config(KEY) == value
    broker.reopen()
    assert broker.get_config(KEY) == value


def test_a_value_can_be_removed_for_a_while() -> None:
    """A throttle that is lifted for an hour is in force again afterwards."""
    broker = broker_with()
    broker.set_config("throttle:t:rate", "5")
    broker.set_config("throttle:t:rate", None, expire_after_ms=HOUR_MS)
    assert broker.throttles() == []
    broker.advance(HOUR_MS)
    assert [throttle.rate for throttle in broker.throttles()] == [5.0]


def test_a_restored_value_acts_at_once_on_waiting_messages() -> None:
    """The schedule follows the expiry: a cap that ends lets waiting messages through."""
    broker = broker_with()
    broker.set_config("cap:q:a", "0", expire_after_ms=HOUR_MS)
    broker.enqueue("q", b"x", fairness_key="a")
    waiter = start_lease(broker, wait_ms=2 * HOUR_MS)
    broker.advance(HOUR_MS - 1)
    assert not waiter.done()
    broker.advance(1)
    assert [delivery.payload for delivery in waiter.get()] == [b"x"]


def test_the_journal_and_the_list_name_owner_reason_and_expiry() -> None:
    """What is set, by whom and why, and what the broker restored, can be read afterwards."""
    broker = broker_with()
    broker.set_config(KEY, "2", by="ann")
    at_ms = broker.engine.now_ms()
    broker.set_config(KEY, "9", owner="tune", reason="SLO of a", expire_after_ms=HOUR_MS, by="bot")
    told = TemporaryValue(key=KEY, expires_ms=at_ms + HOUR_MS, before="2", owner="tune", reason="SLO of a")
    assert broker.list_temporary_config("weight:") == [told]
    assert broker.list_temporary_config("cap:") == []
    broker.advance(HOUR_MS)
    assert config_events(broker) == [
        {"name": KEY, "value": "2", "by": "ann"},
        {
            "name": KEY,
            "value": "9",
            "owner": "tune",
            "reason": "SLO of a",
            "expires_ms": at_ms + HOUR_MS,
            "by": "bot",
        },
        {"name": KEY, "value": "2", "owner": "tune", "reason": EXPIRY},
    ]


def test_a_baseline_keeps_expiries() -> None:
    """Recovery that begins after the change still knows when it ends, and what comes back."""
    settings = Settings(segment_events=10, journal_retention_ms=100, journal_bytes_max=1 << 40)
    broker = broker_with(settings=settings, carry_floor=10)
    broker.set_config(KEY, "2")
    broker.set_config(KEY, "9", expire_after_ms=HOUR_MS)
    for _ in range(100):
        broker.enqueue("q", b"x")
        broker.ack(broker.lease("q", 1)[0])
        broker.advance(100)
    assert broker.engine.ledger.base > 20
    broker.reopen()
    assert broker.get_config(KEY) == "9"
    broker.advance(HOUR_MS)
    assert broker.get_config(KEY) == "2"


@pytest.mark.parametrize(
    "wrong",
    [
        {"owner": ""},
        {"owner": "x" * 257},
        {"reason": "a\nb"},
        {"reason": "x" * 1_025},
        {"expire_after_ms": 0},
        {"expire_after_ms": 367 * 24 * HOUR_MS},
    ],
)
def test_bad_notes_are_refused(wrong: dict[str, Any]) -> None:
    """Nothing is set if the owner, the reason or the expiry is invalid."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.set_config(KEY, "9", **wrong)
    assert broker.list_config() == {}
