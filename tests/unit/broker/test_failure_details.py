"""Failed attempts keep where and how they failed, within bounds."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidArgument
from fairlane.model.message import FailureDetail
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one

DETAIL = FailureDetail(traceback="Traceback: boom", worker="worker-1", host="db-3")


def test_a_failed_attempt_keeps_worker_host_and_traceback() -> None:
    """The next delivery, the view, the status and the dead letter have it, also after a crash."""
    broker = broker_with({"max_attempts": 2})
    message_id = broker.enqueue("q", b"x")
    broker.nack(lease_one(broker), error="boom", detail=DETAIL)
    broker.reopen()
    delivery = lease_one(broker)
    assert (delivery.errors[0].error, delivery.errors[0].detail) == ("boom", DETAIL)
    assert broker.status(message_id).errors[0].detail == DETAIL
    broker.nack(delivery, error="again", detail=FailureDetail(worker="worker-2"))
    (dead,) = broker.peek("q.dlq")
    assert [failed.detail and failed.detail.worker for failed in dead.errors] == ["worker-1", "worker-2"]


def test_only_the_latest_traceback_is_kept_and_only_its_end() -> None:
    """A message that fails again and again takes no more memory than one that failed once."""
    broker = broker_with({"max_attempts": 0})
    broker.enqueue("q", b"x")
    for attempt in range(3):
        text = "x" * 5_000 + f"attempt {attempt}"
        broker.nack(lease_one(broker), error="boom", detail=FailureDetail(traceback=text, host="h" * 300))
    errors = lease_one(broker).errors
    assert [len(failed.detail.traceback) for failed in errors if failed.detail] == [0, 0, 4_096]
    assert errors[2].detail is not None
    assert errors[2].detail.traceback.endswith("attempt 2")
    assert len(errors[0].detail.host if errors[0].detail else "") == 256


def test_details_are_carried_with_their_messages() -> None:
    """Recovery that begins after the failure knows them."""
    broker = SteppedBroker(carry_floor=10)
    broker.create_queue("q")
    broker.enqueue("q", b"x", priority="low")
    broker.nack(lease_one(broker), error="boom", detail=DETAIL, delay_ms=3_600_000)
    for _ in range(100):
        broker.enqueue("q", b"y")
        broker.ack(lease_one(broker))
    broker.reopen()
    (view,) = broker.peek("q")
    assert view.errors[0].detail == DETAIL


def test_a_deferred_message_has_no_detail() -> None:
    """It has not failed."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    with pytest.raises(InvalidArgument):
        broker.nack(lease_one(broker), intent="defer", detail=DETAIL)
